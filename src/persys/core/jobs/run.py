"""Decides the next step of a run: which attempts start, are retried or stopped, and how the run ends.

`decide_run` first judges the last attempt of each open index (ATTEMPT_RULES), then the run (RUN_RULES); the
first rule that applies decides. The same situation always gives the same decision, and it may be interrupted
after any change.

An attempt is recorded before its workload is created. A missing workload of a recorded attempt is therefore
created, unless it was seen before (`RunMember.created`): then it was removed and may have run. After a
recovery the record may be older than the attempts, so none is created: see `schedule.py`.

An index that failed does not end the run: the others continue, and the run fails when all have ended. Only
`fail_on`, the deadline and a cancellation end it at once. An index that waits for its next attempt counts for
`parallelism`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from msgspec import structs

from persys.core.jobs import indexes
from persys.core.jobs.members import ends_by
from persys.core.jobs.retries import retry_delay, without_future_times
from persys.core.jobs.situation import (
    Attempt,
    AttemptKey,
    AttemptState,
    JobEvent,
    RunDecision,
    RunSituation,
)
from persys.model.event import EventKind
from persys.model.job import Run, RunMember, RunState

CHANGES_MAX = 512  # of members, in one decision
REASON_LENGTH_MAX = 200
_GONE = Attempt(AttemptState.ABSENT)


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The index has succeeded."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt has failed. `ends_run`: by its exit code."""

    reason: str
    ends_run: bool = False


@dataclass(frozen=True, slots=True)
class Open:
    """The attempt is in progress, or the next one is waiting. `stop`: it fails when it is stopped."""

    stop: bool = False


Judgement = Succeeded | Failed | Open


@dataclass(frozen=True, slots=True)
class AttemptRule:
    """`apply` returns a judgement, or None if the rule does not apply."""

    name: str
    apply: Callable[[Run, RunMember, Attempt], Judgement | None]


def _waits_for_retry(run: Run, member: RunMember, _attempt: Attempt) -> Judgement | None:
    if member.retry_at is None:
        return None
    if run.recovered_at is not None:
        return Failed(f"{member.reason}; its next attempt may have run before the recovery")
    return Open()


def _exit_code_zero(_run: Run, _member: RunMember, attempt: Attempt) -> Judgement | None:
    return Succeeded() if attempt.state is AttemptState.SUCCEEDED else None


def _exit_code_in_fail_on(run: Run, member: RunMember, attempt: Attempt) -> Judgement | None:
    if attempt.state is not AttemptState.FAILED or attempt.exit_code not in run.fail_on:
        return None
    why = f"index {member.index} exited with {attempt.exit_code}, which is in fail_on"
    return Failed(why, ends_run=True)


def _attempt_failed(_run: Run, _member: RunMember, attempt: Attempt) -> Judgement | None:
    return Failed(attempt.reason) if attempt.state is AttemptState.FAILED else None


def _node_lost(run: Run, member: RunMember, attempt: Attempt) -> Judgement | None:
    """Its node may return with it: an attempt that is not deleted for a retry is stopped first."""
    if attempt.state is not AttemptState.LOST:
        return None
    return Failed(attempt.reason) if _may_retry(run, member) else Open(stop=True)


def _ended_from_outside(_run: Run, _member: RunMember, attempt: Attempt) -> Judgement | None:
    """It was stopped or deleted, and not by the end of its run."""
    if attempt.state not in (AttemptState.STOPPED, AttemptState.DELETING):
        return None
    return Failed(attempt.reason or f"it was {attempt.state}")


def _removed(run: Run, member: RunMember, attempt: Attempt) -> Judgement | None:
    """It may have run, and its workload does not exist any more."""
    if attempt.state is not AttemptState.ABSENT:
        return None
    if run.recovered_at is not None:
        return Failed("it may have run before the recovery of the cluster")
    return Failed("its workload was removed") if member.created else None


def _in_progress(_run: Run, _member: RunMember, _attempt: Attempt) -> Judgement:
    return Open()


ATTEMPT_RULES: tuple[AttemptRule, ...] = (
    AttemptRule("retry-waiting", _waits_for_retry),
    AttemptRule("attempt-succeeded", _exit_code_zero),
    AttemptRule("fail-on", _exit_code_in_fail_on),
    AttemptRule("attempt-failed", _attempt_failed),
    AttemptRule("attempt-node-lost", _node_lost),
    AttemptRule("attempt-ended", _ended_from_outside),
    AttemptRule("attempt-removed", _removed),
    AttemptRule("attempt-in-progress", _in_progress),
)


def judge(run: Run, member: RunMember, attempt: Attempt) -> tuple[Judgement, str]:
    """The judgement of the first rule that applies, with the name of that rule."""
    for rule in ATTEMPT_RULES:
        judgement = rule.apply(run, member, attempt)
        if judgement is not None:
            return judgement, rule.name
    raise AssertionError("the last rule always applies")


