"""The usage of nodes and workloads in the last 24 hours: a sampler, a ring in memory per cluster, and a route.

The sampler lists nodes and workloads at an interval, with the gateway's own identity. Nothing is stored: the
history starts with the gateway. A sample that fails is a gap. Values are single-precision floats, and the
number of series is limited, so the memory is bounded whatever the clusters contain.
"""

import asyncio
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import grpc
import structlog
from aiohttp import web

from persys.errors import InvalidError, UnavailableError
from persys.gateway.http.middleware import RequestContext, RequestPipeline
from persys.gateway.http.responses import json_response
from persys.gateway.upstream.cluster import Cluster
from persys.infra.aio.supervisor import Loop, Supervisor
from persys.infra.clock import Clock
from persys.model.identity import Permission
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.routes import API

log = structlog.get_logger()

KEPT = timedelta(hours=24)
SAMPLES_MAX = 1440
SERIES_MAX = 20_000  # of one cluster
RETRY_SECONDS = 10.0
PATH = f"{API}/usage"
NODE_COLUMNS = (
    "cpu_used_millicores",
    "cpu_reserved_millicores",
    "memory_used_mb",
    "memory_reserved_mb",
    "disk_used_gb",
)
WORKLOAD_COLUMNS = ("cpu_percent", "memory_bytes")
_MILLICORES = 1000

Key = tuple[str, str]  # "node" or "workload", and its id
NODE, WORKLOAD = "node", "workload"


class Sample(NamedTuple):
    at: float  # seconds since 1970
    values: tuple[float, ...]


class _Series:
    """The samples of one node or workload: the number of each sample, and a column of values per name."""

    def __init__(self, width: int) -> None:
        self.numbers = array("Q")
        self.columns = tuple(array("f") for _ in range(width))

    def add(self, number: int, values: Sequence[float], keep: int) -> None:
        self.numbers.append(number)
        for column, value in zip(self.columns, values, strict=True):
            column.append(value)
        if len(self.numbers) >= 2 * keep:  # rarely, because a deletion at the start moves the rest
            del self.numbers[:-keep]
            for column in self.columns:
                del column[:-keep]


class UsageRing:
    """The last `keep` samples of at most `series_max` nodes and workloads. Newer series are left out."""

    def __init__(self, *, keep: int, series_max: int = SERIES_MAX) -> None:
        self._keep = keep
        self._series_max = series_max
        self._times: deque[float] = deque(maxlen=keep)
        self._count = 0
        self._series: dict[Key, _Series] = {}

    def add(self, at: float, samples: Mapping[Key, Sequence[float]]) -> None:
        number = self._count
        self._count += 1
        self._times.append(at)
        oldest = self._count - len(self._times)
        for key in [key for key, one in self._series.items() if one.numbers[-1] < oldest]:
            del self._series[key]
        for key, values in samples.items():
            series = self._series.get(key)
            if series is None:
                if len(self._series) >= self._series_max:
                    continue
                series = _Series(len(values))
                self._series[key] = series
            series.add(number, values, self._keep)

    def read(self, key: Key) -> list[Sample]:
        """Oldest first. Empty for an unknown key."""
        series = self._series.get(key)
        if series is None:
            return []
        oldest = self._count - len(self._times)
        return [
            Sample(self._times[number - oldest], tuple(values))
            for number, *values in zip(series.numbers, *series.columns, strict=True)
            if number >= oldest
        ]


class UsageHistory:
    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        clock: Clock,
        supervisor: Supervisor,
        *,
        interval: timedelta,
    ) -> None:
        self._clusters = clusters
        self._clock = clock
        self._supervisor = supervisor
        self._interval_seconds = interval.total_seconds()
        keep = min(SAMPLES_MAX, max(1, int(KEPT / interval)))
        self._rings = {name: UsageRing(keep=keep) for name in clusters}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for cluster in self._clusters.values():
                loop = Loop(f"usage of {cluster.id}", partial(self._follow, cluster))
                group.create_task(self._supervisor.keep_running(loop))

    def routes(self, pipeline: RequestPipeline) -> Iterator[web.RouteDef]:
        serve = pipeline.serve(self._handle, permission=Permission.READ)
        yield web.get(PATH, serve)
        yield web.get(f"{API}/clusters/{{cluster}}/usage", serve)

    async def _follow(self, cluster: Cluster) -> None:
        is_lost = False
        while True:
            pause = self._interval_seconds
            try:
                samples = await read_samples(cluster)
            except (grpc.aio.AioRpcError, UnavailableError) as err:
                if not is_lost:
                    log.warning("usage.lost", cluster=cluster.id, reason=_reason(err))
                is_lost, pause = True, min(pause, RETRY_SECONDS)
            else:
                self._rings[cluster.id].add(self._clock.now().timestamp(), samples)
                is_lost = False
            await asyncio.sleep(pause)

    async def _handle(self, context: RequestContext) -> web.StreamResponse:
        key, names = _wanted(context.request.query)
        samples = self._rings[context.cluster.id].read(key)
        columns = [[sample.values[index] for sample in samples] for index in range(len(names))]
        return json_response(
            context.request,
            {
                "interval_seconds": self._interval_seconds,
                "times": [sample.at for sample in samples],
                "series": [
                    {"name": name, "values": values}
                    for name, values in zip(names, columns, strict=True)
                ],
            },
        )


def _wanted(query: Mapping[str, str]) -> tuple[Key, tuple[str, ...]]:
    """Raises InvalidError."""
    node, workload = query.get("node_id", ""), query.get("workload_id", "")
    if bool(node) == bool(workload):
        raise InvalidError("node_id", "expected either node_id or workload_id")
    return ((NODE, node), NODE_COLUMNS) if node else ((WORKLOAD, workload), WORKLOAD_COLUMNS)


async def read_samples(cluster: Cluster) -> dict[Key, tuple[float, ...]]:
    """Raises AioRpcError, UnavailableError."""
    call = partial(cluster.call, key="", metadata=(), idempotent=True)
    nodes: pb.ListNodesResponse = (await call("ListNodes", pb.ListNodesRequest())).answer
    listed = await call("ListWorkloads", pb.ListWorkloadsRequest())
    return samples_of(nodes.nodes, listed.answer.workloads)


def samples_of(nodes: Any, workloads: Any) -> dict[Key, tuple[float, ...]]:
    """Those that report usage."""
    found: dict[Key, tuple[float, ...]] = {
        (NODE, node.node_id): (
            node.usage.cpu_used_millicores,
            (node.total_cpu_cores - node.available_cpu_cores) * _MILLICORES,
            node.usage.memory_used_mb,
            node.total_memory_mb - node.available_memory_mb,
            node.usage.disk_used_gb,
        )
        for node in nodes
        if node.HasField("usage")
    }
    found.update(
        ((WORKLOAD, view.workload_id), (view.usage.cpu_percent, view.usage.memory_bytes))
        for view in workloads
        if view.HasField("usage")
    )
    return found


def _reason(err: Exception) -> str:
    return (err.details() or "") if isinstance(err, grpc.aio.AioRpcError) else str(err)
