"""Reads the resource usage of containers from the kernel, much cheaper than the Docker API.

Supports cgroup v1 and v2 with both cgroup drivers of Docker. Usage of a container without a readable cgroup,
for example with a remote Docker, is read from the Docker API instead.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

# The last two belong to stacks.
_PLACES = (
    "docker/{id}",
    "system.slice/docker-{id}.scope",
    "persys/{name}/{id}",
    "persys.slice/persys-{escaped}.slice/docker-{id}.scope",
)
_FILE_BYTES_MAX = 64 * 1024


class Counters(Struct, frozen=True):
    cpu_nanos: int
    memory_bytes: int
    disk_read_bytes: int
    disk_write_bytes: int
    net_rx_bytes: int
    net_tx_bytes: int


class Cgroups:
    """Paths are plain strings: `Path` is measurably slower with hundreds of files per sample."""

    def __init__(self, root: str = "/sys/fs/cgroup", proc: str = "/proc") -> None:
        self.root = root
        self._proc = proc
        self._is_unified = Path(root, "cgroup.controllers").exists()

    def read_all(self, containers: Mapping[str, str]) -> dict[str, Counters]:
        """Counters of the containers that have a cgroup here. `containers`: stack names by container id."""
        found = ((one, self.read(one, name)) for one, name in containers.items())
        return {container_id: counters for container_id, counters in found if counters is not None}

    def read(self, container_id: str, name: str = "") -> Counters | None:
        read = self._read_unified if self._is_unified else self._read_separate
        escaped = name.replace("-", "_")
        for place in _PLACES:
            try:
                return read(place.format(id=container_id, name=name, escaped=escaped))
            except (OSError, ValueError):
                continue
        return None

    def _read_separate(self, place: str) -> Counters:
        memory, cpu = f"{self.root}/memory/{place}", f"{self.root}/cpuacct/{place}"
        used = int(_text(f"{memory}/memory.usage_in_bytes"))
        cached = _figure(_text(f"{memory}/memory.stat"), "total_inactive_file")
        disk = _text(f"{self.root}/blkio/{place}/blkio.throttle.io_service_bytes")
        words = [line.split() for line in disk.splitlines()]
        rx, tx = self._network(cpu)
        return Counters(
            cpu_nanos=int(_text(f"{cpu}/cpuacct.usage")),
            memory_bytes=max(0, used - cached),
            disk_read_bytes=sum(int(line[2]) for line in words if line[1] == "Read"),
            disk_write_bytes=sum(int(line[2]) for line in words if line[1] == "Write"),
            net_rx_bytes=rx,
            net_tx_bytes=tx,
        )

    def _read_unified(self, place: str) -> Counters:
        group = f"{self.root}/{place}"
        used = int(_text(f"{group}/memory.current"))
        cached = _figure(_text(f"{group}/memory.stat"), "inactive_file")
        disk = _text(f"{group}/io.stat").split()
        rx, tx = self._network(group)
        return Counters(
            cpu_nanos=_figure(_text(f"{group}/cpu.stat"), "usage_usec") * 1000,
            memory_bytes=max(0, used - cached),
            disk_read_bytes=_sum_of(disk, "rbytes="),
            disk_write_bytes=_sum_of(disk, "wbytes="),
            net_rx_bytes=rx,
            net_tx_bytes=tx,
        )

    def _network(self, group: str) -> tuple[int, int]:
        """Network counters from one of its processes; zero if it shares the agent's own network."""
        pid = _text(f"{group}/cgroup.procs").partition("\n")[0]
        if not pid or self._namespace(pid) == self._namespace("self"):
            return 0, 0
        lines = _text(f"{self._proc}/{pid}/net/dev").splitlines()[2:]
        devices = [line.replace(":", " ").split() for line in lines]
        counted = [device for device in devices if device[0] != "lo"]
        return sum(int(one[1]) for one in counted), sum(int(one[9]) for one in counted)

    def _namespace(self, pid: str) -> str:
        return str(Path(f"{self._proc}/{pid}/ns/net").readlink())


def _text(path: str) -> str:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, _FILE_BYTES_MAX).decode()
    finally:
        os.close(file)


def _figure(text: str, name: str) -> int:
    """The number after `name` in lines of "name number"."""
    found = re.search(rf"^{name} (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _sum_of(words: Iterable[str], prefix: str) -> int:
    return sum(int(word.removeprefix(prefix)) for word in words if word.startswith(prefix))
