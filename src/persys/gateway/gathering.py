"""Reads of single workloads, several in one call: what one caller asks for at one time is gathered.

As with shared calls, whoever asks while one is under way waits for the next, and gets what was true after it
asked.
"""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

import grpc

from persys.gateway.cluster import Answered, Cluster, Metadata
from persys.gateway.sharing import Shared
from persys.infra.together import together
from persys.wire.gen.control.v1 import control_pb2 as pb

T = TypeVar("T")

AT_ONCE_MAX = 64  # in one call
LINES = 2  # while the answers to one are written, the scheduler is busy with the other


class Gathered(Generic[T]):
    def __init__(self) -> None:
        self._waiting: dict[Hashable, dict[str, None]] = {}
        self._rounds: Shared[Mapping[str, T]] = Shared()

    async def ask(
        self,
        key: Hashable,
        name: str,
        fetch: Callable[[Sequence[str]], Awaitable[Mapping[str, T]]],
    ) -> T | None:
        """None: it was not among what `fetch` brought for all who asked under this key."""
        line = (key, hash(name) % LINES)
        self._waiting.setdefault(line, {})[name] = None
        found = await self._rounds.ask(line, partial(self._begin, line, fetch))
        return found.get(name)

    async def _begin(
        self, line: Hashable, fetch: Callable[[Sequence[str]], Awaitable[Mapping[str, T]]]
    ) -> Mapping[str, T]:
        return await fetch(list(self._waiting.pop(line)))


async def read_many(
    cluster: Cluster, names: Sequence[str], *, key: str, metadata: Metadata
) -> list[Answered]:
    """Answers of GetWorkloads. Raises AioRpcError, UnavailableError.

    What is missing is to be asked for by itself: all of it, where schedulers do not know this call.
    """
    parts = [names[start : start + AT_ONCE_MAX] for start in range(0, len(names), AT_ONCE_MAX)]
    async with together() as group:
        tasks = [group.create_task(_read(cluster, part, key, metadata)) for part in parts]
    return [answered for task in tasks if (answered := task.result()) is not None]


async def _read(
    cluster: Cluster, names: Sequence[str], key: str, metadata: Metadata
) -> Answered | None:
    request = pb.GetWorkloadsRequest(workload_ids=names)
    try:
        return await cluster.call("GetWorkloads", request, key=key, metadata=metadata, again=True)
    except grpc.aio.AioRpcError as err:
        if err.code() is grpc.StatusCode.UNIMPLEMENTED:
            return None
        raise
