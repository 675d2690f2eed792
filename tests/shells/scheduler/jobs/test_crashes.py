"""A leader that is killed at any commit about a job: before it is stored, and after it.

The same scenario runs once per step. No occurrence starts two runs, no attempt is executed twice, no index
has more attempts than allowed, and every run ends.
"""

import asyncio
from collections import Counter

import pytest

from persys.core.jobs import indexes
from persys.model.job import RunState
from shells.scheduler.jobs.calls_of_jobs import JobCalls, a_job
from shells.scheduler.jobs.virtual_cluster import Ending, VirtualCluster, a_virtual_cluster, run

STEPS_MAX = 400


def fails_at_first(name: str, index: int) -> Ending:
    """The first attempt of index 1 fails, all others succeed."""
    number = int(name.rpartition("-")[2])
    return Ending(seconds=2, exit_code=1 if number == index == 1 else 0)


async def two_occurrences(cluster: VirtualCluster) -> JobCalls:
    """Two scheduled runs with a retry each. The first one is deleted after the second."""
    await cluster.join("n1")
    jobs = JobCalls(cluster)
    spec = a_job(cron="* * * * *", completions=3, parallelism=2, retries=1, keep=1)
    await jobs.apply(spec)
    for minute in (1, 2):
        await cluster.until(lambda minute=minute: has_ended(cluster, jobs, minute))  # type: ignore[misc]
    assert (await jobs.suspend(suspended=True)).accepted
    await cluster.until(lambda: len(jobs.runs()) == 1)
    return jobs


def has_ended(cluster: VirtualCluster, jobs: JobCalls, minute: int) -> bool:
    """Whether the run of this minute has ended."""
    ended = [one.run_id for one in jobs.runs() if one.state is not RunState.RUNNING]
    return cluster.api is not None and f"backup-2030010100{minute:02}" in ended


def scenario_steps() -> int:
    """How many steps the scenario has."""
    found = 0

    async def scenario() -> None:
        nonlocal found
        async with a_virtual_cluster(fails_at_first) as cluster:
            await two_occurrences(cluster)
            found = cluster.store.steps

    run(scenario)
    return found


def check(cluster: VirtualCluster, jobs: JobCalls) -> None:
    assert set(cluster.executions.values()) <= {1}, "an attempt is executed once"
    ids = {name.rpartition("-")[0] for name in cluster.executions}
    assert ids == {"backup-203001010001", "backup-203001010002"}, "one run per occurrence"
    attempts = Counter(
        (name.rpartition("-")[0], int(name.rpartition("-")[2]) % 3) for name in cluster.executions
    )
    assert max(attempts.values()) <= 2, "at most one retry"
    (kept,) = jobs.runs()
    assert kept.state is RunState.SUCCEEDED
    assert indexes.size(kept.succeeded) == 3


def test_a_leader_that_is_killed_at_any_step_repeats_nothing_and_loses_nothing() -> None:
    steps = scenario_steps()
    assert 20 < steps < STEPS_MAX

    for kill_at in range(1, steps + 1):

        async def scenario(kill_at: int = kill_at) -> None:
            async with a_virtual_cluster(fails_at_first, kill_at=kill_at) as cluster:
                jobs = await two_occurrences(cluster)
                assert cluster.crashes >= 1
                check(cluster, jobs)

        run(scenario)


@pytest.mark.parametrize("after", [0.5, 1.5, 2.5, 5.0, 9.0])
def test_a_leader_that_is_killed_during_a_run_is_continued_by_the_next(after: float) -> None:
    async def scenario() -> None:
        async with a_virtual_cluster(fails_at_first) as cluster:
            await cluster.join()
            jobs = JobCalls(cluster)
            run_id = await jobs.started(a_job(completions=3, parallelism=2, retries=1))
            await asyncio.sleep(after)

            await cluster.kill()
            ended = await jobs.until_ended(run_id)

            assert ended.state is RunState.SUCCEEDED
            assert set(cluster.executions.values()) == {1}
            assert cluster.executions.total() == 4

    run(scenario)
