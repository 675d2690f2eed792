"""Attempts of a run: parallelism, retries, and how a run ends."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from job_builders import NOON, a_run, after, attempts, exited
from persys.core.jobs.changes import cancel
from persys.core.jobs.retries import RETRY_FIRST_AFTER, RETRY_LONGEST_AFTER
from persys.core.jobs.run import CHANGES_MAX, REASON_LENGTH_MAX, decide_run
from persys.core.jobs.situation import Attempt, AttemptKey, AttemptState, RunDecision
from persys.model.event import EventKind
from persys.model.job import Run, RunMember, RunState

WAITING, RUNNING = AttemptState.WAITING, AttemptState.RUNNING
SUCCEEDED, ABSENT = AttemptState.SUCCEEDED, AttemptState.ABSENT
LOST = Attempt(AttemptState.LOST, reason="node n1 is lost")


def decided(
    run: Run, states: dict[int, Attempt | AttemptState] | None = None, now: datetime = NOON
) -> RunDecision:
    return decide_run(attempts(run, states or {}), now)


def keys(*pairs: tuple[int, int]) -> tuple[AttemptKey, ...]:
    return tuple(AttemptKey(*pair) for pair in pairs)


def opened(run: Run, count: int) -> Run:
    """The run with so many first attempts."""
    return replace(run, next_index=count, members=tuple(RunMember(index) for index in range(count)))


def test_the_first_attempts_are_recorded_and_created_up_to_parallelism() -> None:
    found = decided(a_run(completions=5, parallelism=3))

    assert found.rule == "in-progress"
    assert [member.index for member in found.record.members] == [0, 1, 2]
    assert found.record.next_index == 3
    assert found.create == keys((0, 1), (1, 1), (2, 1))


def test_no_more_members_are_created_than_completions() -> None:
    assert len(decided(a_run(completions=2, parallelism=9)).create) == 2


def test_a_recorded_attempt_without_a_workload_is_created_again() -> None:
    """The leader crashed between both."""
    run = opened(a_run(completions=3, parallelism=3), 3)

    found = decided(run, {0: RUNNING, 2: WAITING})

    assert found.create == keys((1, 1))
    assert found.record is run, "nothing is written"


def test_an_attempt_that_was_seen_is_not_created_again() -> None:
    run = replace(opened(a_run(), 1), members=(RunMember(0, created=True),))

    found = decided(run, {0: ABSENT})

    assert found.create == ()
    assert found.record.state is RunState.FAILED
    assert found.record.reason == "its workload was removed"


def test_attempts_that_exist_are_noted_when_the_record_is_written() -> None:
    run = opened(a_run(completions=3, parallelism=2), 2)

    found = decided(run, {0: SUCCEEDED, 1: RUNNING})

    assert found.record.members == (RunMember(1, created=True), RunMember(2))


def test_an_idle_run_writes_nothing() -> None:
    run = opened(a_run(), 1)

    found = decided(run, {0: RUNNING})

    assert found == RunDecision(run, rule="in-progress")


def test_an_index_that_succeeds_makes_room_for_the_next() -> None:
    run = opened(a_run(completions=3), 1)

    found = decided(run, {0: SUCCEEDED})

    assert found.record.succeeded == ((0, 0),)
    assert found.create == keys((1, 1))


def test_a_run_succeeds_when_all_indexes_have() -> None:
    run = opened(a_run(completions=2, parallelism=2), 2)

    found = decided(run, {0: SUCCEEDED, 1: SUCCEEDED}, after(seconds=7))

    assert found.rule == "succeeded"
    assert found.record.state is RunState.SUCCEEDED
    assert found.record.ended_at == after(seconds=7)
    assert [event.kind for event in found.events] == [EventKind.RUN_SUCCEEDED]
    assert "after 7s" in found.events[0].message


@pytest.mark.parametrize(
    "failed", [exited(1), AttemptState.STOPPED, AttemptState.DELETING], ids=str
)
def test_without_retries_a_failed_attempt_is_never_repeated(failed: Attempt | AttemptState) -> None:
    found = decided(opened(a_run(), 1), {0: failed})

    assert found.create == ()
    assert found.record.state is RunState.FAILED
    assert found.record.failed == ((0, 0),)
    assert [event.kind for event in found.events] == [EventKind.RUN_FAILED]


def test_without_retries_an_attempt_on_a_lost_node_is_stopped_before_it_counts_as_failed() -> None:
    """Its node may return with it after the run has ended."""
    run = opened(a_run(), 1)

    found = decided(run, {0: LOST})

    assert found.stop == keys((0, 1))
    assert found.record is run
    stopped = Attempt(AttemptState.STOPPED, reason=LOST.reason)
    assert decided(run, {0: stopped}).record.reason == "node n1 is lost"


@pytest.mark.parametrize("failed", [exited(1), LOST], ids=str)
def test_a_failed_attempt_is_deleted_and_the_next_one_waits(failed: Attempt) -> None:
    run = opened(a_run(retries=2), 1)

    found = decided(run, {0: failed})

    (member,) = found.record.members
    assert member.retry_at == NOON + RETRY_FIRST_AFTER == found.wake_at
    assert member.reason == failed.reason
    assert found.delete == keys((0, 1))
    assert found.create == ()
    assert found.record.state is RunState.RUNNING


@pytest.mark.parametrize("old", [ABSENT, AttemptState.DELETING])
def test_the_next_attempt_starts_when_it_is_due_and_the_old_one_is_leaving(
    old: AttemptState,
) -> None:
    run = replace(
        opened(a_run(retries=2), 1), members=(RunMember(0, 1, retry_at=NOON, reason="x"),)
    )

    found = decided(run, {0: old})

    assert found.record.members == (RunMember(0, 2, reason="x"),)
    assert found.create == keys((0, 2))


def test_the_next_attempt_waits_until_the_old_one_is_being_deleted() -> None:
    """The leader crashed before it deleted the old one."""
    run = replace(opened(a_run(retries=2), 1), members=(RunMember(0, 1, retry_at=NOON),))

    found = decided(run, {0: exited(1)})

    assert found.record is run
    assert found.delete == keys((0, 1))
    assert found.create == ()


def test_retries_are_counted_and_then_the_index_fails() -> None:
    run = replace(opened(a_run(retries=2), 1), members=(RunMember(0, 3),))

    found = decided(run, {0: exited(9)})

    assert found.record.state is RunState.FAILED
    assert found.record.reason == "exited with 9"


def test_the_delay_between_attempts_grows_up_to_a_limit() -> None:
    def delay(attempt: int) -> timedelta:
        run = replace(opened(a_run(retries=100), 1), members=(RunMember(0, attempt),))
        wake_at = decided(run, {0: exited(1)}).wake_at
        assert wake_at is not None
        return wake_at - NOON

    assert delay(2) == 2 * delay(1)
    assert delay(50) == RETRY_LONGEST_AFTER


def test_a_retry_time_from_a_clock_that_was_ahead_is_reduced() -> None:
    ahead = (RunMember(0, 1, retry_at=NOON + timedelta(hours=1)),)
    run = replace(opened(a_run(retries=2), 1), members=ahead)

    found = decided(run, {0: ABSENT})

    assert found.record.members[0].retry_at == NOON + RETRY_FIRST_AFTER == found.wake_at


def test_the_deadline_of_a_run_from_a_clock_that_was_ahead_counts_from_now() -> None:
    run = replace(opened(a_run(deadline_seconds=60), 1), started_at=NOON + timedelta(hours=1))

    assert decided(run, {0: RUNNING}).wake_at == NOON + timedelta(seconds=60)


def test_an_index_that_waits_for_its_retry_counts_for_parallelism() -> None:
    run = opened(a_run(completions=3, parallelism=1, retries=1), 1)

    found = decided(run, {0: exited(1)})

    assert found.record.next_index == 1
    assert len(found.record.members) == 1


def test_other_indexes_continue_after_one_has_failed() -> None:
    run = opened(a_run(completions=3, parallelism=2), 2)

    found = decided(run, {0: exited(1), 1: RUNNING})

    assert found.record.state is RunState.RUNNING
    assert found.record.failed == ((0, 0),)
    assert found.create == keys((2, 1))
    assert found.stop == ()


def test_a_run_with_a_failed_index_fails_when_all_have_ended() -> None:
    run = replace(
        opened(a_run(completions=4), 4),
        members=(RunMember(3),),
        succeeded=((1, 1),),
        failed=((0, 0), (2, 2)),
        reason="index 0: exited with 1",
    )

    found = decided(run, {3: SUCCEEDED})

    assert found.rule == "failed"
    assert found.record.reason == "2 of 4 failed (0, 2); index 0: exited with 1"


def test_an_exit_code_of_fail_on_ends_the_run_without_retries() -> None:
    run = opened(a_run(completions=9, parallelism=2, retries=5, fail_on=(3, 4)), 2)

    found = decided(run, {0: exited(4), 1: RUNNING})

    assert found.rule == "fail-on"
    assert found.record.state is RunState.FAILED
    assert found.record.reason == "index 0 exited with 4, which is in fail_on"
    assert found.stop == keys((1, 1))
    assert found.create == ()


def test_other_exit_codes_are_retried() -> None:
    run = opened(a_run(retries=5, fail_on=(3, 4)), 1)

    assert decided(run, {0: exited(5)}).record.state is RunState.RUNNING


def test_a_deadline_ends_the_run_and_stops_its_members() -> None:
    run = opened(a_run(completions=2, parallelism=2, deadline_seconds=60), 2)
    states: dict[int, Attempt | AttemptState] = {0: RUNNING, 1: WAITING}

    before = decided(run, states, after(seconds=59))
    over = decided(run, states, after(seconds=60))

    assert before.wake_at == after(seconds=60)
    assert over.rule == "deadline"
    assert over.record.reason == "not complete 60s after its start"
    assert over.stop == keys((0, 1), (1, 1))


def test_results_that_arrive_with_the_deadline_count() -> None:
    run = opened(a_run(deadline_seconds=60), 1)

    assert decided(run, {0: SUCCEEDED}, after(seconds=61)).record.state is RunState.SUCCEEDED


def test_a_cancelled_run_stops_what_is_in_progress_until_nothing_is() -> None:
    run, _ = cancel(opened(a_run(completions=4, parallelism=4, retries=1), 4), now=NOON)

    found = decided(run, {0: RUNNING, 1: AttemptState.STOPPED, 2: SUCCEEDED, 3: LOST})

    assert found.rule == "ended"
    assert found.record is run
    assert found.stop == keys((0, 1), (3, 1))
    settled = decided(run, {0: AttemptState.STOPPED, 3: AttemptState.STOPPED})
    assert settled.stop == ()
    assert settled.record.members == (), "they are not read again"


def test_a_lost_attempt_that_waits_for_its_retry_is_stopped_when_the_run_ends() -> None:
    """Its node may return with it."""
    run = opened(a_run(completions=2, parallelism=2, retries=1, fail_on=(7,)), 2)

    found = decided(run, {0: LOST, 1: exited(7)})

    assert found.rule == "fail-on"
    assert found.stop == keys((0, 1))


def test_an_ended_run_creates_and_retries_nothing() -> None:
    run, _ = cancel(
        replace(opened(a_run(retries=3), 1), members=(RunMember(0, retry_at=NOON),)), now=NOON
    )

    found = decided(run, {}, after(hours=1))

    assert (found.create, found.stop, found.delete) == ((), (), ())


def test_a_decision_has_a_bounded_number_of_changes() -> None:
    run = decided(a_run(completions=1000, parallelism=1000)).record
    assert run.next_index == CHANGES_MAX

    second = decided(run)

    assert len(second.create) == CHANGES_MAX
    assert second.record.next_index == 1000
    assert second.wake_at == NOON


def test_a_long_reason_is_shortened() -> None:
    run = opened(a_run(retries=1), 1)
    failed = Attempt(AttemptState.FAILED, reason="x" * 10_000)

    assert len(decided(run, {0: failed}).record.members[0].reason) == REASON_LENGTH_MAX


def test_after_a_recovery_no_attempt_is_created() -> None:
    run = replace(opened(a_run(completions=9, parallelism=4, retries=5), 4), recovered_at=NOON)

    found = decided(run, {0: RUNNING, 1: SUCCEEDED, 2: exited(1)})

    assert found.rule == "recovered"
    assert found.create == ()
    assert found.delete == ()
    assert found.record.members == (RunMember(0, created=True),)
    assert found.record.succeeded == ((1, 1),)
    assert found.record.failed == ((2, 3),)


def test_a_recovered_run_fails_when_its_known_attempts_have_ended() -> None:
    run = replace(opened(a_run(completions=9, parallelism=2), 2), recovered_at=NOON)

    found = decided(run, {0: SUCCEEDED, 1: SUCCEEDED})

    assert found.record.state is RunState.FAILED
    assert found.record.reason == (
        "interrupted by a recovery of the cluster at 2030-06-01 12:00:00 UTC: 2 of 9 are known to have"
        " succeeded"
    )


def test_a_recovered_run_succeeds_if_all_indexes_are_known_to_have() -> None:
    run = replace(opened(a_run(), 1), recovered_at=NOON)

    assert decided(run, {0: SUCCEEDED}).record.state is RunState.SUCCEEDED


def test_a_retry_that_waited_at_a_recovery_is_not_started() -> None:
    member = RunMember(0, 1, retry_at=NOON, reason="exited with 1")
    run = replace(opened(a_run(retries=5), 1), members=(member,), recovered_at=NOON)

    found = decided(run, {})

    assert found.create == ()
    assert found.record.state is RunState.FAILED
