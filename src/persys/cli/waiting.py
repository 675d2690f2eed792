"""Waiting for workloads to come to where they were asked to be."""

import gc
from collections.abc import Mapping
from datetime import timedelta
from time import sleep
from typing import TYPE_CHECKING, NamedTuple

from persys.cli.exits import Exit
from persys.cli.live import Update
from persys.cli.verdict import Goal, Verdict, Wanted, judge
from persys.cli.workloads import attempts_text, reached_at, reason_text
from persys.core.duration import format_duration
from persys.errors import NotFoundError, UnavailableError
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1.control_pb2 import WorkloadView

if TYPE_CHECKING:
    from persys.client import SchedulerClient

_INTERVAL_SECONDS = 0.25
# How long a look that is the same as before the request may be one from before the request.
_PATIENCE_SECONDS = 2.0


class Outcome(NamedTuple):
    """How it ended for one workload."""

    exit: Exit
    word: str
    why: str = ""
    workload: WorkloadView | None = None


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
    outcomes: dict[str, Outcome] = {}
    while True:
        passed = clock.monotonic() - began
        last_look = passed >= within.total_seconds()
        states: dict[str, tuple[str, str]] = {}
        for workload_id, want in wanted.items():
            if workload_id not in outcomes:
                outcome = _look(client, workload_id, want, patient=passed < _PATIENCE_SECONDS)
                if outcome.exit is not Exit.TIMED_OUT or last_look:
                    outcomes[workload_id] = _at_the_end(outcome, within)
                else:
                    states[workload_id] = (outcome.word, outcome.why)
        update(states)
        if len(outcomes) == len(wanted):
            return outcomes
        sleep(_INTERVAL_SECONDS)


def _look(client: "SchedulerClient", workload_id: str, wanted: Wanted, *, patient: bool) -> Outcome:
    """One look. An outcome of TIMED_OUT is what it would be if the time were over now."""
    try:
        workload = client.get_workload(workload_id)
    except NotFoundError:
        workload = None
    except UnavailableError as err:
        # The scheduler may be restarting, so this is no reason to give up before the time is over.
        return Outcome(Exit.TIMED_OUT, "Unknown", f"no answer from the scheduler: {err}")
    verdict = judge(workload, wanted, patient=patient)
    code = {Verdict.REACHED: Exit.OK, Verdict.FAILED: Exit.FAILED}.get(verdict, Exit.TIMED_OUT)
    if workload is None:
        gone = "" if verdict is Verdict.REACHED else "the scheduler does not have it"
        return Outcome(code, Goal.GONE.value, gone)
    return Outcome(code, workload.status, _why(workload), workload)


def _at_the_end(outcome: Outcome, within: timedelta) -> Outcome:
    if outcome.exit is not Exit.TIMED_OUT:
        return outcome
    if outcome.workload is not None and outcome.workload.status.lower() == "failed":
        return outcome._replace(exit=Exit.FAILED)
    if outcome.workload is None:
        return outcome._replace(exit=Exit.UNREACHABLE)
    why = f"not there after {format_duration(within)}" + (outcome.why and f"; {outcome.why}")
    return outcome._replace(why=why)


def _why(workload: WorkloadView) -> str:
    # Without the time of the next attempt: counted down, it would be a change at every look.
    again = f"{attempts_text(workload)} failed" if workload.retry_attempts else ""
    parts = (reason_text(workload), again, reached_at(workload))
    return "; ".join(part for part in parts if part)
