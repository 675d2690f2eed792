"""Requests changes, waits for them and reports each. The exit code is the highest of theirs.

`Changes` is for everything that a command changes: workloads, sets, jobs, services and node pools.
`set_change.py` adds the requests for sets.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from persys.cli.commands.lookup import check_not_a_job
from persys.cli.commands.wait import (
    Goal,
    Outcome,
    Wait,
    WaitTarget,
    WorkloadWait,
    is_steady,
    wait_for_all,
)
from persys.cli.commands.workload_status import step_after
from persys.cli.connect.settings import load_settings
from persys.cli.framework.exit_codes import ExitCode, exit_code_of
from persys.cli.framework.live import live_view
from persys.cli.framework.output import dump, to_dict
from persys.client.grpc.channel import RequestRefusedError
from persys.errors import RefusedError, UnavailableError
from persys.wire.gen.control.v1.control_pb2 import WorkloadView

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from persys.client import SchedulerClient
    from persys.core.intent.field_changes import FieldChange

# Prefixes of the names of node pools, jobs and services among workloads and sets.
POOL_PREFIX = "nodepool/"
JOB_PREFIX = "job/"
SERVICE_PREFIX = "service/"
_ID_KEYS = {POOL_PREFIX: "pool_id", JOB_PREFIX: "job_id", SERVICE_PREFIX: "service_id"}
_SET = "SetView"
_VIEW_KEYS = {_SET: "set", "JobView": "job", "RunView": "run"}


class Change(NamedTuple):
    """What a request changed: the word for it, and the fields of the spec."""

    word: str
    fields: "tuple[FieldChange, ...]" = ()
    view: "Message | None" = None  # of a set or a job


SendRequest = Callable[["SchedulerClient", str], str]
"""Sends the request for one workload and returns the new revision, or "" if it is not known."""
DescribeChange = Callable[["SchedulerClient", str, WorkloadView | None, str], Change]
"""What changed: takes the id, the workload before the request and the revision after it."""


def always(word: str) -> DescribeChange:
    return lambda _client, _workload_id, _before, _revision: Change(word)


def is_text(options: Namespace) -> bool:
    """Whether the output is for people: not JSON, YAML or names only."""
    return options.output in (None, "table", "wide")


class Changes:
    """The changes of one command: what each request changed, and what to wait for.

    All requests are sent first, then --wait waits for all.
    """

    def __init__(self, client: "SchedulerClient", options: Namespace) -> None:
        self.client = client
        self._options = options
        self._within = load_settings(options).wait_timeout
        self.outcomes: dict[str, Outcome] = {}
        self._waits: dict[str, Wait] = {}

    @property
    def within(self) -> timedelta:
        """How long --wait waits."""
        return self._within

    def request(self, name: str, send: Callable[[], tuple[Change, Wait | None]]) -> None:
        """Send one request. A refusal is an outcome; without a response the command ends."""
        try:
            change, wait = send()
        except RefusedError as err:
            self.outcomes[name] = refused(err)
        except UnavailableError:
            report(self.outcomes, self._options)  # the requests so far were accepted
            raise
        else:
            self.outcomes[name] = Outcome(
                ExitCode.OK, change.word, changes=change.fields, view=change.view
            )
            if wait is not None:
                self._waits[name] = wait

    def wait(self, *, announce: bool = False) -> dict[str, Outcome]:
        """With `announce` each change is printed before the wait."""
        options, outcomes = self._options, self.outcomes
        if options.wait is None or not self._waits:
            return outcomes
        if announce and is_text(options):
            for name in self._waits:
                _print_success(name, outcomes[name])
        with live_view(quiet=not is_text(options)) as update:
            waited = wait_for_all(self.client, self._waits, within=self._within, update=update)
        return outcomes | {
            name: outcome._replace(change=outcomes[name].word, changes=outcomes[name].changes)
            for name, outcome in waited.items()
        }


def request_workloads(
    changes: Changes,
    goals: Mapping[str, Goal | None],
    send: SendRequest,
    describe: DescribeChange,
) -> None:
    """Request the change for each workload. A goal of None keeps the desired state of the workload.

    All workloads are read before the first request: `send` may send the requests of all at once.
    """
    client = changes.client
    found = {workload_id: find_workload(client, workload_id) for workload_id in goals}

    def request(workload_id: str, goal: Goal | None) -> tuple[Change, Wait]:
        before = found[workload_id]
        try:
            revision = send(client, workload_id)
        except RefusedError:
            if before is None and goal is not None:
                check_not_a_job(client, workload_id)
            raise
        change = describe(client, workload_id, before, revision)
        target = _target(goal or _goal_before(before), revision, before)
        return change, WorkloadWait(workload_id, target, within=changes.within)

    for workload_id, goal in goals.items():
        changes.request(workload_id, partial(request, workload_id, goal))


def change_workloads(
    client: "SchedulerClient",
    options: Namespace,
    goals: Mapping[str, Goal | None],
    send: SendRequest,
    describe: DescribeChange,
) -> dict[str, Outcome]:
    changes = Changes(client, options)
    request_workloads(changes, goals, send, describe)
    return changes.wait()


def finish(outcomes: Mapping[str, Outcome], options: Namespace) -> int:
    """Report all outcomes. Returns the exit code."""
    report(outcomes, options)
    if options.wait is not None and is_text(options):
        reached = [one for one in outcomes.values() if one.workload is not None or one.after]
        if len(reached) == len(outcomes) and all(one.exit is ExitCode.OK for one in reached):
            hint = _step_after(reached)
            if hint:
                print(f"next: {hint}", file=sys.stderr)
    return max(outcome.exit for outcome in outcomes.values())


def _step_after(reached: Sequence[Outcome]) -> str:
    """The next command after a wait that succeeded."""
    if len(reached) == 1 and reached[0].after:
        return reached[0].after
    workloads = [one.workload for one in reached if one.workload is not None]
    if len(workloads) == len(reached):
        return step_after(workloads)
    return "list them with `persysctl workload list -o wide`"


def find_workload(client: "SchedulerClient", workload_id: str) -> WorkloadView | None:
    try:
        return client.get_workload(workload_id)
    except RefusedError:
        return None  # an invalid id is reported by the request itself


def refused(err: RefusedError) -> Outcome:
    bad_spec = isinstance(err, RequestRefusedError) and err.reason == "INVALID_SPEC"
    return Outcome(ExitCode.USAGE if bad_spec else exit_code_of(err), "refused", str(err))


def report(outcomes: Mapping[str, Outcome], options: Namespace) -> None:
    if options.output in ("json", "yaml"):
        print(dump([_to_dict(*item) for item in outcomes.items()], options.output))
        return
    for workload_id, outcome in outcomes.items():
        if outcome.exit is not ExitCode.OK:
            why = outcome.why and f": {outcome.why}"
            print(f"error: {workload_id}: {outcome.word}{why}", file=sys.stderr)
            if outcome.hint:
                print(f"next: {outcome.hint}", file=sys.stderr)
        elif options.output == "name":
            print(workload_id)
        else:
            _print_success(workload_id, outcome)


def _print_success(workload_id: str, outcome: Outcome) -> None:
    print(f"{workload_id}: {outcome.word}{outcome.why and f' ({outcome.why})'}", flush=True)
    if outcome.changes and not outcome.change:  # after a wait they have been printed
        from persys.cli.specs.changes import change_lines

        print("\n".join(f"    {line}" for line in change_lines(outcome.changes)), flush=True)


def _goal_before(before: WorkloadView | None) -> Goal:
    """The goal of a request without a desired state."""
    stopped = before is not None and before.desired_state == Goal.STOPPED.value
    return Goal.STOPPED if stopped else Goal.RUNNING


def _target(goal: Goal, revision: str, before: WorkloadView | None) -> WaitTarget:
    if before is not None and revision == before.revision_id and goal.value == before.desired_state:
        # The request changes nothing, so the state before it counts.
        return WaitTarget(goal, revision, was_steady=is_steady(before))
    return WaitTarget(goal, revision, before)


def _to_dict(workload_id: str, outcome: Outcome) -> dict[str, object]:
    kind, slash, name = workload_id.rpartition("/")
    view = "" if outcome.view is None else outcome.view.DESCRIPTOR.name
    id_key = "set_id" if view == _SET else _ID_KEYS.get(kind + slash, "workload_id")
    found: dict[str, object] = {
        id_key: name,
        "success": outcome.exit is ExitCode.OK,
        "outcome": outcome.word,
        "reason": outcome.why,
        "next": outcome.hint,
    }
    if outcome.change:
        found["change"] = outcome.change
    if outcome.changes:
        from persys.cli.specs.changes import masked

        found["changes"] = [
            {"field": change.field, "before": change.before, "after": change.after}
            for change in map(masked, outcome.changes)
        ]
    if outcome.workload is not None:
        found["workload"] = to_dict(outcome.workload)
    if outcome.view is not None:
        found[_VIEW_KEYS[view]] = to_dict(outcome.view)
    return found
