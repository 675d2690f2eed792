"""Serves logs, exec and files of containers and stacks, serial consoles of VMs, and connections to ports.

The number of concurrent sessions is limited, for direct calls and for calls over the control stream together.
When a caller disconnects, its session is cancelled.
"""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from persys.agent.access import file_copy
from persys.agent.access import forward as forwarding
from persys.agent.access.console import ConsoleService
from persys.agent.access.logs import Logs, PreviousLogs
from persys.agent.journal.store import Journal
from persys.agent.runtimes.docker.archive import ContainerFiles
from persys.agent.runtimes.docker.exec_logs import ContainerPart, DockerAccess, Session
from persys.errors import InvalidError, NotFoundError, RefusedError
from persys.infra.aio.task_group import task_group
from persys.model.ids import WorkloadId, workload_id
from persys.model.spec import WorkloadType
from persys.wire.gen.agent.v1 import agent_pb2

SESSIONS_MAX = 64
FORWARDED_MAX = 256
_STDERR = 2
_NO_ACCESS = "logs and exec are not available: this node is not connected to its runtime now"


Input = TypeVar("Input", agent_pb2.ExecInput, agent_pb2.ForwardInput, agent_pb2.CopyInput)


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

    async def forward(self, inputs: forwarding.Inputs, write: forwarding.Write) -> None: ...

    async def copy(self, inputs: file_copy.Inputs, write: file_copy.Write) -> None: ...


class SessionSlots:
    """Limits the sessions that a node serves at the same time."""

    def __init__(self, most: int = SESSIONS_MAX, what: str = "log, exec and copy sessions") -> None:
        self._most = most
        self._what = what
        self._count = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        if self._count >= self._most:
            raise RefusedError(
                f"too many sessions: this node serves at most {self._most} {self._what}"
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


def forward_slots() -> SessionSlots:
    return SessionSlots(FORWARDED_MAX, "forwarded connections")


async def first_input(inputs: AsyncIterator[Input]) -> Input:
    """The message that opens a session."""
    first = await anext(inputs, None)
    if first is None or not first.HasField("start"):
        raise InvalidError("start", "is missing: expected in the first message of a session")
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
        self._forward_slots = forward_slots()

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
        self._need_enabled("exec")
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
            parts = await self._parts(self._docker, named, start.service)
            part = _running(parts, named, start.service, what="exec in")
            async with self._docker.exec(
                part, list(start.command), tty=start.tty, stdin=True
            ) as session:
                await write(agent_pb2.ExecOutput())
                await self._relay(session, start, inputs, write)
                code = await session.exit_code()
            await write(agent_pb2.ExecOutput(exit=agent_pb2.ExecExit(code=code)))

    async def forward(self, inputs: forwarding.Inputs, write: forwarding.Write) -> None:
        """One connection. The container is looked up for each, so that the next one finds a new container."""
        self._need_enabled("port forwarding")
        start = (await first_input(inputs)).start
        named = known_workload(self._journal, start.workload_id)
        forwarding.check_port(start.port)
        with self._forward_slots.taken():
            opened = await self._dial(named, start)
            await forwarding.relay(opened, inputs, write)

    async def _dial(self, named: WorkloadId, start: agent_pb2.ForwardStart) -> socket.socket:
        if self._is_machine(named):
            if start.service:
                raise InvalidError("start.service", "is not supported: a VM has no services")
            consoles = self._consoles()
            if consoles is None:
                raise RefusedError(_NO_ACCESS)
            addresses = await consoles.addresses(named)
            return await forwarding.dial_machine(addresses, named, start.port)
        if self._docker is None:
            raise RefusedError(_NO_ACCESS)
        parts = await self._parts(self._docker, named, start.service)
        part = _running(parts, named, start.service, what="connect to")
        return await forwarding.dial_container(part, start.service or named, start.port)

    async def copy(self, inputs: file_copy.Inputs, write: file_copy.Write) -> None:
        self._need_enabled("copying files")
        start = (await first_input(inputs)).start
        named = known_workload(self._journal, start.workload_id)
        file_copy.check_path(start.path)
        if self._is_machine(named):
            raise RefusedError(
                f"workload {named} is a VM: copy files with scp through a forwarded port, for example "
                f"`persysctl port-forward {named} 2222:22` and `scp -P 2222 FILE USER@127.0.0.1:`"
            )
        if self._docker is None:
            raise RefusedError(_NO_ACCESS)
        with self._slots.taken():
            parts = await self._parts(self._docker, named, start.service)
            if not parts:
                raise NotFoundError("container", named)
            part = next((one for one in parts if one.status == "running"), parts[0])
            contents = ContainerFiles(self._docker.engine)
            if start.upload:
                await file_copy.upload(contents, part, start.path, inputs, write)
            else:
                await file_copy.download(contents, part, start.path, write)

    def _need_enabled(self, what: str) -> None:
        if not self._exec_enabled:
            raise RefusedError(f"this node does not allow {what} (PERSYS_EXEC_ENABLED)")

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

    async def _parts(
        self, docker: DockerAccess, named: WorkloadId, service: str
    ) -> list[ContainerPart]:
        """The containers of the service, or of the workload if it has one service."""
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
        return parts

    def _is_machine(self, named: WorkloadId) -> bool:
        return self._journal.entries[named].order.type is WorkloadType.VM


def _running(
    parts: list[ContainerPart], named: WorkloadId, service: str, *, what: str
) -> ContainerPart:
    live = [part for part in parts if part.status == "running"]
    if not live:
        raise RefusedError(f"cannot {what} {service or named}: it is not running")
    return live[0]


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
