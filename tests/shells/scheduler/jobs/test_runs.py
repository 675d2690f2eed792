"""Runs of jobs: parallelism, retries, failures, deadlines, cancellation and lost nodes."""

import asyncio

import pytest

from persys.model.job import RunState
from persys.model.placement import Resources
from persys.model.workload import Desired
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.jobs.calls_of_jobs import JobCalls, a_job
from shells.scheduler.jobs.virtual_cluster import Ending, a_virtual_cluster, run

LOST_SECONDS = 120  # by then a silent node is lost


def for_ever(_name: str, _index: int) -> Ending:
    return Ending(exit_code=None)


def test_a_run_executes_each_index_once_and_never_more_than_parallelism_at_a_time() -> None:
    async def scenario() -> None:
        most = 0

        def script(_name: str, _index: int) -> Ending:
            nonlocal most
            most = max(most, len(cluster.running()))
            return Ending(seconds=5)

        async with a_virtual_cluster(script) as cluster:
            await cluster.join("n1")
            await cluster.join("n2")
            jobs = JobCalls(cluster)

            run_id = await jobs.started(a_job(completions=20, parallelism=4))
            ended = await jobs.until_ended(run_id)

            assert ended.state is RunState.SUCCEEDED
            assert ended.succeeded == ((0, 19),)
            assert set(cluster.executions) == {f"{run_id}-{number}" for number in range(20)}
            assert set(cluster.executions.values()) == {1}
            assert 2 <= most <= 4

    run(scenario)


def test_finished_members_hold_no_capacity() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster() as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)

            run_id = await jobs.started(a_job(completions=3, parallelism=3))
            await jobs.until_ended(run_id)

            entries = cluster.app.cluster.workloads.values()
            assert len(entries) == 3
            assert {one.assignment.reserved for one in entries if one.assignment} <= {Resources()}

    run(scenario)


def test_a_failed_attempt_is_retried_with_a_new_member_until_it_succeeds() -> None:
    async def scenario() -> None:
        def script(_name: str, _index: int) -> Ending:
            return Ending(exit_code=0 if len(cluster.executions) == 3 else 1)

        async with a_virtual_cluster(script) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)

            run_id = await jobs.started(a_job(retries=2))
            ended = await jobs.until_ended(run_id)

            assert ended.state is RunState.SUCCEEDED
            assert sorted(cluster.executions) == [f"{run_id}-{number}" for number in range(3)]
            await cluster.until(lambda: len(cluster.app.cluster.workloads) == 1)
            assert [*cluster.app.cluster.workloads] == [f"{run_id}-2"]

    run(scenario)


@pytest.mark.parametrize("retries", [0, 2])
def test_a_run_fails_after_its_last_attempt(retries: int) -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(lambda _name, _index: Ending(exit_code=3)) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)

            run_id = await jobs.started(a_job(retries=retries))
            ended = await jobs.until_ended(run_id)
            await asyncio.sleep(3600)

            assert ended.state is RunState.FAILED
            assert "exited with code 3" in ended.reason
            assert cluster.executions.total() == retries + 1
            assert set(cluster.executions.values()) == {1}

    run(scenario)


def test_an_exit_code_of_fail_on_ends_the_run_at_once_and_stops_the_others() -> None:
    async def scenario() -> None:
        def script(_name: str, index: int) -> Ending:
            return Ending(seconds=10, exit_code=7) if index == 1 else Ending(exit_code=None)

        async with a_virtual_cluster(script) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)

            spec = a_job(completions=5, parallelism=3, retries=9, fail_on=[7])
            run_id = await jobs.started(spec)
            ended = await jobs.until_ended(run_id)
            await cluster.until(lambda: cluster.running() == [])

            assert ended.state is RunState.FAILED
            assert ended.reason == "index 1 exited with 7, which is in fail_on"
            assert len(cluster.executions) == 3

    run(scenario)


def test_a_deadline_fails_the_run_and_stops_its_members() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(for_ever) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)

            run_id = await jobs.started(a_job(completions=2, parallelism=2, deadline_seconds=90))
            ended = await jobs.until_ended(run_id)
            await cluster.until(lambda: cluster.running() == [])

            assert ended.state is RunState.FAILED
            assert ended.ended_at is not None
            assert 90 <= (ended.ended_at - ended.started_at).total_seconds() < 92

    run(scenario)


def test_a_cancelled_run_stops_its_members_and_keeps_their_records() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(for_ever) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            run_id = await jobs.started(a_job(completions=9, parallelism=3))
            await cluster.until(lambda: len(cluster.running()) == 3)

            assert (await jobs.cancel(run_id)).accepted
            await cluster.until(lambda: cluster.running() == [])
            await asyncio.sleep(600)

            (ended,) = jobs.runs()
            assert ended.state is RunState.CANCELLED
            assert len(cluster.app.cluster.workloads) == 3
            again = await jobs.cancel(run_id)
            assert (again.accepted, again.reason) == (False, f"run {run_id} has ended: Cancelled")

    run(scenario)


