"""What a driver of volumes can do. Each deed looks first, so that it may be repeated after a crash."""

from pathlib import Path
from typing import NamedTuple, Protocol

from persys.core.volumes import Abilities
from persys.model.ids import WorkloadId
from persys.model.volume import Volume


class Measure(NamedTuple):
    size_bytes: int
    used_bytes: int


class Driver(Protocol):
    @property
    def can(self) -> Abilities: ...

    @property
    def pool(self) -> str:
        """Where its volumes are, as the node calls that."""

    def lacks(self, fs_type: str) -> str:
        """What this node lacks to make a volume with such a file system; "" if nothing."""

    async def find(self, workload_id: WorkloadId, name: str) -> Volume | None:
        """One that the book does not have, for it is older than the book. Raises OSError."""

    async def find_all(self) -> list[Volume]:
        """Raises OSError."""

    def path(self, volume: Volume) -> Path:
        """Where a container finds it. Not there unless it is attached."""

    def disk(self, volume: Volume) -> Path:
        """The file or the device that a machine has as its disk."""

    async def attach(self, wanted: Volume, known: Volume | None) -> None:
        """Make it or grow it, and attach it. Raises VolumeError; what existed before is still there."""

    async def detach(self, volume: Volume) -> None:
        """Raises VolumeError, as when it is in use."""

    async def delete(self, volume: Volume) -> None:
        """With all that is in it; it is detached."""

    async def measure(self, volume: Volume) -> Measure: ...
