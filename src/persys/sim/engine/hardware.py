"""The hardware of a node: its capacity and its wall clock."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from persys.agent.node.host import CpuTime, Disk, Memory
from persys.infra.clock import SystemClock

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class WallClock:
    """A wall clock, which faults can change."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self._furthest = timedelta()

    def jump(self, by: timedelta) -> None:
        self.ahead += by
        self._furthest = max(self._furthest, self.ahead)

    def catch_up(self) -> None:
        """Undo steps back."""
        self.ahead = self._furthest

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.elapsed()) + self.ahead

    def elapsed(self) -> float:
        return asyncio.get_running_loop().time()

    def as_read(self) -> SystemClock:
        """The clock of one process."""
        return SystemClock(wall=self.now, monotonic=self.elapsed)


class Hardware:
    """Implements agent.ports.Host."""

    def __init__(self, *, cpu_millicores: int, memory_mb: int, disk_gb: int) -> None:
        self._cpu_millicores = cpu_millicores
        self._memory_mb = memory_mb
        self._disk_gb = disk_gb

    def cpu_millicores(self) -> int:
        return self._cpu_millicores

    def cpu_time(self) -> CpuTime:
        return CpuTime(busy=0, total=0)

    def memory(self) -> Memory:
        return Memory(total_mb=self._memory_mb, used_mb=0)

    def disk(self, path: Path) -> Disk:
        return Disk(total_gb=self._disk_gb, used_gb=0, used_share=0.0)
