"""The records that a step stores, before it acts and after the provider has answered.

A machine is stored before its create call. The number of a machine and the machine itself are stored
together, so that no number is used twice.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import assert_never

from msgspec.structs import replace

from persys.core.nodepools.growth import after_failure, after_success
from persys.core.nodepools.lifecycle import in_state
from persys.core.nodepools.steps import (
    Create,
    Destroy,
    Drain,
    DropPool,
    Hold,
    Keep,
    Remove,
    Rule,
    Step,
)
from persys.model.nodepool import Machine, MachineState, NodePool


@dataclass(frozen=True, slots=True)
class RecordChange:
    """Records to store in one transaction. None: unchanged."""

    pool: NodePool | None = None
    put: Machine | None = None
    drop: Machine | None = None

    def __bool__(self) -> bool:
        return self.pool is not None or self.put is not None or self.drop is not None


@dataclass(frozen=True, slots=True)
class CreateRefused:
    """The provider has created nothing, and said so."""

    message: str
    retry_after: timedelta = timedelta()


NO_CHANGE = RecordChange()


def change_for(pool: NodePool, known: Machine | None, step: Step, *, now: datetime) -> RecordChange:
    """What a step stores before it acts. `known`: the stored record of its machine."""
    match step:
        case Create(machine=machine):
            provisioning = replace(pool.provisioning, created_count=machine.number)
            return RecordChange(pool=replace(pool, provisioning=provisioning), put=machine)
        case Keep(machine=machine, rule=rule):
            return RecordChange(
                pool=_after_ready(pool) if rule is Rule.READY else None,
                put=_changed(machine, known),
            )
        case Drain(machine=machine):
            return RecordChange(put=_changed(machine, known))
        case Destroy(machine=destroying, failed=failed, why=why):
            is_new = destroying is not None and (known is None or known.state != destroying.state)
            failure = _failed(pool, why, now) if failed and is_new else None
            return RecordChange(
                pool=failure, put=_changed(destroying, known) if is_new and destroying else None
            )
        case Remove(machine=machine, failed=failed, why=why):
            return RecordChange(pool=_failed(pool, why, now) if failed else None, drop=machine)
        case Hold() | DropPool():
            return NO_CHANGE
        case unreachable:
            assert_never(unreachable)


def after_create(
    pool: NodePool, machine: Machine, answer: str | CreateRefused, *, now: datetime
) -> RecordChange:
    """What is stored after the create call. `answer`: the provider's id, or why it created nothing."""
    if isinstance(answer, CreateRefused):
        provisioning = after_failure(
            pool.provisioning, answer.message, now=now, retry_after=answer.retry_after
        )
        return RecordChange(pool=replace(pool, provisioning=provisioning), drop=machine)
    booting = in_state(replace(machine, provider_id=answer), MachineState.BOOTING, now)
    return RecordChange(put=booting)


def _changed(machine: Machine, known: Machine | None) -> Machine | None:
    """How often a machine was absent is counted in memory: a new leader counts again."""
    stored = replace(machine, absent_count=0)
    return stored if stored != known else None


def _after_ready(pool: NodePool) -> NodePool | None:
    succeeded = after_success(pool.provisioning)
    return replace(pool, provisioning=succeeded) if succeeded != pool.provisioning else None


def _failed(pool: NodePool, why: str, now: datetime) -> NodePool:
    return replace(pool, provisioning=after_failure(pool.provisioning, why, now=now))
