"""The door into workloads: what they write, commands inside them, and the consoles of machines.

How many come in at once is bounded, whichever way they came. A caller that leaves is cancelled, and with it
everything here.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

from persys.agent.consoles import Consoles
from persys.agent.logs import Logs
from persys.agent.past import Past
from persys.agent.runtimes.docker_access import DockerAccess, Part, Session
from persys.agent.state import State
from persys.errors import InvalidError, NotFoundError, RefusedError
from persys.infra.together import together
from persys.model.ids import WorkloadId, workload_id
from persys.model.spec import WorkloadType
from persys.wire.gen.agent.v1 import agent_pb2

VISITORS_MAX = 64
_STDERR = 2
_NO_WAY_IN = "this node has no way into it now"


class Access:
    def __init__(
        self,
        state: State,
        docker: DockerAccess | None,
        past: Past | None,
        consoles: Callable[[], Consoles | None],
        *,
        exec_enabled: bool,
    ) -> None:
        """`consoles` answers None as long as this node has no libvirt."""
        self._state = state
        self._docker = docker
        self._logs = Logs(docker, past) if docker is not None and past is not None else None
        self._consoles = consoles
        self._exec_enabled = exec_enabled
        self._visitors = 0

    async def logs(
        self,
        asked: agent_pb2.LogsRequest,
        write: Callable[[agent_pb2.LogChunk], Awaitable[None]],
    ) -> None:
        if asked.tail < 0:
            raise InvalidError("tail", f"is {asked.tail}; expected 0 for all, or more")
        if asked.previous and asked.follow:
            raise InvalidError("follow", "what is over cannot be followed")
        named = self._known(asked.workload_id)
        logs = self._consoles() if self._is_machine(named) else self._logs
        if logs is None:
            raise RefusedError(_NO_WAY_IN)
        with self._visit():
            await logs.tell(named, asked, write)

    async def exec(
        self,
        inputs: AsyncIterator[agent_pb2.ExecInput],
        write: Callable[[agent_pb2.ExecOutput], Awaitable[None]],
    ) -> None:
        if not self._exec_enabled:
            raise RefusedError("this node does not allow exec (PERSYS_EXEC_ENABLED)")
        first = await anext(inputs, None)
        if first is None or not first.HasField("start"):
            raise InvalidError("start", "is missing; a session begins with it")
        start = first.start
        named = self._known(start.workload_id)
        if self._is_machine(named) or start.console:
            await self._console(named, start, inputs, write)
            return
        if not start.command:
            raise InvalidError("start.command", "is missing")
        if self._docker is None:
            raise RefusedError(_NO_WAY_IN)
        with self._visit():
            part = await self._running_part(self._docker, named, start.service)
            async with self._docker.exec(
                part, list(start.command), tty=start.tty, stdin=True
            ) as session:
                await write(agent_pb2.ExecOutput())
                await self._converse(session, start, inputs, write)
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
            raise RefusedError(f"{named} is no machine and has no console; use persysctl exec")
        if not start.console:
            raise RefusedError(
                f"{named} is a machine, and nobody outside can start a command in it; "
                f"use persysctl console {named}"
            )
        consoles = self._consoles()
        if consoles is None:
            raise RefusedError(_NO_WAY_IN)
        with self._visit():
            await consoles.converse(start, inputs, write)

    async def _converse(
        self,
        session: Session,
        start: agent_pb2.ExecStart,
        inputs: AsyncIterator[agent_pb2.ExecInput],
        write: Callable[[agent_pb2.ExecOutput], Awaitable[None]],
    ) -> None:
        async with together() as group:
            feeding = group.create_task(_feed(session, start, inputs))
            while (read := await session.read()) is not None:
                stream, data = read
                if stream == _STDERR:
                    await write(agent_pb2.ExecOutput(stderr=data))
                else:
                    await write(agent_pb2.ExecOutput(stdout=data))
            feeding.cancel()

    async def _running_part(self, docker: DockerAccess, named: WorkloadId, service: str) -> Part:
        parts = await docker.parts(named)
        services = sorted({part.service for part in parts})
        if service:
            parts = [part for part in parts if part.service == service]
            if not parts:
                raise NotFoundError("service", f"{service}; {named} has {', '.join(services)}")
        elif len(services) > 1:
            raise InvalidError("service", f"is missing; {named} has {', '.join(services)}")
        live = [part for part in parts if part.status == "running"]
        if not live:
            raise RefusedError(f"{service or named} is not running, so nothing can run in it")
        return live[0]

    def _is_machine(self, named: WorkloadId) -> bool:
        return self._state.entries[named].order.type is WorkloadType.VM

    def _known(self, named: str) -> WorkloadId:
        checked = workload_id(named)
        if checked not in self._state.entries:
            raise NotFoundError("workload", named)
        return checked

    @contextmanager
    def _visit(self) -> Iterator[None]:
        if self._visitors >= VISITORS_MAX:
            raise RefusedError(f"this node already serves {VISITORS_MAX} logs and sessions")
        self._visitors += 1
        try:
            yield
        finally:
            self._visitors -= 1


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
