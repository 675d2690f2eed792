"""The transitions of a rollout: each function returns the record in its next phase.

| from | to | when |
|---|---|---|
| Steady, any | Rolling | the template changes, an undo, or a member does not run the target revision |
| Rolling | Canary | all canary members have passed their gates |
| Canary | Rolling | promoted by a user, or after `bake` |
| Rolling, Canary | RollingBack | a member fails, and there is a stable revision; once |
| Rolling, Canary, RollingBack | Paused | a member fails, nothing changes for too long, or a user pauses it |
| Paused | the phase before | a user resumes it |
| Rolling, Canary, RollingBack | Steady | every index has one member at the target revision |
| any | Steady | the set is stopped |
"""

from datetime import datetime

from msgspec.structs import replace

from persys.model.sets import Phase, Rollout, WorkloadSet

IN_PROGRESS = frozenset({Phase.ROLLING, Phase.CANARY, Phase.ROLLING_BACK})
REASON_LENGTH_MAX = 1024


def begun(now: datetime, *, skips_canary: bool = False) -> Rollout:
    return Rollout(Phase.ROLLING, started_at=now, promoted=skips_canary)


def without_future_times(record: WorkloadSet, now: datetime) -> WorkloadSet:
    """A time that is later than now is from the wrong clock of another leader, and is replaced by now."""
    rollout = record.rollout

    def limited(at: datetime | None) -> datetime | None:
        return min(at, now) if at is not None else None

    limits = replace(
        rollout,
        started_at=limited(rollout.started_at),
        resumed_at=limited(rollout.resumed_at),
        progressed_at=limited(rollout.progressed_at),
        canary_since=limited(rollout.canary_since),
    )
    return record if limits == rollout else replace(record, rollout=limits)


def paused(record: WorkloadSet, reason: str, now: datetime) -> WorkloadSet:
    rollout = replace(
        record.rollout,
        phase=Phase.PAUSED,
        resumes_as=record.rollout.phase,
        reason=reason[:REASON_LENGTH_MAX],
    )
    return replace(record, rollout=rollout, updated_at=now)


def resumed(record: WorkloadSet, now: datetime) -> WorkloadSet:
    """Members that failed before have the full time to become healthy."""
    before = record.rollout
    phase = before.resumes_as if before.resumes_as in IN_PROGRESS else Phase.ROLLING
    rollout = replace(
        before,
        phase=phase,
        resumes_as=Phase.STEADY,
        resumed_at=now,
        canary_since=now if phase is Phase.CANARY else None,
        reason="",
    )
    return replace(record, rollout=rollout, updated_at=now)


def canary_ready(record: WorkloadSet, now: datetime) -> WorkloadSet:
    rollout = replace(record.rollout, phase=Phase.CANARY, canary_since=now)
    return replace(record, rollout=rollout, updated_at=now)


def promoted(record: WorkloadSet, now: datetime) -> WorkloadSet:
    rollout = replace(record.rollout, phase=Phase.ROLLING, promoted=True, progressed_at=now)
    return replace(record, rollout=rollout, updated_at=now)


def rolled_back(record: WorkloadSet, reason: str, now: datetime) -> WorkloadSet:
    rollout = Rollout(
        Phase.ROLLING_BACK,
        started_at=now,
        rolled_back_from=record.target,
        reason=reason[:REASON_LENGTH_MAX],
    )
    return replace(record, target=record.stable, rollout=rollout, updated_at=now)


def completed(record: WorkloadSet, now: datetime, *, stable: int) -> WorkloadSet:
    """The reason of a rollback stays, for users."""
    rollout = replace(record.rollout, phase=Phase.STEADY, resumes_as=Phase.STEADY)
    return replace(record, rollout=rollout, stable=stable, updated_at=now)


def stopped(record: WorkloadSet, now: datetime) -> WorkloadSet:
    return replace(record, rollout=Rollout(), updated_at=now)
