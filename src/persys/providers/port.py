"""The port of providers: where the machines of a node pool come from.

A provider has no state of its own: what exists is what the provider lists. The tags of a machine are part of
the call that creates it, so a machine is found again after a crash at any step.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from persys.model.ids import WorkloadId
from persys.model.placement import Resources
from persys.model.spec import VMSpec
from persys.model.status import Status

RETRY_AFTER_MAX = timedelta(hours=1)


def retry_after(seconds: float, default: timedelta) -> timedelta:
    """The time that a provider asks to wait, within limits. `default` if it is not a positive number."""
    if not seconds > 0:
        return default
    return timedelta(seconds=min(seconds, RETRY_AFTER_MAX.total_seconds()))


class MachineRequest(Struct, frozen=True):
    """A machine to create. `name` is unique in its cluster and is the id of its node.

    `tags` are those of model.nodepool.
    """

    name: str
    tags: dict[str, str]
    size: str
    image: str
    region: str
    user_data: str
    options: dict[str, str] = {}


class InstanceState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"  # it exists, does not run, and may still cost


class Instance(Struct, frozen=True):
    """A machine as the provider reports it. A destroyed machine is not reported."""

    provider_id: str
    name: str
    tags: dict[str, str]
    state: InstanceState
    created_at: datetime | None = None  # None: the provider does not report it
    address: str = ""


class Provider(Protocol):
    """All calls have a deadline. They raise:

    - ProviderUnavailableError: no response, or the outcome is unknown. Nothing is known to be absent.
    - ProviderThrottledError: nothing was changed; try again after `retry_after`.
    - ProviderRefusedError: nothing was changed, and a repetition fails too until a person has acted.
    """

    async def check(self) -> None:
        """Verify credentials and options. Changes nothing."""

    async def create(self, request: MachineRequest) -> Instance:
        """Create the machine, or return the one that already has this name and these tags.

        It looks by tag first. After ProviderUnavailableError the machine may exist.
        """

    async def instances(self, tags: Mapping[str, str]) -> list[Instance]:
        """All machines that have all of `tags`. The list is complete, or an error is raised."""

    async def destroy(self, provider_id: str) -> None:
        """Begin to destroy the machine and its disks. A machine that does not exist is destroyed."""

    async def close(self) -> None:
        """Release connections and threads. Can be called twice."""


class MachineWorkload(Struct, frozen=True):
    """A machine that is a VM workload of this cluster. Its tags are the metadata of the workload."""

    id: WorkloadId
    spec: VMSpec
    metadata: dict[str, str]
    resources: Resources = Resources()
    required_labels: dict[str, str] = {}  # of the node that runs it
    status: Status = Status.PENDING  # as reported; not part of a request
    created_at: datetime | None = None
    address: str = ""


class WorkloadApi(Protocol):
    """The VM workloads of this cluster, for the provider `libvirt`. The scheduler implements it.

    All calls raise UnavailableError if the outcome is unknown, and RefusedError if the request is wrong.
    """

    async def machines(self, metadata: Mapping[str, str]) -> list[MachineWorkload]:
        """All VM workloads that have all of these entries, also those that are being deleted."""

    async def apply(self, machine: MachineWorkload) -> None:
        """Create the workload. It exists in the desired state Running when this returns."""

    async def delete(self, workload_id: WorkloadId) -> None:
        """Delete the workload and its disks. One that does not exist is deleted."""
