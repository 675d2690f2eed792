"""The interface of volume drivers. Each method checks the current state first and can be repeated."""

from pathlib import Path
from typing import NamedTuple, Protocol

from persys.core.agent.storage import DriverCapabilities
from persys.model.ids import WorkloadId
from persys.model.node import Volume


class Measure(NamedTuple):
    size_bytes: int
    used_bytes: int


class Driver(Protocol):
    @property
    def abilities(self) -> DriverCapabilities: ...

    @property
    def pool(self) -> str:
        """The name of the pool that holds its volumes."""

    def unsupported(self, fs_type: str) -> str:
        """Why this node cannot create a volume with such a file system, or ""."""

    async def find(self, workload_id: WorkloadId, name: str) -> Volume | None:
        """A volume that is older than the registry and not in it. Raises OSError."""

    async def find_all(self) -> list[Volume]:
        """Raises OSError."""

    def path(self, volume: Volume) -> Path:
        """The host path for containers. It exists only while the volume is attached."""

    def disk(self, volume: Volume) -> Path:
        """The file or block device for VMs."""

    async def attach(self, wanted: Volume, known: Volume | None) -> None:
        """Create or grow the volume and attach it. Raises VolumeError; existing data is kept."""

    async def detach(self, volume: Volume) -> None:
        """Raises VolumeError, for example if it is in use."""

    async def delete(self, volume: Volume) -> None:
        """Delete a detached volume with its data."""

    async def measure(self, volume: Volume) -> Measure: ...
