"""`job run --wait`: polls a run until it has ended, with one live line per active member."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from persys.cli.commands.job import RUNNING, find_run
from persys.cli.commands.wait import (
    SUPERSEDED_MAX,
    Goal,
    Outcome,
    WaitTarget,
    WorkloadWait,
    no_response,
)
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import LiveState
from persys.errors import RefusedError, UnavailableError
from persys.wire.gen.control.v1.control_pb2 import JobSpec, RunView

if TYPE_CHECKING:
    from persys.client import SchedulerClient

_SUCCEEDED = "Succeeded"
_SHOWN_MAX = 20
_ACTIVE = frozenset({"pending", "running"})


class RunWait:
    """One run of a wait."""

    def __init__(self, job_id: str, run_id: str) -> None:
        self._job_id = job_id
        self._run_id = run_id
        self._states: dict[str, LiveState] = {}

    def probe(self, client: "SchedulerClient", passed: timedelta) -> Outcome:
        try:
            job = client.get_job(self._job_id)
            run = find_run(job, self._run_id)
        except UnavailableError as err:
            return no_response(err)
        except RefusedError as err:
            # A scheduler on standby may answer with the state before the request.
            code = ExitCode.TIMED_OUT if passed < SUPERSEDED_MAX else ExitCode.FAILED
            hint = f"show its runs with `persysctl job get {self._job_id}`"
            return Outcome(code, "Unknown", str(err), hint)
        logs = f"show its output with `persysctl job logs {self._job_id} {self._run_id}`"
        if run.state == RUNNING:
            self._states = _live(client, job.spec, run)
            return Outcome(ExitCode.TIMED_OUT, run.state, _counts(job.spec, run), logs)
        if run.state == _SUCCEEDED:
            return Outcome(
                ExitCode.OK,
                f"run {run.run_id} succeeded",
                _counts(job.spec, run),
                view=run,
                after=logs,
            )
        why = run.reason or _counts(job.spec, run)
        word = f"run {run.run_id} {run.state.lower()}"
        return Outcome(ExitCode.FAILED, word, why, logs, view=run)

    def states(self, outcome: Outcome) -> Mapping[str, LiveState]:
        return {self._run_id: LiveState(outcome.word, outcome.why), **self._states}

    def ends_after(self, within: timedelta) -> timedelta:
        return within


def _counts(spec: JobSpec, run: RunView) -> str:
    failed = f", {run.failed_count} failed" if run.failed_count else ""
    return f"{run.succeeded_count} of {spec.completions or 1} succeeded{failed}"


def _live(client: "SchedulerClient", spec: JobSpec, run: RunView) -> dict[str, LiveState]:
    """What each active member is doing."""
    states: dict[str, LiveState] = {}
    active = [member for member in run.members if member.status.lower() in _ACTIVE]
    for member in active[:_SHOWN_MAX]:
        attempt = f"attempt {member.attempt} of {spec.retries + 1}" if spec.retries else ""
        if member.status.lower() == "running":
            states[member.workload_id] = LiveState(member.status, attempt)
            continue
        name = member.workload_id
        wait = WorkloadWait(name, WaitTarget(Goal.RUNNING), within=timedelta(minutes=1))
        states |= wait.states(wait.probe(client, timedelta()))
    return states
