"""`--wait`: polls workloads until they reach the requested state; see also `set_wait.py` and `job_wait.py`.

A workload counts as running when its health check passes. One without a health check has to stay up for a
moment, because a program that exits at once is Running for an instant too.

The wait ends early for a workload that has failed, that no node can run or that a later request changed: the
user gets the reason and the next command, and the scheduler keeps retrying.
"""

import gc
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from time import sleep
from typing import TYPE_CHECKING, NamedTuple, Protocol

from persys.cli.commands.workload_status import (
    UNPLACEABLE,
    address_text,
    attempts_text,
    current_step,
    has_drifted,
    health_of,
    next_step,
    reason_text,
    status_text,
)
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import LiveState, Update
from persys.core.duration import format_duration
from persys.errors import NotFoundError, UnavailableError
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1.control_pb2 import WorkloadView

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from persys.client import SchedulerClient
    from persys.core.intent.field_changes import FieldChange


_INTERVAL_SECONDS = 0.25
# How long a status that equals the one before the request may be stale.
_STALE_SECONDS = 2.0
# How long a workload without a health check has to run without a restart.
STEADY = timedelta(seconds=2)
# How long a workload may be unplaceable: capacity that is being freed is available within seconds.
UNPLACEABLE_MAX = timedelta(seconds=3)
# How long a workload may differ from how it was created: its node repairs that within seconds, if it can.
DRIFTED_MAX = timedelta(seconds=15)
# How long a workload may differ from the request: a standby that lags behind the leader may answer.
SUPERSEDED_MAX = timedelta(seconds=3)
# How long its node may be unreachable: an agent or a host that restarts is back by then.
UNREACHABLE_MAX = timedelta(seconds=30)
_UNREACHABLE_CODES = frozenset({"NodeUnreachable", "NodeNotReady", "NodeLost"})
CONNECTION_HINT = "check the connection to the scheduler with `persysctl doctor`"


class Goal(Enum):
    RUNNING = "Running"
    STOPPED = "Stopped"
    GONE = "Deleted"


_DESIRED_STATES = (Goal.RUNNING.value.lower(), Goal.STOPPED.value.lower())


class WaitTarget(NamedTuple):
    """The requested state, and the workload before the request, to recognise a stale status."""

    goal: Goal
    revision: str = ""  # "": not known
    before: WorkloadView | None = None
    was_steady: bool = False  # the request changed nothing, and it ran without a restart already


class Outcome(NamedTuple):
    """The result for one workload, set or run. `hint` names the next command."""

    exit: ExitCode
    word: str
    why: str = ""
    hint: str = ""
    workload: WorkloadView | None = None
    change: str = ""  # after a wait: what the request changed
    changes: "tuple[FieldChange, ...]" = ()
    view: "Message | None" = None  # of a set or a job
    after: str = ""  # the next command, if the wait succeeded; of a set or a job


class Wait(Protocol):
    """One workload, set or run that a command waits for."""

    def probe(self, client: "SchedulerClient", passed: timedelta) -> Outcome:
        """Poll once. TIMED_OUT means not finished yet; it becomes final when the time is over."""

    def states(self, outcome: Outcome) -> Mapping[str, LiveState]:
        """What is shown while it has not reached its goal."""

    def ends_after(self, within: timedelta) -> timedelta:
        """When it times out, measured from the start of the wait."""


def wait_for(
    client: "SchedulerClient",
    targets: Mapping[str, WaitTarget],
    *,
    within: timedelta,
    update: Update,
) -> dict[str, Outcome]:
    """Poll all workloads until each has an outcome, at most for `within`."""
    waits = {
        workload_id: WorkloadWait(workload_id, target, within=within)
        for workload_id, target in targets.items()
    }
    return wait_for_all(client, waits, within=within, update=update)


def wait_for_all(
    client: "SchedulerClient", waits: Mapping[str, Wait], *, within: timedelta, update: Update
) -> dict[str, Outcome]:
    gc.enable()
    clock = SystemClock()
    began = clock.monotonic()
    outcomes: dict[str, Outcome] = {}
    while True:
        passed = timedelta(seconds=clock.monotonic() - began)
        states: dict[str, LiveState] = {}
        for name, wait in waits.items():
            if name not in outcomes:
                outcome = wait.probe(client, passed)
                if outcome.exit is not ExitCode.TIMED_OUT or passed >= wait.ends_after(within):
                    outcomes[name] = _final_outcome(outcome, within)
                else:
                    states |= wait.states(outcome)
        update(states)
        if len(outcomes) == len(waits):
            return outcomes
        sleep(_INTERVAL_SECONDS)


