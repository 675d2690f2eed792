"""What the agent needs from a runtime, from volumes and from the machine.

Every deed looks before it acts, so that it may be repeated after a crash: starting what runs, stopping what
is stopped and removing what is gone are all done. A deed answers with the Failure that the workload has, or
None when it is done. RuntimeUnavailableError means that the runtime gave no answer, so nothing is known;
ConflictError that somebody else changed the thing meanwhile: look again.
"""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from persys.agent.host import CpuTime, Disk, Memory
from persys.agent.journal import Image
from persys.core.convergence import Artefact
from persys.core.garbage import ImageUse, Item
from persys.core.pools import Room
from persys.core.pulling import Download, Layers
from persys.model.failure import Failure
from persys.model.ids import WorkloadId
from persys.model.order import Order
from persys.model.volume import VolumeSeen


class PullWatch(Protocol):
    """Follows an image while it is fetched."""

    def queued(self, why: str) -> None:
        """It is not here, and waits for a place."""

    def began(self) -> None:
        """It was not here, and is fetched from now on."""

    def progress(self, fetching: Layers | Download) -> None:
        """May be called as often as there is something new."""

    async def fetched(self, image: str, image_id: str) -> None:
        """It is here because this agent fetched it."""


class Runtime(Protocol):
    async def inspect(self, order: Order) -> Artefact | None:
        """What there is now. None: it was looked for, and there is nothing.

        What runs at the order's revision is compared with how it was created.
        """

    async def pull(self, order: Order, watch: PullWatch) -> Failure | None:
        """Have the image here, as the pull policy says. May be cancelled."""

    async def create(self, order: Order, volumes: Mapping[str, Path]) -> Failure | None:
        """`volumes` says where each managed volume is."""

    async def start(self, order: Order, artefact: Artefact) -> Failure | None: ...

    async def stop(self, order: Order, artefact: Artefact) -> Failure | None:
        """Ask it to end, and kill it when its grace is over."""

    async def remove(self, order: Order, artefact: Artefact) -> Failure | None:
        """Returns when it is gone."""

    async def repair(self, order: Order, artefact: Artefact) -> Failure | None:
        """Make what runs as it was created, without a restart."""

    async def replace(self, order: Order, artefact: Artefact) -> Failure | None:
        """The same where that needs another container. Named volumes and binds stay."""

    async def discard(self, order: Order) -> Failure | None:
        """After the removal of what was deleted: let go of all else, and of data if the order says so."""

    async def log_tail(self, artefact: Artefact) -> str:
        """The last of what it wrote, "" if that cannot be had."""

    def changes(self) -> AsyncGenerator[WorkloadId | None, None]:
        """Ids of workloads that changed, as long as the runtime answers. None first: now listening."""

    async def ping(self) -> None:
        """Raises RuntimeUnavailableError if the runtime gives no answer."""


class Leftovers(Protocol):
    """All that this agent has made in a runtime, also what no workload of the journal has."""

    async def inventory(self) -> list[Item]:
        """Raises RuntimeUnavailableError: then nothing is known to be garbage."""

    async def images(self, fetched: Mapping[str, Image]) -> list[ImageUse]:
        """Of the images that this agent fetched, those that are still what it fetched."""

    async def remove(self, item: Item) -> str:
        """Empty when it is gone, else why it is not. Data is never removed."""


class Volumes(Protocol):
    """Managed volumes. Their deeds are for one workload at a time, by whoever works on it."""

    @property
    def drivers(self) -> frozenset[str]: ...

    async def check(self, order: Order) -> None:
        """Raises InvalidError, by field, for what can never be made so here. Changes nothing."""

    def path(self, workload_id: WorkloadId, name: str) -> Path:
        """Where a container finds a volume that was prepared."""

    def disk(self, workload_id: WorkloadId, name: str) -> Path:
        """The file, or the block device, that a machine has as its disk."""

    async def prepare(self, order: Order) -> Failure | None:
        """Make, grow and attach all that the order has. What existed before is kept, whatever fails."""

    async def release(self, workload_id: WorkloadId) -> None:
        """It does not run now: detach what can be detached. Nothing is removed."""

    async def remove(self, workload_id: WorkloadId, names: frozenset[str]) -> Failure | None:
        """Detach all volumes of a workload, and remove these with all that is in them."""

    async def inventory(self) -> list[VolumeSeen]:
        """All there are, also those that outlived their workload."""

    async def delete(self, workload_id: WorkloadId, name: str) -> None:
        """Raises NotFoundError, RefusedError. Called only when its workload is gone."""


class BaseImage(Struct, frozen=True):
    """An image that is here, for disks to stand on."""

    path: Path  # of a file that never changes
    format: str  # qcow2, raw
    virtual_size_bytes: int


class Images(Protocol):
    """What machines start from: by a name of the node's store, or by an address."""

    async def fetch(self, os_image: str, watch: PullWatch) -> Failure | None:
        """Have it here. May be cancelled."""

    async def base(self, os_image: str) -> BaseImage | None:
        """None: it is not here."""


class Disks(Protocol):
    """Disks of machines, which live in pools of libvirt: shown among the volumes."""

    async def inventory(self) -> list[VolumeSeen]:
        """Raises RuntimeUnavailableError."""

    async def delete(self, workload_id: WorkloadId, name: str) -> None:
        """Raises NotFoundError if there is none of that name. Called only when its workload is gone."""


class PoolSource(Protocol):
    """Pools beside the local one."""

    async def rooms(self) -> list[Room]:
        """Raises RuntimeUnavailableError: then the ones known so far are taken to be there still."""


class Machine(Protocol):
    """What the machine has and uses. The real one is the module `host`."""

    def cpu_millicores(self) -> int: ...

    def cpu_time(self) -> CpuTime: ...

    def memory(self) -> Memory: ...

    def disk(self, path: Path) -> Disk:
        """The file system that holds the path, or will when it is made."""