@dataclass(frozen=True, slots=True)
class _Case:
    """`run` has the judgements of its attempts; `ended_by` is why an exit code ends it."""

    run: Run
    attempts: Mapping[int, Attempt]
    now: datetime
    ended_by: str = ""
    stops: tuple[AttemptKey, ...] = ()  # attempts that are stopped although the run continues


@dataclass(frozen=True, slots=True)
class RunRule:
    """`apply` returns a decision, or None if the rule does not apply."""

    name: str
    apply: Callable[[_Case], RunDecision | None]


def decide_run(situation: RunSituation, now: datetime) -> RunDecision:
    if situation.run.state is RunState.RUNNING:
        case = _judged(situation, now)
    else:
        case = _Case(situation.run, situation.attempts, now)
    for rule in RUN_RULES:
        decision = rule.apply(case)
        if decision is not None:
            record = _with_created(situation, decision.record)
            return replace(_bounded(decision, now), record=record, rule=rule.name)
    raise AssertionError("the last rule always applies")


def _judged(situation: RunSituation, now: datetime) -> _Case:
    """Move the indexes that have ended from `members` to the ranges, and plan retries."""
    run, ended_by = without_future_times(situation.run, now), ""
    succeeded: list[int] = []
    failed: list[int] = []
    still_open: list[RunMember] = []
    stops: list[AttemptKey] = []
    for member in run.members:
        judgement, _ = judge(run, member, situation.attempts.get(member.index, _GONE))
        match judgement:
            case Succeeded():
                succeeded.append(member.index)
            case Failed() as failure:
                ended_by = ended_by or (failure.reason if failure.ends_run else "")
                if failure.ends_run or not _may_retry(run, member):
                    failed.append(member.index)
                    run = _with_first_reason(run, member, failure)
                else:
                    still_open.append(_retried(member, failure.reason, now))
            case Open(stop=stop):
                still_open.append(member)
                stops += [AttemptKey(member.index, member.attempts)] if stop else []
    if succeeded or failed or still_open != list(run.members):
        run = structs.replace(
            run,
            succeeded=indexes.added(run.succeeded, succeeded),
            failed=indexes.added(run.failed, failed),
            members=tuple(still_open),
        )
    return _Case(run, situation.attempts, now, ended_by, tuple(stops))


def _may_retry(run: Run, member: RunMember) -> bool:
    return run.recovered_at is None and member.attempts <= run.retries


def _retried(member: RunMember, reason: str, now: datetime) -> RunMember:
    return structs.replace(member, retry_at=now + retry_delay(member), reason=_shortened(reason))


def _with_first_reason(run: Run, member: RunMember, failure: Failed) -> Run:
    """The run keeps the reason of its first index that failed; its end adds the others."""
    if run.reason:
        return run
    why = failure.reason if failure.ends_run else f"index {member.index}: {failure.reason}"
    return structs.replace(run, reason=_shortened(why))


def _shortened(text: str) -> str:
    return text if len(text) <= REASON_LENGTH_MAX else f"{text[: REASON_LENGTH_MAX - 1]}…"


def _has_ended(case: _Case) -> RunDecision | None:
    """Its attempts in progress are stopped, and then not read again. Their logs stay as long as the run."""
    run = case.run
    if run.state is RunState.RUNNING:
        return None
    stop = _in_progress_of(case)
    if not stop and run.members:
        run = structs.replace(run, members=())
    return RunDecision(run, stop=stop)


def _all_succeeded(case: _Case) -> RunDecision | None:
    run = case.run
    if indexes.size(run.succeeded) < run.completions:
        return None
    seconds = round((case.now - run.started_at).total_seconds())
    text = f"run {run.run_id} succeeded after {seconds}s"
    return _ended(case, RunState.SUCCEEDED, "", JobEvent(EventKind.RUN_SUCCEEDED, text))


def _ended_by_exit_code(case: _Case) -> RunDecision | None:
    return _failed(case, case.ended_by) if case.ended_by else None


def _deadline_over(case: _Case) -> RunDecision | None:
    deadline = ends_by(case.run)
    if deadline is None or case.now < deadline:
        return None
    return _failed(case, f"not complete {case.run.deadline_seconds}s after its start")


def _all_ended(case: _Case) -> RunDecision | None:
    run = case.run
    if run.members or run.next_index < run.completions:
        return None
    return _failed(case, _failures(run))


def _recovered(case: _Case) -> RunDecision | None:
    """No attempt is created after a recovery: the run ends when those that are known have ended."""
    run = case.run
    if run.recovered_at is None:
        return None
    if run.members:
        return RunDecision(run, stop=case.stops, wake_at=ends_by(run))
    done = indexes.size(run.succeeded)
    why = (
        f"interrupted by a recovery of the cluster at {run.recovered_at:%Y-%m-%d %H:%M:%S} UTC:"
        f" {done} of {run.completions} are known to have succeeded"
    )
    return _failed(case, why)


