"""When an index of a run starts again after a failed attempt, and times from the wrong clock of a leader."""

from datetime import datetime, timedelta

from msgspec import structs

from persys.core.backoff import doubled
from persys.model.job import Run, RunMember

RETRY_FIRST_AFTER = timedelta(seconds=5)
RETRY_LONGEST_AFTER = timedelta(minutes=5)


def retry_delay(member: RunMember) -> timedelta:
    """After its last attempt."""
    return doubled(RETRY_FIRST_AFTER, member.attempts - 1, longest=RETRY_LONGEST_AFTER)


def without_future_times(run: Run, now: datetime) -> Run:
    """The clock of an earlier leader may have been ahead: times that are too far ahead are reduced."""
    members = tuple(_with_retry_until(member, now + retry_delay(member)) for member in run.members)
    started_at = min(run.started_at, now)
    if (members, started_at) == (run.members, run.started_at):
        return run
    return structs.replace(run, members=members, started_at=started_at)


def _with_retry_until(member: RunMember, latest: datetime) -> RunMember:
    if member.retry_at is None or member.retry_at <= latest:
        return member
    return structs.replace(member, retry_at=latest)
