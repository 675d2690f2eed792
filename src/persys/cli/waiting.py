"""`--wait`: polls workloads until they reach the requested state.

The wait ends early for a workload that has failed, that no node can run or that a later request changed: the
user gets the reason and the next command, and the scheduler keeps retrying.
"""

import gc
from collections.abc import Mapping
from datetime import timedelta
from time import sleep
from typing import TYPE_CHECKING, NamedTuple

from persys.cli.advice import next_step, status_text
from persys.cli.exits import Exit
from persys.cli.live import Update
from persys.cli.verdict import (
    STEADY,
    Goal,
    Signature,
    Verdict,
    Wanted,
    judge,
    signature,
    superseded,
)
from persys.cli.workloads import attempts_text, reached_at, reason_text
from persys.core.duration import format_duration
from persys.errors import NotFoundError, UnavailableError
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1.control_pb2 import WorkloadView

if TYPE_CHECKING:
    from persys.client import SchedulerClient

_INTERVAL_SECONDS = 0.25
# How long a status that equals the one before the request may be stale.
_PATIENCE_SECONDS = 2.0
SCHEDULER_AWAY = "check the connection to the scheduler with `persysctl doctor`"


class Outcome(NamedTuple):
    """The result for one workload. `hint` names the next command."""

    exit: Exit
    word: str
    why: str = ""
    hint: str = ""
    workload: WorkloadView | None = None


class _Watched:
    """One workload of a wait, with the time since which its signature has not changed."""

    def __init__(self, workload_id: str, wanted: Wanted, *, within: timedelta) -> None:
        self._id = workload_id
        self._wanted = wanted
        # A wait of one second must be able to succeed too.
        self._steady_after = min(STEADY, within / 2)
        self._signature: Signature | None = None
        self._since = timedelta()

    def look(self, client: "SchedulerClient", passed: timedelta) -> Outcome:
        """Poll once. TIMED_OUT means not finished yet; it becomes final when the time is over."""
        try:
            workload = client.get_workload(self._id)
        except NotFoundError:
            workload = None
        except UnavailableError as err:
            # The scheduler may be restarting: retry until the time is over.
            why = f"no answer from the scheduler: {err}"
            return Outcome(Exit.TIMED_OUT, "Unknown", why, SCHEDULER_AWAY)
        seen = None if workload is None else signature(workload)
        if seen != self._signature:
            self._signature, self._since = seen, passed
        verdict = judge(
            workload,
            self._wanted,
            patient=passed.total_seconds() < _PATIENCE_SECONDS,
            same_for=passed - self._since,
            steady_after=self._steady_after,
        )
        code = {Verdict.REACHED: Exit.OK, Verdict.FAILED: Exit.FAILED}.get(verdict, Exit.TIMED_OUT)
        if workload is None and verdict is Verdict.REACHED:
            return Outcome(code, Goal.GONE.value)
        if workload is None:
            why = "it was deleted after this request"
            return Outcome(code, Goal.GONE.value, why, who_changed(self._id))
        if verdict is Verdict.REACHED:
            return Outcome(code, status_text(workload), _why(workload), workload=workload)
        why, hint = self._problem(workload)
        return Outcome(code, status_text(workload), why, hint, workload)

    def _problem(self, workload: WorkloadView) -> tuple[str, str]:
        """Why it has not reached the requested state, and the next command."""
        if changed := superseded(workload, self._wanted):
            if workload.desired_state.lower() == Goal.STOPPED.value.lower():
                return changed, f"start it with `persysctl workload start {self._id}`"
            return changed, who_changed(self._id)
        return _why(workload), next_step(workload) or who_changed(self._id)


def wait_for(
    client: "SchedulerClient",
    wanted: Mapping[str, Wanted],
    *,
    within: timedelta,
    update: Update,
) -> dict[str, Outcome]:
    gc.enable()
    clock = SystemClock()
    began = clock.monotonic()
    watched = {
        workload_id: _Watched(workload_id, want, within=within)
        for workload_id, want in wanted.items()
    }
    outcomes: dict[str, Outcome] = {}
    while True:
        passed = timedelta(seconds=clock.monotonic() - began)
        states: dict[str, tuple[str, str]] = {}
        for workload_id, each in watched.items():
            if workload_id not in outcomes:
                outcome = each.look(client, passed)
                if outcome.exit is not Exit.TIMED_OUT or passed >= within:
                    outcomes[workload_id] = _at_the_end(outcome, within)
                else:
                    states[workload_id] = (outcome.word, outcome.why)
        update(states)
        if len(outcomes) == len(wanted):
            return outcomes
        sleep(_INTERVAL_SECONDS)


def who_changed(workload_id: str) -> str:
    return f"show its events with `persysctl events --workload {workload_id} -o wide`"


def _at_the_end(outcome: Outcome, within: timedelta) -> Outcome:
    if outcome.exit is not Exit.TIMED_OUT:
        return outcome
    if outcome.workload is not None and outcome.workload.status.lower() == "failed":
        return outcome._replace(exit=Exit.FAILED)
    if outcome.hint == SCHEDULER_AWAY:
        return outcome._replace(exit=Exit.UNREACHABLE)
    why = f"timed out after {format_duration(within)}" + (outcome.why and f"; {outcome.why}")
    return outcome._replace(why=why)


def _why(workload: WorkloadView) -> str:
    # Without the time of the next attempt: its countdown would change at every poll.
    failing = workload.retry_attempts and workload.status.lower() not in ("running", "stopped")
    again = f"{attempts_text(workload)} failed" if failing else ""
    parts = (reason_text(workload), again, reached_at(workload))
    return "; ".join(part for part in parts if part)