def _continues(case: _Case) -> RunDecision:
    """Start the retries that are due and new indexes, and create what is recorded and does not exist."""
    run, deletes = case.run, []
    members: list[RunMember] = []
    for member in run.members:
        if member.retry_at is None or case.now < member.retry_at:
            members.append(member)
        elif _is_leaving(case.attempts.get(member.index, _GONE)):
            members.append(RunMember(member.index, member.attempts + 1, reason=member.reason))
        else:
            members.append(member)
    for member in members:
        attempt = case.attempts.get(member.index, _GONE)
        if member.retry_at is not None and not _is_leaving(attempt):
            deletes.append(AttemptKey(member.index, member.attempts))
    slots = min(run.parallelism - len(members), run.completions - run.next_index, CHANGES_MAX)
    if slots > 0:
        started = range(run.next_index, run.next_index + slots)
        members += [RunMember(index) for index in started]
        run = structs.replace(run, next_index=run.next_index + slots)
    if members != list(run.members):
        run = structs.replace(run, members=tuple(members))
    known = {member.index: member.attempts for member in case.run.members}
    creates = tuple(
        AttemptKey(member.index, member.attempts)
        for member in members
        if member.retry_at is None and _is_missing(case, member, known)
    )
    return RunDecision(run, creates, case.stops, tuple(deletes), _next_time(run))


def _is_leaving(attempt: Attempt) -> bool:
    return attempt.state in (AttemptState.ABSENT, AttemptState.DELETING)


def _is_missing(case: _Case, member: RunMember, known: Mapping[int, int]) -> bool:
    """Whether the attempt is new, or is recorded without a workload."""
    if known.get(member.index) != member.attempts:
        return True
    return case.attempts.get(member.index, _GONE).state is AttemptState.ABSENT


def _next_time(run: Run) -> datetime | None:
    times = [member.retry_at for member in run.members if member.retry_at is not None]
    deadline = ends_by(run)
    return min([*times, deadline] if deadline is not None else times, default=None)


RUN_RULES: tuple[RunRule, ...] = (
    RunRule("ended", _has_ended),
    RunRule("succeeded", _all_succeeded),
    RunRule("fail-on", _ended_by_exit_code),
    RunRule("deadline", _deadline_over),
    RunRule("failed", _all_ended),
    RunRule("recovered", _recovered),
    RunRule("in-progress", _continues),
)


def _failed(case: _Case, why: str) -> RunDecision:
    event = JobEvent(EventKind.RUN_FAILED, f"run {case.run.run_id} failed: {why}")
    return _ended(case, RunState.FAILED, why, event)


def _ended(case: _Case, state: RunState, why: str, event: JobEvent) -> RunDecision:
    run = structs.replace(case.run, state=state, reason=why, ended_at=case.now)
    ended = replace(case, run=run)
    return RunDecision(run, stop=_in_progress_of(ended), events=(event,))


def _in_progress_of(case: _Case) -> tuple[AttemptKey, ...]:
    """Also those that count as failed: a lost node may return with them."""
    return tuple(
        AttemptKey(member.index, member.attempts)
        for member in case.run.members
        if case.attempts.get(member.index, _GONE).state.in_progress
    )


def _failures(run: Run) -> str:
    count = indexes.size(run.failed)
    if run.completions == 1:
        return run.reason.removeprefix("index 0: ")
    return f"{count} of {run.completions} failed ({indexes.described(run.failed)}); {run.reason}"


def _with_created(situation: RunSituation, run: Run) -> Run:
    """If the record is written anyway: note the attempts whose workload exists."""
    if run == situation.run:
        return situation.run
    open_before = {member.index: member for member in situation.run.members}

    def noted(member: RunMember) -> RunMember:
        attempt = situation.attempts.get(member.index, _GONE)
        same = member.index in open_before and (
            open_before[member.index].attempts == member.attempts
        )
        if member.created or not same or attempt.state is AttemptState.ABSENT:
            return member
        return structs.replace(member, created=True)

    return structs.replace(run, members=tuple(map(noted, run.members)))


def _bounded(decision: RunDecision, now: datetime) -> RunDecision:
    """At most CHANGES_MAX changes of members; the next decision makes the others at once."""
    delete = decision.delete[:CHANGES_MAX]
    stop = decision.stop[: CHANGES_MAX - len(delete)]
    create = decision.create[: CHANGES_MAX - len(delete) - len(stop)]
    made = len(delete) + len(stop) + len(create)
    if made == len(decision.delete) + len(decision.stop) + len(decision.create):
        return decision
    return replace(decision, delete=delete, stop=stop, create=create, wake_at=now)
