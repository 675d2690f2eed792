"""Jobs after a restore of a snapshot: no occurrence and no attempt is repeated."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

from persys.model.event import EventKind
from persys.model.job import RunState
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.jobs.calls_of_jobs import JobCalls, a_job
from shells.scheduler.jobs.virtual_cluster import (
    Ending,
    KillingStore,
    VirtualCluster,
    a_virtual_cluster,
    run,
)


async def snapshot(cluster: VirtualCluster) -> list[bytes]:
    chunks = await cluster.stream("SaveSnapshot", pb.SaveSnapshotRequest())
    return [chunk.data for chunk in chunks]


async def restore(cluster: VirtualCluster, chunks: list[bytes]) -> pb.RecoveryAnswer:
    """Replace the store by an empty one, start a scheduler on it, and restore the snapshot."""
    cluster.stop()
    await asyncio.sleep(1)
    cluster.store = KillingStore()
    await cluster.start()

    async def requests() -> AsyncIterator[pb.SnapshotChunk]:
        for chunk in chunks:
            yield pb.SnapshotChunk(data=chunk)

    await asyncio.sleep(30)  # nodes register
    answer: pb.RecoveryAnswer = await cluster.call("RestoreSnapshot", requests())
    assert answer is not None
    return answer


def test_occurrences_between_the_snapshot_and_its_restore_are_not_repeated() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster() as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron="*/10 * * * *"))
            await asyncio.sleep(15 * 60)
            taken = await snapshot(cluster)
            await asyncio.sleep(20 * 60)
            executed = dict(cluster.executions)
            assert len(executed) == 3

            await restore(cluster, taken)
            await asyncio.sleep(60)

            assert dict(cluster.executions) == executed
            skipped = [
                one.event.message
                for one in cluster.app.events
                if one.event.kind is EventKind.JOB_OCCURRENCES_SKIPPED
            ]
            assert skipped == [
                "2 occurrences of job backup skipped: the cluster was recovered; they may have run"
            ]
            await asyncio.sleep(10 * 60)
            assert [one.run_id[-4:] for one in jobs.runs()] == ["0010", "0040"]

    run(scenario)


def test_a_run_that_was_in_progress_in_the_snapshot_gets_no_new_attempts() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(lambda _name, _index: Ending(seconds=20)) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            run_id = await jobs.started(a_job(completions=9, parallelism=2, retries=3))
            await asyncio.sleep(30)
            taken = await snapshot(cluster)
            await asyncio.sleep(25)  # the run continues
            executed = dict(cluster.executions)
            assert len(executed) > 4

            await restore(cluster, taken)
            ended = await jobs.until_ended(run_id)
            await asyncio.sleep(600)

            assert dict(cluster.executions) == executed
            assert ended.state is RunState.FAILED
            assert "interrupted by a recovery of the cluster" in ended.reason

    run(scenario)


def test_an_attempt_that_still_runs_is_judged_by_the_report_of_its_node() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(lambda _name, _index: Ending(seconds=300)) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            run_id = await jobs.started(a_job())
            await asyncio.sleep(30)
            taken = await snapshot(cluster)

            await restore(cluster, taken)
            ended = await jobs.until_ended(run_id)

            assert ended.state is RunState.SUCCEEDED
            assert cluster.executions.total() == 1

    run(scenario)


def test_a_new_occurrence_after_the_restore_starts() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster() as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron="*/10 * * * *"))
            taken = await snapshot(cluster)

            await restore(cluster, taken)
            await cluster.sleep_until(
                cluster.now.replace(minute=0, second=0) + timedelta(minutes=11)
            )

            assert [one.run_id[-4:] for one in jobs.runs()] == ["0010"]
            assert cluster.executions.total() == 1

    run(scenario)


def test_a_member_that_no_node_has_any_more_is_not_executed_again() -> None:
    """The run ended and was deleted after the snapshot."""

    async def scenario() -> None:
        async with a_virtual_cluster(lambda _name, _index: Ending(seconds=20)) as cluster:
            node = await cluster.join()
            jobs = JobCalls(cluster)
            run_id = await jobs.started(a_job(retries=3))
            await asyncio.sleep(5)
            taken = await snapshot(cluster)
            await jobs.until_ended(run_id)
            await jobs.delete()
            await cluster.until(lambda: node.containers == {})

            answer = await restore(cluster, taken)
            ended = await jobs.until_ended(run_id)
            await asyncio.sleep(600)

            assert cluster.executions.total() == 1
            assert ended.state is RunState.FAILED
            assert any(
                f"run {run_id}: 1 members that no node reports" in one for one in answer.left_out
            )

    run(scenario)
