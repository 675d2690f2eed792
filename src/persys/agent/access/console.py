"""Serial consoles of VMs: console logs and interactive console sessions."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

from persys.agent.journal.store import Journal
from persys.agent.runtimes.vm.console import Console, VmAccess
from persys.errors import InvalidError, RefusedError
from persys.infra.aio.task_group import task_group
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.status import Actual
from persys.wire.gen.agent.v1 import agent_pb2

# A VM that is down for longer is not just restarting.
DOWN_SECONDS = 3.0
_DOWN = (Actual.STOPPED, Actual.FAILED)

Inputs = AsyncIterator[agent_pb2.ExecInput]
WriteLog = Callable[[agent_pb2.LogChunk], Awaitable[None]]
WriteOutput = Callable[[agent_pb2.ExecOutput], Awaitable[None]]


class ConsoleService:
    def __init__(self, journal: Journal, access: VmAccess, clock: Clock) -> None:
        self._journal = journal
        self._access = access
        self._clock = clock
        self.addresses = access.addresses

    async def write(
        self, workload_id: WorkloadId, request: agent_pb2.LogsRequest, write: WriteLog
    ) -> None:
        _check(request)
        pieces = self._access.log(
            workload_id, tail=request.tail, follow=request.follow, over=self._is_over(workload_id)
        )
        async with aclosing(pieces):
            async for piece in pieces:
                await write(agent_pb2.LogChunk(data=piece, stream="stdout"))

    async def attach(self, start: agent_pb2.ExecStart, inputs: Inputs, write: WriteOutput) -> None:
        """Relay a console session until the VM stops or the caller disconnects."""
        if start.command:
            raise InvalidError(
                "start.command", "is not supported for a console; use persysctl exec for containers"
            )
        workload_id = WorkloadId(start.workload_id)
        async with self._access.console(workload_id, force=start.force) as console:
            await write(agent_pb2.ExecOutput())
            async with task_group() as group:
                tasks = [
                    group.create_task(_feed(console, inputs)),
                    group.create_task(console.watch()),
                ]
                while (data := await console.read()) is not None:
                    await write(agent_pb2.ExecOutput(stdout=data))
                for task in tasks:
                    task.cancel()
            if console.why_ended:
                raise RefusedError(console.why_ended)
        await write(agent_pb2.ExecOutput(exit=agent_pb2.ExecExit(code=0)))

    def _is_over(self, workload_id: WorkloadId) -> Callable[[], bool]:
        """A predicate: the workload is deleted, or the VM has been down for DOWN_SECONDS."""
        up_at = self._clock.monotonic()

        def is_over() -> bool:
            nonlocal up_at
            entry = self._journal.entries.get(workload_id)
            if entry is None:
                return True
            now = self._clock.monotonic()
            if entry.status.actual not in _DOWN:
                up_at = now
            return now - up_at > DOWN_SECONDS

        return is_over


def _check(request: agent_pb2.LogsRequest) -> None:
    if request.service:
        raise InvalidError("service", "is not supported: a VM has no services")
    if request.previous:
        text = "is not supported for a VM: its console log contains all runs"
        raise InvalidError("previous", text)
    if request.since_unix_nanos or request.timestamps:
        field = "since" if request.since_unix_nanos else "timestamps"
        raise InvalidError(
            field, "is not supported for a VM: its console log has no timestamps; use tail"
        )


async def _feed(console: Console, inputs: Inputs) -> None:
    """Send the caller's input to the console; the end of the call ends the session."""
    async for one in inputs:
        if one.stdin:
            await console.write(one.stdin)
    await console.end()
