"""Logs, exec, ports, files and usage of workloads in the remote cluster."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from persys.agent.access import file_copy
from persys.agent.access import forward as forwarding
from persys.agent.access.sessions import (
    SessionSlots,
    first_input,
    forward_slots,
    known_workload,
)
from persys.agent.journal.store import Journal
from persys.core.agent.report import UsageSample
from persys.federation.mapping import Names
from persys.federation.ports import Remote
from persys.infra.aio.task_group import task_group
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.wire.agent.messages import converted
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb

_NANOS = 10**9
WAITING_MAX = 16

T = TypeVar("T", bound=Message)


class RemoteUsage:
    """Implements agent.node.usage.Sampler."""

    def __init__(self, remote: Remote, names: Names, clock: Clock) -> None:
        self._remote = remote
        self._names = names
        self._clock = clock
        self._last: dict[WorkloadId, UsageSample] = {}

    async def sample(self) -> list[UsageSample]:
        """The remote cluster reports the CPU load; a sample has the CPU time, which is summed up here."""
        now, views = self._clock.monotonic(), await self._remote.workloads()
        self._last = {
            home_id: _sample(home_id, view.usage, self._last.get(home_id), now)
            for view in views
            if (home_id := self._names.local(view.workload_id)) is not None
            and view.HasField("usage")
        }
        return list(self._last.values())


def _sample(
    home_id: WorkloadId, usage: pb.WorkloadUsageSnapshot, last: UsageSample | None, now: float
) -> UsageSample:
    elapsed = now - last.at if last is not None else 0.0
    spent = last.cpu_nanos if last is not None else 0
    return UsageSample(
        workload_id=home_id,
        container_id=home_id,
        at=now,
        cpu_nanos=spent + round(usage.cpu_percent / 100 * elapsed * _NANOS),
        memory_bytes=usage.memory_bytes,
        disk_read_bytes=usage.disk_read_bytes,
        disk_write_bytes=usage.disk_write_bytes,
        net_rx_bytes=usage.net_rx_bytes,
        net_tx_bytes=usage.net_tx_bytes,
    )


class RemoteSessions:
    """Implements agent.access.sessions.SessionService."""

    def __init__(self, remote: Remote, names: Names, journal: Journal) -> None:
        self._remote = remote
        self._names = names
        self._journal = journal
        self._slots = SessionSlots()
        self._forward_slots = forward_slots()

    async def logs(
        self,
        request: agent_pb2.LogsRequest,
        write: Callable[[agent_pb2.LogChunk], Awaitable[None]],
    ) -> None:
        wanted = pb.LogsRequest(
            workload_id=self._remote_id(request.workload_id),
            service=request.service,
            follow=request.follow,
            tail=request.tail,
            previous=request.previous,
            timestamps=request.timestamps,
        )
        if request.since_unix_nanos:
            wanted.since.FromNanoseconds(request.since_unix_nanos)
        with self._slots.taken():
            async with aclosing(self._remote.logs(wanted)) as chunks:
                async for chunk in chunks:
                    await write(
                        agent_pb2.LogChunk(
                            data=chunk.data, stream=chunk.stream, service=chunk.service
                        )
                    )

    async def exec(
        self,
        inputs: AsyncIterator[agent_pb2.ExecInput],
        write: Callable[[agent_pb2.ExecOutput], Awaitable[None]],
    ) -> None:
        first = await first_input(inputs)
        first.start.workload_id = self._remote_id(first.start.workload_id)
        with self._slots.taken():
            sent = _Inputs(first, inputs, pb.ExecInput)
            await _relay(sent, self._remote.exec(sent), agent_pb2.ExecOutput, write)

    async def forward(self, inputs: forwarding.Inputs, write: forwarding.Write) -> None:
        first = await first_input(inputs)
        first.start.workload_id = self._remote_id(first.start.workload_id)
        with self._forward_slots.taken():
            sent = _Inputs(first, inputs, pb.ForwardInput)
            await _relay(sent, self._remote.forward(sent), agent_pb2.ForwardOutput, write)

    async def copy(self, inputs: file_copy.Inputs, write: file_copy.Write) -> None:
        first = await first_input(inputs)
        first.start.workload_id = self._remote_id(first.start.workload_id)
        with self._slots.taken():
            sent = _Inputs(first, inputs, pb.CopyInput)
            await _relay(sent, self._remote.copy(sent), agent_pb2.CopyOutput, write)

    def _remote_id(self, named: str) -> str:
        return self._names.remote(known_workload(self._journal, named))


class _Inputs(Generic[T]):
    """The inputs of a session, for the thread of the remote call, which iterates over them.

    At most WAITING_MAX of them wait, so a slow remote cluster slows the caller.
    """

    def __init__(self, first: Message, inputs: AsyncIterator[Message], kind: type[T]) -> None:
        self._loop = asyncio.get_running_loop()
        self._inputs = inputs
        self._kind = kind
        self._free = asyncio.Semaphore(WAITING_MAX)
        self._queue: SimpleQueue[T | None] = SimpleQueue()
        self._queue.put(converted(first, kind))

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        one = self._queue.get()
        if one is None:
            self._queue.put(None)
            raise StopIteration
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._free.release)
        return one

    async def feed(self) -> None:
        async for one in self._inputs:
            await self._free.acquire()
            self._queue.put(converted(one, self._kind))

    def end(self) -> None:
        self._queue.put(None)


async def _relay(
    sent: "_Inputs[Any]",
    outputs: AsyncGenerator[Message, None],
    kind: type[T],
    write: Callable[[T], Awaitable[None]],
) -> None:
    async with task_group() as group:
        feeding = group.create_task(sent.feed())
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    await write(converted(output, kind))
        finally:
            sent.end()
            feeding.cancel()
