"""The input and the output of `decide_run`: the attempts of a run as the cluster sees them, and changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from persys.model.event import EventKind
from persys.model.job import Run


class AttemptState(StrEnum):
    ABSENT = "absent"  # it has no workload
    WAITING = "waiting"  # it is not known to have started
    RUNNING = "running"  # it has started, and has not ended as far as known
    SUCCEEDED = "succeeded"  # exit code 0
    FAILED = "failed"  # another exit code, or its start failed and is not tried again
    LOST = "lost"  # its node has not sent heartbeats for the lease and the grace
    STOPPED = "stopped"  # it should not run any more
    DELETING = "deleting"

    @property
    def in_progress(self) -> bool:
        return self in (AttemptState.WAITING, AttemptState.RUNNING, AttemptState.LOST)


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last attempt of an index."""

    state: AttemptState
    exit_code: int | None = None  # of FAILED; None: it did not exit by itself
    reason: str = ""  # of FAILED, LOST and STOPPED


@dataclass(frozen=True, slots=True)
class RunSituation:
    """`attempts` has the last attempt of each of `run.members`, by index."""

    run: Run
    attempts: Mapping[int, Attempt]


@dataclass(frozen=True, slots=True)
class AttemptKey:
    """An attempt of an index, from 1. Its workload id follows from it (`members.py`)."""

    index: int
    attempt: int


@dataclass(frozen=True, slots=True)
class JobEvent:
    kind: EventKind
    message: str


@dataclass(frozen=True, slots=True)
class RunDecision:
    """What to store and change now. The order: the record with its events, then `delete`, `stop`, `create`.

    Each attempt is changed in a transaction of its own, and the decision may be interrupted after any of
    them: the next one starts from the record and the attempts as they are.
    """

    record: Run
    create: tuple[AttemptKey, ...] = ()
    stop: tuple[AttemptKey, ...] = ()
    delete: tuple[AttemptKey, ...] = ()
    wake_at: datetime | None = None
    events: tuple[JobEvent, ...] = ()
    rule: str = ""  # the name of the rule that decided
