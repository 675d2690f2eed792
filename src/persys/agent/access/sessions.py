"""Serves logs and exec of containers and stacks, and the serial consoles of VMs.

The number of concurrent sessions is limited, for direct calls and for calls over the control stream together.
When a caller disconnects, its session is cancelled.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from persys.agent.access.console import ConsoleService
from persys.agent.access.logs import Logs, PreviousLogs
from persys.agent.journal.store import Journal
from persys.agent.runtimes.docker.exec_logs import ContainerPart, DockerAccess, Session
from persys.errors import InvalidError, NotFoundError, RefusedError
from persys.infra.aio.task_group import task_group
from persys.model.ids import WorkloadId, workload_id
from persys.model.spec import WorkloadType
from persys.wire.gen.agent.v1 import agent_pb2

SESSIONS_MAX = 64
_STDERR = 2
_NO_ACCESS = "logs and exec are not available: this node is not connected to its runtime now"


class SessionService(Protocol):
    """Logs and exec, as the API of the agent serves them."""

    async def logs(
        self,
        request: agent_pb2.LogsRequest,
        write: Callable[[agent_pb2.LogChunk], Awaitable[None]],
    ) -> None: ...

    async def exec(
        self,
        inputs: AsyncIterator[agent_pb2.ExecInput],
        write: Callable[[agent_pb2.ExecOutput], Awaitable[None]],
    ) -> None: ...


class SessionSlots:
    """Limits the sessions that a node serves at the same time."""

    def __init__(self) -> None:
        self._count = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        if self._count >= SESSIONS_MAX:
            raise RefusedError(
                f"too many sessions: this node serves at most {SESSIONS_MAX} log and exec sessions"
            )
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


def known_workload(journal: Journal, named: str) -> WorkloadId:
    checked = workload_id(named)
    if checked not in journal.entries:
        raise NotFoundError("workload", named)
    return checked


async def first_input(inputs: AsyncIterator[agent_pb2.ExecInput]) -> agent_pb2.ExecInput:
    """The message that opens an exec session."""
    first = await anext(inputs, None)
    if first is None or not first.HasField("start"):
        raise InvalidError("start", "is missing: expected as the first message of an exec session")
    return first


class Sessions:
    def __init__(
        self,
        journal: Journal,
        docker: DockerAccess | None,
        previous_logs: PreviousLogs | None,
        consoles: Callable[[], ConsoleService | None],
        *,
        exec_enabled: bool,
    ) -> None:
        """`consoles` returns None while this node has no libvirt."""
        self._journal = journal
        self._docker = docker
        self._logs = (
            Logs(docker, previous_logs)
            if docker is not None and previous_logs is not None
            else None
        )
        self._consoles = consoles
        self._exec_enabled = exec_enabled
        self._slots = SessionSlots()

    async def logs(
        self,
        request: agent_pb2.LogsRequest,
        write: Callable[[agent_pb2.LogChunk], Awaitable[None]],
    ) -> None:
        if request.tail < 0:
            raise InvalidError(
                "tail", f"invalid value {request.tail}: expected 0 (all lines) or a positive number"
            )
        if request.previous and request.follow:
            raise InvalidError(
                "follow", "cannot be combined with previous: the log of an ended run does not grow"
            )
        named = known_workload(self._journal, request.workload_id)
        logs = self._consoles() if self._is_machine(named) else self._logs
        if logs is None:
            raise RefusedError(_NO_ACCESS)
        with self._slots.taken():
            await logs.write(named, request, write)

    async def exec(
        self,
        inputs: AsyncIterator[agent_pb2.ExecInput],
        write: Callable[[agent_pb2.ExecOutput], Awaitable[None]],
    ) -> None:
        if not self._exec_enabled:
            raise RefusedError("this node does not allow exec (PERSYS_EXEC_ENABLED)")
        start = (await first_input(inputs)).start
        named = known_workload(self._journal, start.workload_id)
        if self._is_machine(named) or start.console:
            await self._console(named, start, inputs, write)
            return
        if not start.command:
            raise InvalidError("start.command", "is missing: expected the command to run")
        if self._docker is None:
            raise RefusedError(_NO_ACCESS)
        with self._slots.taken():
            part = await self._running_part(self._docker, named, start.service)
            async with self._docker.exec(
                part, list(start.command), tty=start.tty, stdin=True
            ) as session:
                await write(agent_pb2.ExecOutput())
                await self._relay(session, start, inputs, write)
                code = await session.exit_code()
            await write(agent_pb2.ExecOutput(exit=agent_pb2.ExecExit(code=code)))

    async def _console(
        self,
        named: WorkloadId,
        start: agent_pb2.ExecStart,
        inputs: AsyncIterator[agent_pb2.ExecInput],
        write: Callable[[agent_pb2.ExecOutput], Awaitable[None]],
    ) -> None:
        if not self._is_machine(named):
            raise RefusedError(
                f"workload {named} is not a VM and has no console; use persysctl exec"
            )
        if not start.console:
            raise RefusedError(
                f"workload {named} is a VM and does not support exec; use persysctl console {named}"
            )
        consoles = self._consoles()
        if consoles is None:
            raise RefusedError(_NO_ACCESS)
        with self._slots.taken():
            await consoles.attach(start, inputs, write)

    async def _relay(
        self,
        session: Session,
        start: agent_pb2.ExecStart,
        inputs: AsyncIterator[agent_pb2.ExecInput],
        write: Callable[[agent_pb2.ExecOutput], Awaitable[None]],
    ) -> None:
        async with task_group() as group:
            input_task = group.create_task(_feed(session, start, inputs))
            while (read := await session.read()) is not None:
                stream, data = read
                if stream == _STDERR:
                    await write(agent_pb2.ExecOutput(stderr=data))
                else:
                    await write(agent_pb2.ExecOutput(stdout=data))
            input_task.cancel()

    async def _running_part(
        self, docker: DockerAccess, named: WorkloadId, service: str
    ) -> ContainerPart:
        parts = await docker.parts(named)
        services = sorted({part.service for part in parts})
        if service:
            parts = [part for part in parts if part.service == service]
            if not parts:
                raise NotFoundError(
                    "service", f"{service}; workload {named} has the services {', '.join(services)}"
                )
        elif len(services) > 1:
            raise InvalidError(
                "service", f"is missing: workload {named} has the services {', '.join(services)}"
            )
        live = [part for part in parts if part.status == "running"]
        if not live:
            raise RefusedError(f"cannot exec in {service or named}: it is not running")
        return live[0]

    def _is_machine(self, named: WorkloadId) -> bool:
        return self._journal.entries[named].order.type is WorkloadType.VM


async def _feed(
    session: Session,
    start: agent_pb2.ExecStart,
    inputs: AsyncIterator[agent_pb2.ExecInput],
) -> None:
    if start.HasField("size"):
        await session.resize(start.size.rows, start.size.columns)
    async for one in inputs:
        if one.stdin:
            await session.write(one.stdin)
        if one.HasField("resize"):
            await session.resize(one.resize.rows, one.resize.columns)
        if one.stdin_closed:
            session.end_input()
