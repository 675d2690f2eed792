"""One cluster: calls its schedulers in the order of the routing strategy, with failover."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

import grpc
import structlog

from persys.errors import UnavailableError
from persys.gateway.upstream.balancing import order_by_strategy
from persys.gateway.upstream.config import ClusterEntry, SchedulerEntry
from persys.gateway.upstream.scheduler import Dial, SchedulerConnection
from persys.infra.clock import Clock
from persys.wire.metadata_keys import DATA_AGE_MS, MODE, NOT_LEADER

log = structlog.get_logger()

LOOK_SECONDS = 2.0
FIND_SECONDS = 30.0
CALL_SECONDS = 30.0
LEAVE_SECONDS = 5.0

Metadata = tuple[tuple[str, str | bytes], ...]
Find = Callable[[str], Sequence[str]]


class RpcResponse(NamedTuple):
    answer: Any
    mode: str  # of the scheduler; empty in normal mode
    data_age_ms: str = ""  # set if the scheduler answered from memory


class Cluster:
    def __init__(self, entry: ClusterEntry, dial: Dial, clock: Clock, find: Find) -> None:
        """`find` resolves an SRV record. It blocks."""
        self.entry = entry
        self._dial = dial
        self._clock = clock
        self._find = find
        self.upstreams = [self._open(one) for one in entry.schedulers]
        self._reachable: bool | None = None

    @property
    def id(self) -> str:
        return self.entry.id

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._probe())
            if self.entry.discovery:
                group.create_task(self._discover())

    async def close(self) -> None:
        for upstream in self.upstreams:
            await upstream.close()

    async def call(
        self,
        rpc: str,
        request: Any,
        *,
        key: str,
        metadata: Metadata,
        idempotent: bool,
        seconds: float = CALL_SECONDS,
    ) -> RpcResponse:
        """Call one scheduler. Raises AioRpcError, UnavailableError.

        `idempotent`: after a broken connection the call may be retried on another scheduler.
        """
        failed: grpc.aio.AioRpcError | None = None
        async for upstream in self._reached(key):
            call = getattr(upstream.stub, rpc)(request, timeout=seconds, metadata=metadata)
            try:
                answer = await call
            except grpc.aio.AioRpcError as err:
                if not (_is_certain_not_taken(err) or (upstream.lost_connection() and idempotent)):
                    raise
                failed = err
                continue
            trailing = await call.trailing_metadata()
            received = {name: str(text) for name, text in trailing or ()}
            return RpcResponse(answer, received.get(MODE, ""), received.get(DATA_AGE_MS, ""))
        raise failed or self._unavailable()

    async def reach(self, key: str) -> SchedulerConnection:
        """The scheduler to open a stream to. Raises UnavailableError."""
        async for upstream in self._reached(key):
            return upstream
        raise self._unavailable()

    async def _reached(self, key: str) -> AsyncIterator[SchedulerConnection]:
        for upstream in order_by_strategy(self.upstreams, self.entry.routing_strategy, key):
            if await upstream.connect():
                yield upstream

    def _unavailable(self) -> UnavailableError:
        return UnavailableError(f"no scheduler of cluster {self.id} can be reached")

    async def _probe(self) -> None:
        while True:
            async with asyncio.TaskGroup() as group:
                for upstream in self.upstreams:
                    group.create_task(upstream.probe())
            self._log()
            await asyncio.sleep(LOOK_SECONDS)

    def _log(self) -> None:
        """Log when the cluster becomes unreachable and when it is reachable again."""
        reachable = any(upstream.healthy for upstream in self.upstreams)
        if reachable is not self._reachable:
            self._reachable = reachable
            write_log = log.info if reachable else log.warning
            write_log("cluster.reached" if reachable else "cluster.lost", cluster=self.id)

    async def _discover(self) -> None:
        while True:
            try:
                found = await asyncio.to_thread(self._find, self.entry.discovery)
            except UnavailableError as err:
                log.warning("cluster.not_found", cluster=self.id, reason=str(err))
                found = ()
            if found:
                await self._replace(found)
            await asyncio.sleep(FIND_SECONDS if self.upstreams else LOOK_SECONDS)

    async def _replace(self, addresses: Sequence[str]) -> None:
        known = {upstream.address: upstream for upstream in self.upstreams}
        kept = [
            known.pop(at) if at in known else self._open(SchedulerEntry(at))
            for at in set(addresses)
        ]
        self.upstreams = sorted(kept, key=lambda upstream: upstream.address)
        for upstream in known.values():
            await upstream.close(LEAVE_SECONDS)

    def _open(self, scheduler: SchedulerEntry) -> SchedulerConnection:
        return SchedulerConnection(scheduler.id, scheduler.address, self._dial, self._clock)


def _is_certain_not_taken(err: grpc.aio.AioRpcError) -> bool:
    return any(name == NOT_LEADER for name, _ in err.trailing_metadata() or ())
