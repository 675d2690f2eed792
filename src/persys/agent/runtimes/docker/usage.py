"""Samples the usage of this agent's containers: one list from Docker, then the cgroup counters.

Containers without a readable cgroup are sampled through the Docker API, which waits up to a second for its
next sample. These calls run concurrently; such a pass takes seconds but little CPU.
"""

import asyncio
import json
from functools import partial
from http import HTTPStatus
from typing import Any

from msgspec.structs import asdict

from persys.agent.runtimes.docker.cgroups import Cgroups
from persys.agent.runtimes.docker.engine import Engine, EngineError, as_unavailable, understood
from persys.agent.runtimes.docker.mapping import WORKLOAD_LABEL, Owner
from persys.core.agent.usage import Sample
from persys.infra.aio.path_calls import PathCalls
from persys.infra.aio.task_group import together
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId

ASKED_AT_ONCE_MAX = 32
_ONE_SHOT = {"stream": "false", "one-shot": "true"}


class DockerUsage:
    def __init__(
        self,
        engine: Engine,
        owner: Owner,
        clock: Clock,
        paths: PathCalls,
        cgroups: Cgroups | None = None,
    ) -> None:
        self._engine = engine
        self._paths = paths
        self._owner = owner
        self._clock = clock
        self._cgroups = cgroups or Cgroups()

    async def sample(self) -> list[Sample]:
        """One sample per running container of this agent. Raises RuntimeUnavailableError."""
        params = {"filters": json.dumps({"label": self._owner.filters()})}
        try:
            listed = await self._engine.call("GET", "containers/json", params=params)
        except EngineError as err:
            raise as_unavailable(err) from err
        with understood("containers"):
            owners = {
                str(found["Id"]): WorkloadId(found["Labels"].get(WORKLOAD_LABEL, ""))
                for found in listed
            }
        at = self._clock.monotonic()
        names = {one: self._owner.name(owner) for one, owner in owners.items()}
        counted = await self._paths.run(self._cgroups.root, partial(self._cgroups.read_all, names))
        samples = [
            Sample(owners[container_id], container_id, at, **asdict(counters))
            for container_id, counters in counted.items()
        ]
        room = asyncio.Semaphore(ASKED_AT_ONCE_MAX)
        async with together() as group:
            tasks = [
                group.create_task(self._fetch(container_id, workload_id, room))
                for container_id, workload_id in owners.items()
                if container_id not in counted
            ]
        return samples + [sample for task in tasks if (sample := task.result()) is not None]

    async def _fetch(
        self, container_id: str, workload_id: WorkloadId, room: asyncio.Semaphore
    ) -> Sample | None:
        async with room:
            try:
                stats = await self._engine.call(
                    "GET", f"containers/{container_id}/stats", params=_ONE_SHOT
                )
            except EngineError as err:
                if err.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    return None  # it exited in the meantime
                raise as_unavailable(err) from err
        with understood(f"the usage of {container_id}"):
            return _sample(workload_id, container_id, stats, self._clock.monotonic())


def _sample(
    workload_id: WorkloadId, container_id: str, stats: dict[str, Any], at: float
) -> Sample | None:
    memory = stats["memory_stats"]
    if "usage" not in memory:
        return None  # it has exited; Docker reports zeros
    disk = (stats.get("blkio_stats") or {}).get("io_service_bytes_recursive") or ()
    networks = (stats.get("networks") or {}).values()
    details = memory.get("stats") or {}
    # Reclaimable page cache is not counted, as in `docker stats`.
    cached = details.get("total_inactive_file", details.get("inactive_file", 0))
    return Sample(
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
