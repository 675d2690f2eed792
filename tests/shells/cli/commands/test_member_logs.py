"""The output of all members of a set, or of a run."""

# ruff: noqa: N802  # the contract names the methods

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc
import pytest

from persys.cli.commands.member_logs import FOLLOWED_MAX
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc
from persys.wire.gen.control.v1.control_pb2 import LogChunk, RunMemberView
from shells.cli.sets_and_jobs import SetsAndJobs, a_job, a_member, a_run, a_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shells.cli.conftest import CliResult, Run


class Scheduler(SetsAndJobs, control_pb2_grpc.AgentControlServicer):
    """Each member writes two lines, the second in two parts."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[control_pb2.LogsRequest] = []
        self.after: Callable[[str], None] = lambda member: None
        self.known: set[str] = set()

    def StreamLogs(self, request, context):  # type: ignore[no-untyped-def]
        self.requests.append(request)
        name = request.workload_id
        if name not in self.known:
            context.abort(grpc.StatusCode.NOT_FOUND, f"workload not found: {name}")
        if name == "web-silent":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "web-silent has not started")
        yield LogChunk(data=b"one\ntw", stream="stdout")
        yield LogChunk(data=b"bad\n", stream="stderr")
        yield LogChunk(data=b"o", stream="stdout")
        self.after(name)


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    server = grpc.server(ThreadPoolExecutor(8))
    fake = Scheduler()
    control_pb2_grpc.add_AgentControlServicer_to_server(fake, server)
    fake.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield fake
    server.stop(None).wait()


@pytest.fixture
def logs(scheduler: Scheduler, run: Run) -> Callable[..., CliResult]:
    def show(*words: str) -> CliResult:
        return run(*words, PERSYS_GRPC_ENDPOINT=scheduler.address)

    return show


def test_the_lines_of_all_members_have_a_prefix(
    scheduler: Scheduler, logs: Callable[..., CliResult]
) -> None:
    scheduler.sets = {"web": a_set()}
    scheduler.known = {"web-0", "web-1"}

    result = logs("logs", "web", "--tail", "5")

    assert result.code == 0
    assert result.out == "web-0 | one\nweb-0 | two\nweb-1 | one\nweb-1 | two\n"
    assert result.err == "web-0 | bad\nweb-1 | bad\n"
    assert {request.tail for request in scheduler.requests} == {5}


def test_a_member_without_output_is_named(
    scheduler: Scheduler, logs: Callable[..., CliResult]
) -> None:
    scheduler.sets = {"web": a_set(members=0)}
    scheduler.sets["web"].members.extend(
        [a_member("web", 0, workload_id="web-silent"), a_member("web", 1)]
    )
    scheduler.known = {"web-1", "web-silent"}

    result = logs("logs", "web")
    scheduler.known = {"web-silent"}
    none = logs("logs", "web")

    assert (result.code, none.code) == (0, 1)
    assert result.err.startswith("web-silent: web-silent has not started\n")
    assert result.out == "web-1 | one\nweb-1 | two\n"


def test_members_that_are_created_later_are_followed(
    scheduler: Scheduler, logs: Callable[..., CliResult]
) -> None:
    scheduler.sets = {"web": a_set(members=1)}
    scheduler.known = {"web-0", "web-1"}

    def grow(member: str) -> None:
        if member == "web-0" and len(scheduler.sets) == 1:
            scheduler.sets["web"].members.append(a_member("web", 1))
            wait_until(lambda: any(one.workload_id == "web-1" for one in scheduler.requests))
        elif member == "web-1":
            scheduler.sets.clear()  # the set is deleted, which ends the command

    scheduler.after = grow

    result = logs("logs", "web", "--follow")

    assert result.code == 0
    lines = result.out.splitlines()
    assert {"web-0 | one", "web-0 | two", "web-1 | one", "web-1 | two"} <= set(lines)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_too_many_members_are_not_followed(
    scheduler: Scheduler, logs: Callable[..., CliResult]
) -> None:
    scheduler.sets = {"web": a_set(members=FOLLOWED_MAX + 1)}

    result = logs("logs", "web", "-f")

    assert result.code == 2
    assert "choose one, for example web-0" in result.err


def with_runs(completions: int) -> control_pb2.JobView:
    members = [RunMemberView(workload_id="backup-2-0"), RunMemberView(workload_id="backup-2-1")]
    old = [RunMemberView(workload_id="backup-1-0")]
    job = a_job(
        "backup", a_run("backup-2", members=members[:completions]), a_run("backup-1", members=old)
    )
    job.spec.completions = completions
    return job


def test_the_output_of_the_newest_run_is_shown(
    scheduler: Scheduler, logs: Callable[..., CliResult]
) -> None:
    scheduler.known = {"backup-1-0", "backup-2-0", "backup-2-1"}
    scheduler.jobs = {"backup": with_runs(2)}
    several = logs("job", "logs", "backup")
    by_name = logs("logs", "backup")
    scheduler.jobs = {"backup": with_runs(1)}
    single = logs("job", "logs", "backup", "-f")
    older = logs("job", "logs", "backup", "backup-1")

    assert several.out == (
        "backup-2-0 | one\nbackup-2-0 | two\nbackup-2-1 | one\nbackup-2-1 | two\n"
    )
    assert by_name.out == several.out
    assert single.out == "one\ntwo\n"
    assert scheduler.requests[-1].workload_id == "backup-1-0"
    assert older.out == "one\ntwo\n"


def test_a_job_without_runs_and_an_unknown_run_are_explained(
    scheduler: Scheduler, logs: Callable[..., CliResult]
) -> None:
    scheduler.jobs = {"backup": a_job()}
    none = logs("job", "logs", "backup")
    scheduler.jobs = {"backup": with_runs(1)}
    unknown = logs("job", "logs", "backup", "backup-9")

    assert "job backup has no runs; start one with `persysctl job run backup`" in none.err
    assert "run not found: backup-9" in unknown.err