def events_hint(workload_id: str) -> str:
    return f"show its events with `persysctl events --workload {workload_id} -o wide`"


class WorkloadWait:
    """One workload of a wait, with the time since which its signature has not changed."""

    def __init__(self, workload_id: str, target: WaitTarget, *, within: timedelta) -> None:
        self._id = workload_id
        self._target = target
        # A wait of one second must be able to succeed too.
        self._steady_after = min(STEADY, within / 2)
        self._signature: Signature | None = None
        self._since = timedelta()

    def probe(self, client: "SchedulerClient", passed: timedelta) -> Outcome:
        try:
            workload = client.get_workload(self._id)
        except NotFoundError:
            workload = None
        except UnavailableError as err:
            return no_response(err)
        seen = None if workload is None else signature(workload)
        if seen != self._signature:
            self._signature, self._since = seen, passed
        state = evaluate(
            workload,
            self._target,
            may_be_stale=passed.total_seconds() < _STALE_SECONDS,
            unchanged_for=passed - self._since,
            steady_after=self._steady_after,
        )
        code = {WaitState.REACHED: ExitCode.OK, WaitState.FAILED: ExitCode.FAILED}.get(
            state, ExitCode.TIMED_OUT
        )
        if workload is None and state is WaitState.REACHED:
            return Outcome(code, Goal.GONE.value)
        if workload is None:
            why = "it was deleted after this request"
            return Outcome(code, Goal.GONE.value, why, events_hint(self._id))
        if state is WaitState.REACHED:
            return Outcome(code, status_text(workload), _why(workload), workload=workload)
        why, hint = self._problem(workload)
        return Outcome(code, status_text(workload), why, hint, workload)

    def states(self, outcome: Outcome) -> Mapping[str, LiveState]:
        step = None if outcome.workload is None else current_step(outcome.workload)
        return {self._id: step or LiveState(outcome.word, outcome.why)}

    def ends_after(self, within: timedelta) -> timedelta:
        return within

    def _problem(self, workload: WorkloadView) -> tuple[str, str]:
        """Why it has not reached the requested state, and the next command."""
        if changed := superseded(workload, self._target):
            if workload.desired_state.lower() == Goal.STOPPED.value.lower():
                return changed, f"start it with `persysctl workload start {self._id}`"
            return changed, events_hint(self._id)
        return _why(workload), next_step(workload) or events_hint(self._id)


def no_response(err: UnavailableError) -> Outcome:
    """The scheduler may be restarting: retry until the time is over."""
    why = f"no response from the scheduler: {err}"
    return Outcome(ExitCode.TIMED_OUT, "Unknown", why, CONNECTION_HINT)


def _final_outcome(outcome: Outcome, within: timedelta) -> Outcome:
    if outcome.exit is not ExitCode.TIMED_OUT:
        return outcome
    if outcome.workload is not None and outcome.workload.status.lower() == "failed":
        return outcome._replace(exit=ExitCode.FAILED)
    if outcome.hint == CONNECTION_HINT:
        return outcome._replace(exit=ExitCode.UNREACHABLE)
    why = f"timed out after {format_duration(within)}" + (outcome.why and f"; {outcome.why}")
    return outcome._replace(why=why)


def _why(workload: WorkloadView) -> str:
    # Without the time of the next attempt: its countdown would change at every poll.
    failing = workload.retry_attempts and workload.status.lower() not in ("running", "stopped")
    again = f"{attempts_text(workload)} failed" if failing else ""
    parts = (reason_text(workload), again, address_text(workload))
    return "; ".join(part for part in parts if part)


class WaitState(Enum):
    REACHED = "reached"
    FAILED = "failed"
    OPEN = "open"


class Signature(NamedTuple):
    """Fields that change when a workload changes its state or restarts."""

    status: str
    code: str
    revision: str
    started_at: str
    restart_count: str


def signature(workload: WorkloadView) -> Signature:
    """All statuses of a workload on an unreachable node have the same signature."""
    silent = _is_unreachable(workload)
    return Signature(
        "" if silent else workload.status.lower(),
        "" if silent else workload.reason.code,
        workload.revision_id,
        workload.metadata.get("container.started_at", ""),
        workload.metadata.get("container.restart_count", ""),
    )


