"""Logs and exec of workloads in the remote cluster."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path

import pytest

from builders import NOON
from persys.agent.access.sessions import SESSIONS_MAX
from persys.agent.journal.records import Entry, ReportedStatus
from persys.agent.journal.store import Journal
from persys.errors import InvalidError, NotFoundError, RefusedError
from persys.federation.access import RemoteSessions
from persys.federation.mapping import Names
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.spec import ContainerSpec, WorkloadType
from persys.model.status import Actual
from persys.model.workload import Desired, Order
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from unit.federation.in_memory import MemoryCluster


class Echo(MemoryCluster):
    """Its logs are the request; its exec repeats the input."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: list[pb.LogsRequest] = []
        self.open = asyncio.Event()
        self.all_open = asyncio.Event()

    async def logs(self, request: pb.LogsRequest) -> AsyncGenerator[pb.LogChunk, None]:
        self.wanted.append(request)
        if len(self.wanted) == SESSIONS_MAX:
            self.all_open.set()
        yield pb.LogChunk(data=b"line\n", stream="stdout", service="web")
        if request.follow:
            await self.open.wait()

    async def exec(self, inputs: Iterator[pb.ExecInput]) -> AsyncGenerator[pb.ExecOutput, None]:
        first = await asyncio.to_thread(next, inputs)
        yield pb.ExecOutput(stdout=f"{first.start.workload_id} {first.start.console}".encode())
        second = await asyncio.to_thread(next, inputs)
        yield pb.ExecOutput(stdout=second.stdin)
        yield pb.ExecOutput(exit=pb.ExecExit(code=3))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(tmp_path / "state.db", cluster_id="home", node_id=NodeId("far"))
    order = Order(
        workload_id=WorkloadId("web"),
        type=WorkloadType.CONTAINER,
        revision=Revision("r1"),
        epoch=1,
        desired=Desired.RUNNING,
        spec=ContainerSpec("nginx"),
    )
    entry = Entry(
        order=order,
        generation=1,
        action_id="",  # type: ignore[arg-type]  # no action
        created_at=NOON,
        updated_at=NOON,
        status=ReportedStatus(Actual.RUNNING, NOON),
    )
    journal.update(entry)
    yield journal
    journal.close()


async def inputs(*messages: agent_pb2.ExecInput) -> AsyncIterator[agent_pb2.ExecInput]:
    for message in messages:
        yield message


async def test_the_request_for_logs_is_passed_on(journal: Journal) -> None:
    remote, written = Echo(), list[agent_pb2.LogChunk]()

    async def write(chunk: agent_pb2.LogChunk) -> None:
        written.append(chunk)

    sessions = RemoteSessions(remote, Names("home", "east"), journal)
    await sessions.logs(
        agent_pb2.LogsRequest(
            workload_id="web", tail=5, previous=True, service="db", since_unix_nanos=10**9
        ),
        write,
    )

    (wanted,) = remote.wanted
    assert (wanted.workload_id, wanted.tail, wanted.service) == ("home--web", 5, "db")
    assert wanted.previous
    assert wanted.since.seconds == 1
    assert [(chunk.data, chunk.service) for chunk in written] == [(b"line\n", "web")]


@pytest.mark.parametrize("console", [False, True])
async def test_an_exec_session_and_a_console_are_passed_on(journal: Journal, console: bool) -> None:
    written = list[agent_pb2.ExecOutput]()

    async def write(output: agent_pb2.ExecOutput) -> None:
        written.append(output)

    sessions = RemoteSessions(Echo(), Names("home", "east"), journal)
    start = agent_pb2.ExecStart(workload_id="web", console=console)
    await sessions.exec(
        inputs(agent_pb2.ExecInput(start=start), agent_pb2.ExecInput(stdin=b"hello")), write
    )

    assert [output.stdout for output in written[:2]] == [f"home--web {console}".encode(), b"hello"]
    assert written[-1].exit.code == 3


async def test_unknown_workloads_and_sessions_without_a_start_are_refused(journal: Journal) -> None:
    async def write(_message: object) -> None: ...

    sessions = RemoteSessions(Echo(), Names("home", "east"), journal)

    with pytest.raises(NotFoundError):
        await sessions.logs(agent_pb2.LogsRequest(workload_id="other"), write)
    with pytest.raises(InvalidError):
        await sessions.exec(inputs(agent_pb2.ExecInput(stdin=b"x")), write)


async def test_the_number_of_sessions_is_limited(journal: Journal) -> None:
    async def write(_message: object) -> None: ...

    remote = Echo()
    sessions = RemoteSessions(remote, Names("home", "east"), journal)
    follow = agent_pb2.LogsRequest(workload_id="web", follow=True)
    async with asyncio.TaskGroup() as group:
        for _ in range(SESSIONS_MAX):
            group.create_task(sessions.logs(follow, write))
        await remote.all_open.wait()
        with pytest.raises(RefusedError, match="too many sessions"):
            await sessions.logs(follow, write)
        remote.open.set()

    await sessions.logs(follow, write)
