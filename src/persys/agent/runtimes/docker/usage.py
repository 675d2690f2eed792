"""Samples the usage of this agent's containers: one list from Docker, then the cgroup counters.

`Cgroups` reads cgroup v1 and v2 with both cgroup drivers of Docker, much cheaper than the Docker API.
Containers without a readable cgroup, for example with a remote Docker, are sampled through the Docker API,
which waits up to a second for its next sample. These calls run concurrently; such a pass takes seconds but
little CPU.
"""

import asyncio
import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from persys.agent.runtimes.docker.engine import (
    Engine,
    EngineError,
    as_unavailable,
    parsing_response,
)
from persys.agent.runtimes.docker.mapping import WORKLOAD_LABEL, OwnerLabels
from persys.core.agent.report import UsageSample
from persys.infra.aio.path_calls import PathCalls
from persys.infra.aio.task_group import task_group
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId

# The last two belong to stacks.
_PLACES = (
    "docker/{id}",
    "system.slice/docker-{id}.scope",
    "persys/{name}/{id}",
    "persys.slice/persys-{escaped}.slice/docker-{id}.scope",
)
_FILE_BYTES_MAX = 64 * 1024


CONCURRENT_REQUESTS_MAX = 32
_ONE_SHOT = {"stream": "false", "one-shot": "true"}


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
        self._is_v2 = Path(root, "cgroup.controllers").exists()

    def read_all(self, containers: Mapping[str, str]) -> dict[str, Counters]:
        """Counters of the containers that have a cgroup here. `containers`: stack names by container id."""
        found = ((one, self.read(one, name)) for one, name in containers.items())
        return {container_id: counters for container_id, counters in found if counters is not None}

    def read(self, container_id: str, name: str = "") -> Counters | None:
        read = self._read_v2 if self._is_v2 else self._read_v1
        escaped = name.replace("-", "_")
        for place in _PLACES:
            try:
                return read(place.format(id=container_id, name=name, escaped=escaped))
            except (OSError, ValueError):
                continue
        return None

    def _read_v1(self, place: str) -> Counters:
        memory, cpu = f"{self.root}/memory/{place}", f"{self.root}/cpuacct/{place}"
        used = int(_text(f"{memory}/memory.usage_in_bytes"))
        cached = _value(_text(f"{memory}/memory.stat"), "total_inactive_file")
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

    def _read_v2(self, place: str) -> Counters:
        group = f"{self.root}/{place}"
        used = int(_text(f"{group}/memory.current"))
        cached = _value(_text(f"{group}/memory.stat"), "inactive_file")
        disk = _text(f"{group}/io.stat").split()
        rx, tx = self._network(group)
        return Counters(
            cpu_nanos=_value(_text(f"{group}/cpu.stat"), "usage_usec") * 1000,
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


def _value(text: str, name: str) -> int:
    """The number after `name` in lines of "name number"."""
    found = re.search(rf"^{name} (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def _sum_of(words: Iterable[str], prefix: str) -> int:
    return sum(int(word.removeprefix(prefix)) for word in words if word.startswith(prefix))


class DockerUsage:
    def __init__(
        self,
        engine: Engine,
        owner: OwnerLabels,
        clock: Clock,
        paths: PathCalls,
        cgroups: Cgroups | None = None,
    ) -> None:
        self._engine = engine
        self._paths = paths
        self._owner = owner
        self._clock = clock
        self._cgroups = cgroups or Cgroups()

    async def sample(self) -> list[UsageSample]:
        """One sample per running container of this agent. Raises RuntimeUnavailableError."""
        params = {"filters": json.dumps({"label": self._owner.filters()})}
        try:
            listed = await self._engine.call("GET", "containers/json", params=params)
        except EngineError as err:
            raise as_unavailable(err) from err
        with parsing_response("containers"):
            owners = {
                str(found["Id"]): WorkloadId(found["Labels"].get(WORKLOAD_LABEL, ""))
                for found in listed
            }
        at = self._clock.monotonic()
        names = {one: self._owner.name(owner) for one, owner in owners.items()}
        counted = await self._paths.run(self._cgroups.root, partial(self._cgroups.read_all, names))
        samples = [
            UsageSample(owners[container_id], container_id, at, **asdict(counters))
            for container_id, counters in counted.items()
        ]
        slots = asyncio.Semaphore(CONCURRENT_REQUESTS_MAX)
        async with task_group() as group:
            tasks = [
                group.create_task(self._fetch(container_id, workload_id, slots))
                for container_id, workload_id in owners.items()
                if container_id not in counted
            ]
        return samples + [sample for task in tasks if (sample := task.result()) is not None]

    async def _fetch(
        self, container_id: str, workload_id: WorkloadId, slots: asyncio.Semaphore
    ) -> UsageSample | None:
        async with slots:
            try:
                stats = await self._engine.call(
                    "GET", f"containers/{container_id}/stats", params=_ONE_SHOT
                )
            except EngineError as err:
                if err.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    return None  # it exited in the meantime
                raise as_unavailable(err) from err
        with parsing_response(f"the usage of {container_id}"):
            return _sample(workload_id, container_id, stats, self._clock.monotonic())


def _sample(
    workload_id: WorkloadId, container_id: str, stats: dict[str, Any], at: float
) -> UsageSample | None:
    memory = stats["memory_stats"]
    if "usage" not in memory:
        return None  # it has exited; Docker reports zeros
    disk = (stats.get("blkio_stats") or {}).get("io_service_bytes_recursive") or ()
    networks = (stats.get("networks") or {}).values()
    details = memory.get("stats") or {}
    # Reclaimable page cache is not counted, as in `docker stats`.
    cached = details.get("total_inactive_file", details.get("inactive_file", 0))
    return UsageSample(
        workload_id=workload_id,
        container_id=container_id,
        at=at,
        cpu_nanos=stats["cpu_stats"]["cpu_usage"]["total_usage"],
        memory_bytes=max(0, memory["usage"] - cached),
        disk_read_bytes=sum(each["value"] for each in disk if each["op"].lower() == "read"),
        disk_write_bytes=sum(each["value"] for each in disk if each["op"].lower() == "write"),
        net_rx_bytes=sum(each["rx_bytes"] for each in networks),
        net_tx_bytes=sum(each["tx_bytes"] for each in networks),
    )
