"""Schedules of a running scheduler: when runs start, and what is written meanwhile."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from persys.model.event import EventKind
from persys.model.job import RunState
from shells.scheduler.jobs.calls_of_jobs import JobCalls, a_job
from shells.scheduler.jobs.virtual_cluster import Ending, VirtualCluster, a_virtual_cluster, run

EVERY_TEN = "*/10 * * * *"


def events(cluster: VirtualCluster, kind: EventKind) -> list[str]:
    return [
        numbered.event.message for numbered in cluster.app.events if numbered.event.kind is kind
    ]


def for_ever(_name: str, _index: int) -> Ending:
    return Ending(exit_code=None)


def minutes(jobs: JobCalls) -> list[str]:
    """The hour and minute in the ids of the runs."""
    return [one.run_id[-4:] for one in jobs.runs()]


async def sleep(**span: float) -> None:
    await asyncio.sleep(timedelta(**span).total_seconds())


def test_each_occurrence_starts_one_run_at_its_time() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster() as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron=EVERY_TEN))

            await sleep(minutes=31)

            assert minutes(jobs) == ["0010", "0020", "0030"]
            for one in jobs.runs():
                assert one.scheduled_at is not None
                assert one.started_at - one.scheduled_at < timedelta(seconds=2)
            assert set(cluster.executions.values()) == {1}

    run(scenario)


def test_an_idle_job_writes_nothing_and_is_not_looked_at() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster() as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron="0 0 1 * *"))
            await jobs.apply(a_job("manual"))
            await jobs.started(a_job("other"))
            await sleep(minutes=2)
            before, passes = cluster.store.transactions, cluster.app.job_controller.passes.count

            await sleep(hours=2)

            assert cluster.store.transactions == before
            assert cluster.app.job_controller.passes.count == passes

    run(scenario)


def test_occurrences_while_no_scheduler_runs_are_skipped_but_the_newest() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster() as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron=EVERY_TEN))
            cluster.stop()
            await sleep(minutes=55)

            await cluster.start()
            await cluster.until(lambda: bool(jobs.runs()))

            assert minutes(jobs) == ["0050"]
            skipped = events(cluster, EventKind.JOB_OCCURRENCES_SKIPPED)
            assert skipped == ["4 occurrences of job backup skipped: a later one was due too"]

    run(scenario)


def test_an_occurrence_that_is_too_late_is_not_started() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster() as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron=EVERY_TEN, schedule_start_within_seconds=60))
            cluster.stop()
            await sleep(minutes=12)

            await cluster.start()
            await sleep(minutes=1)

            assert jobs.runs() == []
            assert len(events(cluster, EventKind.JOB_OCCURRENCES_SKIPPED)) == 1

    run(scenario)


def test_nothing_starts_while_the_store_does_not_answer() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster() as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron=EVERY_TEN))
            await sleep(minutes=9)

            cluster.store.down = True
            await sleep(minutes=16)
            assert cluster.executions.total() == 0
            cluster.store.down = False
            await sleep(seconds=30)

            assert minutes(jobs) == ["0020"]
            assert cluster.executions.total() == 1
            skipped = events(cluster, EventKind.JOB_OCCURRENCES_SKIPPED)
            assert skipped == ["1 occurrence of job backup skipped: a later one was due too"]

    run(scenario)


def test_a_clock_that_is_set_ahead_is_noticed_within_a_minute() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster() as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron="0 6 * * *"))
            await sleep(seconds=10)

            cluster.jump(timedelta(hours=6))
            await sleep(seconds=70)

            assert minutes(jobs) == ["0600"]

    run(scenario)


def test_a_clock_that_goes_back_repeats_no_occurrence() -> None:
    """The next leader has another clock."""

    async def scenario() -> None:
        async with a_virtual_cluster() as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron=EVERY_TEN))
            await sleep(minutes=21)
            assert minutes(jobs) == ["0010", "0020"]

            cluster.jump(timedelta(minutes=-15))
            await cluster.kill()
            await sleep(minutes=15)
            assert minutes(jobs) == ["0010", "0020"]

            await sleep(minutes=10)
            assert minutes(jobs) == ["0010", "0020", "0030"]
            assert set(cluster.executions.values()) == {1}

    run(scenario)


def test_forbid_skips_occurrences_while_a_run_is_in_progress() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(for_ever) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron=EVERY_TEN))

            await sleep(minutes=31)

            assert minutes(jobs) == ["0010"]
            skipped = events(cluster, EventKind.JOB_OCCURRENCES_SKIPPED)
            assert len(skipped) == 2
            assert "run backup-203001010010 is in progress" in skipped[0]

    run(scenario)


def test_allow_starts_runs_beside_each_other() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(for_ever) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron=EVERY_TEN, schedule_overlap="allow"))

            await sleep(minutes=31)

            assert {one.state for one in jobs.runs()} == {RunState.RUNNING}
            assert len(cluster.running()) == 3

    run(scenario)


def test_replace_cancels_the_run_in_progress_and_stops_its_members() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(for_ever) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron=EVERY_TEN, schedule_overlap="replace"))

            await sleep(minutes=21)

            first, second = jobs.runs()
            assert first.state is RunState.CANCELLED
            assert first.reason == f"replaced by {second.run_id}"
            assert cluster.running() == [f"{second.run_id}-0"]

    run(scenario)


def test_a_suspended_job_starts_nothing_and_continues_with_the_next_occurrence() -> None:
    async def scenario() -> None:
        async with a_virtual_cluster() as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron=EVERY_TEN))
            assert (await jobs.suspend(suspended=True)).accepted
            await sleep(minutes=25)
            assert jobs.runs() == []
            assert not (await jobs.get()).HasField("next_run_at")

            assert (await jobs.suspend(suspended=False)).accepted
            await sleep(minutes=6)

            assert minutes(jobs) == ["0030"]

    run(scenario)


@pytest.mark.parametrize(
    ("begins_at", "wanted"),
    [
        # 02:00 +01:00 is followed by 03:00 +02:00: 02:30 does not exist.
        (datetime(2030, 3, 31, 0, 30, tzinfo=UTC), ["203003310100"]),
        # 02:59 +02:00 is followed by 02:00 +01:00: the first 02:30 counts.
        (datetime(2030, 10, 27, 0, 5, tzinfo=UTC), ["203010270030"]),
    ],
)
def test_a_daily_job_runs_once_on_both_days_of_a_time_change(
    begins_at: datetime, wanted: list[str]
) -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(begins_at=begins_at) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            await jobs.apply(a_job(cron="30 2 * * *", schedule_timezone="Europe/Berlin"))

            await sleep(hours=2)

            assert [one.run_id.removeprefix("backup-") for one in jobs.runs()] == wanted

    run(scenario)
