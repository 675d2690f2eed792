"""The interfaces that the agent needs from runtimes, volumes and the host.

Every operation is idempotent, so that it can be repeated after a crash: starting a running container,
stopping a stopped one and removing a missing one all succeed. An operation returns the Failure of the
workload, or None on success. RuntimeUnavailableError means that the runtime did not respond, so nothing is
known. ConflictError means that something else changed the artefact: inspect it again.
"""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from persys.agent.journal.records import Image
from persys.agent.node.host import CpuTime, Disk, Memory
from persys.core.agent.garbage import ImageUse, Item
from persys.core.agent.progress import Artefact
from persys.core.agent.report import DownloadProgress, LayerProgress
from persys.core.agent.storage import LocalPool
from persys.model.ids import WorkloadId
from persys.model.node import VolumeView
from persys.model.status import Failure
from persys.model.workload import Order


class PullWatch(Protocol):
    """Receives the progress of an image pull."""

    def queued(self, why: str) -> None:
        """The pull waits, for the given reason."""

    def began(self) -> None:
        """The image is missing, and its pull starts now."""

    def progress(self, fetching: LayerProgress | DownloadProgress) -> None:
        """May be called at any rate."""

    async def fetched(self, image: str, image_id: str) -> None:
        """The image was pulled by this agent."""


class Runtime(Protocol):
    async def inspect(self, order: Order) -> Artefact | None:
        """The present artefact. None: it does not exist.

        An artefact that runs at the revision of the order is compared with how it was created.
        """

    async def pull(self, order: Order, watch: PullWatch) -> Failure | None:
        """Pull the image according to the pull policy. May be cancelled."""

    async def create(self, order: Order, volumes: Mapping[str, Path]) -> Failure | None:
        """`volumes`: the host path of each managed volume."""

    async def start(self, order: Order, artefact: Artefact) -> Failure | None: ...

    async def stop(self, order: Order, artefact: Artefact) -> Failure | None:
        """Stop it gracefully, and kill it after the grace period."""

    async def remove(self, order: Order, artefact: Artefact) -> Failure | None:
        """Returns when it is removed."""

    async def repair(self, order: Order, artefact: Artefact) -> Failure | None:
        """Restore the created configuration without a restart."""

    async def replace(self, order: Order, artefact: Artefact) -> Failure | None:
        """Restore the created configuration with a new container. Named volumes and binds stay."""

    async def discard(self, order: Order) -> Failure | None:
        """After a deletion: remove everything else of the workload, and its data if the order says so."""

    async def log_tail(self, artefact: Artefact) -> str:
        """The tail of its log; "" if it is not available."""

    def changes(self) -> AsyncGenerator[WorkloadId | None, None]:
        """Ids of workloads that changed, while the runtime responds. The first item is None: subscribed."""

    async def ping(self) -> None:
        """Raises RuntimeUnavailableError if the runtime does not respond."""


class GarbageSource(Protocol):
    """Everything that this agent has created in a runtime, also without a workload in the journal."""

    async def inventory(self) -> list[Item]:
        """Raises RuntimeUnavailableError: nothing may then be treated as garbage."""

    async def images(self, fetched: Mapping[str, Image]) -> list[ImageUse]:
        """The images that this agent pulled and that still have the same id."""

    async def remove(self, item: Item) -> str:
        """Returns "" if it was removed, else the reason. Data is never removed."""


class Volumes(Protocol):
    """Managed volumes. The caller serializes the calls for one workload."""

    @property
    def drivers(self) -> frozenset[str]: ...

    async def check(self, order: Order) -> None:
        """Raises InvalidError for a volume that this node can never provide. Changes nothing."""

    def path(self, workload_id: WorkloadId, name: str) -> Path:
        """The host path of a prepared volume, for a container."""

    def disk(self, workload_id: WorkloadId, name: str) -> Path:
        """The file or block device of a volume, for a VM disk."""

    async def prepare(self, order: Order) -> Failure | None:
        """Create, grow and attach all volumes of the order. Existing data is kept if a step fails."""

    async def release(self, workload_id: WorkloadId) -> None:
        """Detach the volumes of a stopped workload where possible. Nothing is removed."""

    async def remove(self, workload_id: WorkloadId, names: frozenset[str]) -> Failure | None:
        """Detach all volumes of a workload, and remove the named ones with their data."""

    async def inventory(self) -> list[VolumeView]:
        """All volumes, also those whose workload was deleted."""

    async def delete(self, workload_id: WorkloadId, name: str) -> None:
        """Raises NotFoundError, RefusedError. Called only after its workload was deleted."""


class BaseImage(Struct, frozen=True):
    """An image on this node, used as the base of VM disks."""

    path: Path  # the file never changes
    format: str  # qcow2, raw
    virtual_size_bytes: int


class Images(Protocol):
    """VM images, by their name in the image store or by URL."""

    async def fetch(self, os_image: str, watch: PullWatch) -> Failure | None:
        """Download the image if it is missing. May be cancelled."""

    async def base(self, os_image: str) -> BaseImage | None:
        """None: the image is not on this node."""


class Disks(Protocol):
    """VM disks in libvirt storage pools, listed together with the volumes."""

    async def inventory(self) -> list[VolumeView]:
        """Raises RuntimeUnavailableError."""

    async def delete(self, workload_id: WorkloadId, name: str) -> None:
        """Raises NotFoundError if there is no such disk. Called only after its workload was deleted."""


class Guests(Protocol):
    """The guest agents of VMs."""

    async def ping(self, vm_id: str, *, deadline: float) -> str:
        """Returns "" if the guest agent responds within the deadline in seconds, else the problem.

        Raises RuntimeUnavailableError: nothing is known about the guest.
        """


class PoolSource(Protocol):
    """Storage pools other than the local one."""

    async def local_pools(self) -> list[LocalPool]:
        """Raises RuntimeUnavailableError: the last known pools then stay valid."""


class Host(Protocol):
    """Capacity and usage of the host. The implementation is the module `host`."""

    def cpu_millicores(self) -> int: ...

    def cpu_time(self) -> CpuTime: ...

    def memory(self) -> Memory: ...

    def disk(self, path: Path) -> Disk:
        """The file system of the path, or of its nearest existing parent."""