def test_without_retries_a_lost_node_fails_the_run_and_nothing_runs_twice() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(for_ever) as cluster:
            node = await cluster.join("n1")
            jobs = JobCalls(cluster)
            run_id = await jobs.started(a_job())
            await cluster.until(lambda: cluster.running() != [])
            await cluster.join("n2")

            node.powered = False
            ended = await jobs.until_ended(run_id, within=LOST_SECONDS)
            await asyncio.sleep(600)

            assert ended.state is RunState.FAILED
            assert ended.reason == "node n1 is lost"
            assert cluster.executions.total() == 1
            node.powered = True
            await cluster.until(lambda: node.running() == [])
            assert cluster.executions.total() == 1

    run(scenario)


def test_with_retries_the_attempt_of_a_lost_node_is_replaced_and_the_old_one_removed() -> None:
    async def scenario() -> None:
        def script(name: str, _index: int) -> Ending:
            return Ending(exit_code=None) if name.endswith("-0") else Ending()

        async with a_virtual_cluster(script) as cluster:
            node = await cluster.join("n1")
            jobs = JobCalls(cluster)
            run_id = await jobs.started(a_job(retries=2))
            await cluster.until(lambda: cluster.running() != [])
            await cluster.join("n2")

            node.powered = False
            ended = await jobs.until_ended(run_id, within=LOST_SECONDS)

            assert ended.state is RunState.SUCCEEDED
            assert cluster.executions == {f"{run_id}-0": 1, f"{run_id}-1": 1}
            node.powered = True
            await cluster.until(lambda: node.containers == {})

    run(scenario)


def test_a_node_that_returns_in_time_continues_its_attempt() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(lambda _name, _index: Ending(seconds=100)) as cluster:
            node = await cluster.join("n1")
            await cluster.join("n2")
            jobs = JobCalls(cluster)
            run_id = await jobs.started(a_job(retries=2))
            await cluster.until(lambda: cluster.running() != [])

            node.powered = False
            await asyncio.sleep(35)
            node.powered = True
            ended = await jobs.until_ended(run_id)

            assert ended.state is RunState.SUCCEEDED
            assert cluster.executions.total() == 1

    run(scenario)


def test_finished_runs_beyond_keep_are_deleted_with_their_members() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster() as cluster:
            node = await cluster.join()
            jobs = JobCalls(cluster)
            spec = a_job(completions=3, parallelism=3, keep=2)

            ids = []
            for _ in range(4):
                ids.append(await jobs.started(spec))
                await jobs.until_ended(ids[-1])
                await asyncio.sleep(5)
            await cluster.until(lambda: len(jobs.runs()) == 2)

            assert [one.run_id for one in jobs.runs()] == ids[-2:]
            assert len(cluster.app.cluster.workloads) == 6
            await cluster.until(lambda: len(node.containers) == 6)

    run(scenario)


def test_a_deleted_job_cancels_its_runs_and_leaves_nothing() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(for_ever) as cluster:
            node = await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.started(a_job(completions=3, parallelism=3))
            await jobs.run()
            await cluster.until(lambda: len(cluster.running()) == 6)

            assert (await jobs.delete()).accepted
            await cluster.until(lambda: not cluster.app.cluster.jobs)

            assert jobs.runs() == []
            assert cluster.app.cluster.workloads == {}
            await cluster.until(lambda: node.containers == {})

    run(scenario)


def test_a_run_on_request_starts_beside_another_and_tells_so() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(for_ever) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            first = await jobs.started(a_job(cron="0 * * * *"))

            answer = await jobs.run()

            assert answer.accepted
            assert answer.run_id != first
            assert answer.reason == f"run {first} is in progress too"

    run(scenario)


def test_a_member_is_changed_only_by_its_run() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(for_ever) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            run_id = await jobs.started(a_job())
            await cluster.until(lambda: cluster.running() != [])
            name = f"{run_id}-0"

            answers = [
                await cluster.call("DeleteWorkload", _named("DeleteWorkloadRequest", name)),
                await cluster.call("RetryWorkload", _named("RetryWorkloadRequest", name)),
                await cluster.call("RedeployWorkload", _named("RedeployWorkloadRequest", name)),
            ]

            for answer in answers:
                assert "is a member of run" in str(answer)
            entry = cluster.app.cluster.workloads[name]  # type: ignore[index]
            assert entry.workload.desired is Desired.RUNNING

    run(scenario)


def _named(message: str, name: str) -> object:
    return getattr(pb, message)(workload_id=name)