def is_steady(workload: WorkloadView) -> bool:
    """Whether it runs, has never restarted and is not unhealthy."""
    restarts = workload.metadata.get("container.restart_count", "0")
    return workload.status.lower() == "running" and restarts == "0" and not workload.reason.code


def evaluate(
    workload: WorkloadView | None,
    target: WaitTarget,
    *,
    may_be_stale: bool,
    unchanged_for: timedelta = STEADY,
    steady_after: timedelta = STEADY,
) -> WaitState:
    """`may_be_stale` while the scheduler may not have processed the request yet.

    `unchanged_for` is how long the workload has had the same signature.
    """
    if workload is None or workload.status.lower() == "deleted":
        if target.goal is Goal.GONE:
            return WaitState.REACHED
        return WaitState.OPEN if may_be_stale else WaitState.FAILED
    if superseded(workload, target):
        return WaitState.FAILED if unchanged_for >= SUPERSEDED_MAX else WaitState.OPEN
    if _is_unreachable(workload) and unchanged_for >= UNREACHABLE_MAX:
        return WaitState.FAILED
    if target.goal is Goal.GONE or (may_be_stale and _is_stale(workload, target)):
        return WaitState.OPEN
    if _has_failed(workload) or (_is_unplaceable(workload) and unchanged_for >= UNPLACEABLE_MAX):
        return WaitState.FAILED
    if target.goal is Goal.RUNNING and has_drifted(workload):
        return WaitState.FAILED if unchanged_for >= DRIFTED_MAX else WaitState.OPEN
    if target.goal is Goal.RUNNING:
        return _evaluate_run(workload, steady=target.was_steady or unchanged_for >= steady_after)
    return WaitState.REACHED if workload.status.lower() == "stopped" else WaitState.OPEN


def superseded(workload: WorkloadView, target: WaitTarget) -> str:
    """How the desired state differs from the request because of a later one; empty if it does not."""
    desired = workload.desired_state.lower()
    if target.goal is Goal.GONE:
        again = desired in _DESIRED_STATES and workload.status.lower() != "deleting"
        return "it was applied again after this request" if again else ""
    if desired and desired != target.goal.value.lower():
        return f"its desired state is {workload.desired_state}"
    if target.revision and workload.revision_id != target.revision:
        return f"revision {workload.revision_id} was applied after this request"
    return ""


def _is_unreachable(workload: WorkloadView) -> bool:
    return workload.status.lower() == "unknown" or workload.reason.code in _UNREACHABLE_CODES


def _evaluate_run(workload: WorkloadView, *, steady: bool) -> WaitState:
    if (workload.status.lower(), workload.reason.code) == ("stopped", "Completed"):
        return WaitState.REACHED  # it exited with 0, and its restart policy allows that
    if workload.status.lower() != "running":
        return WaitState.OPEN
    match health_of(workload):
        case "healthy":
            return WaitState.REACHED
        case "unhealthy":
            return WaitState.FAILED
        case "starting":
            return WaitState.OPEN
        case _:
            spec = workload.spec
            checked = spec.container.HasField("health_check") or spec.vm.HasField("health_check")
            return WaitState.REACHED if steady and not checked else WaitState.OPEN


def _has_failed(workload: WorkloadView) -> bool:
    """Whether it failed. A node without capacity does not count while a retry is due soon."""
    if workload.status.lower() != "failed":
        return False
    return workload.failure_reason != "INSUFFICIENT_RESOURCES" or not _is_retried_soon(workload)


def _is_retried_soon(workload: WorkloadView) -> bool:
    """Retries after the limit are slow. A scheduler that reports no limit makes none of them."""
    at_limit = 0 < workload.retry_max_attempts <= workload.retry_attempts
    return workload.HasField("retry_next_at") and not at_limit


def _is_unplaceable(workload: WorkloadView) -> bool:
    return workload.status.lower() == "pending" and workload.reason.code == UNPLACEABLE


def _is_stale(workload: WorkloadView, target: WaitTarget) -> bool:
    before = target.before
    return before is not None and (before.status, before.last_updated, before.reason) == (
        workload.status,
        workload.last_updated,
        workload.reason,
    )
