"""Logs, exec and usage of workloads in the remote cluster."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, suppress
from queue import SimpleQueue

from persys.agent.access.sessions import SessionSlots, first_input, known_workload
from persys.agent.journal.store import Journal
from persys.core.agent.report import UsageSample
from persys.federation.mapping import Names
from persys.federation.ports import Remote
from persys.infra.aio.task_group import task_group
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb

_NANOS = 10**9


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
        queue: SimpleQueue[pb.ExecInput | None] = SimpleQueue()
        queue.put(_input(first))
        with self._slots.taken():
            async with task_group() as group:
                feeding = group.create_task(_feed(inputs, queue))
                try:
                    async with aclosing(self._remote.exec(_until_none(queue))) as outputs:
                        async for output in outputs:
                            await write(agent_pb2.ExecOutput.FromString(output.SerializeToString()))
                finally:
                    queue.put(None)
                    feeding.cancel()

    def _remote_id(self, named: str) -> str:
        return self._names.remote(known_workload(self._journal, named))


def _input(message: agent_pb2.ExecInput) -> pb.ExecInput:
    """Both contracts have the same fields in this message."""
    return pb.ExecInput.FromString(message.SerializeToString())


async def _feed(
    inputs: AsyncIterator[agent_pb2.ExecInput], queue: "SimpleQueue[pb.ExecInput | None]"
) -> None:
    with suppress(asyncio.CancelledError):
        async for one in inputs:
            queue.put(_input(one))


def _until_none(queue: "SimpleQueue[pb.ExecInput | None]") -> Iterator[pb.ExecInput]:
    while (one := queue.get()) is not None:
        yield one
