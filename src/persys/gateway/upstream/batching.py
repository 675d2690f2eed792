"""Batching: concurrent reads of single workloads by one caller become one GetWorkloads call.

A read that arrives while a call is running joins the next one, so it never returns data older than itself.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

import grpc

from persys.gateway.upstream.cluster import Cluster, Metadata, RpcResponse
from persys.gateway.upstream.single_flight import SingleFlight
from persys.infra.aio.task_group import task_group
from persys.wire.gen.control.v1 import control_pb2 as pb

T = TypeVar("T")

AT_ONCE_MAX = 64  # workloads per call
LINES = 2  # parallel batches: one is written to clients while the scheduler works on the other


class Batcher(Generic[T]):
    def __init__(self) -> None:
        self._waiting: dict[Hashable, dict[str, None]] = {}
        self._rounds: SingleFlight[Mapping[str, T]] = SingleFlight()

    async def get(
        self,
        key: Hashable,
        name: str,
        fetch: Callable[[Sequence[str]], Awaitable[Mapping[str, T]]],
    ) -> T | None:
        """Fetch `name` in a batch with others of the same key. None: `fetch` did not return it."""
        line = (key, hash(name) % LINES)
        self._waiting.setdefault(line, {})[name] = None
        found = await self._rounds.call(line, partial(self._begin, line, fetch))
        return found.get(name)

    async def _begin(
        self, line: Hashable, fetch: Callable[[Sequence[str]], Awaitable[Mapping[str, T]]]
    ) -> Mapping[str, T]:
        return await fetch(list(self._waiting.pop(line)))


async def read_many(
    cluster: Cluster, names: Sequence[str], *, key: str, metadata: Metadata
) -> list[RpcResponse]:
    """Call GetWorkloads in batches. Raises AioRpcError, UnavailableError.

    Workloads missing in the responses must be read one by one: all of them with a scheduler that does not
    implement GetWorkloads.
    """
    parts = [names[start : start + AT_ONCE_MAX] for start in range(0, len(names), AT_ONCE_MAX)]
    async with task_group() as group:
        tasks = [group.create_task(_read(cluster, part, key, metadata)) for part in parts]
    return [answered for task in tasks if (answered := task.result()) is not None]


async def _read(
    cluster: Cluster, names: Sequence[str], key: str, metadata: Metadata
) -> RpcResponse | None:
    request = pb.GetWorkloadsRequest(workload_ids=names)
    try:
        return await cluster.call(
            "GetWorkloads", request, key=key, metadata=metadata, idempotent=True
        )
    except grpc.aio.AioRpcError as err:
        if err.code() is grpc.StatusCode.UNIMPLEMENTED:
            return None
        raise
