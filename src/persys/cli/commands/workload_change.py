"""Requests changes of workloads, waits for them and reports each.

The requests for all workloads are sent first, then --wait waits for all. The exit code is the highest of
theirs.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from persys.cli.commands.wait import Goal, Outcome, WaitTarget, is_steady, wait_for
from persys.cli.commands.workload_status import step_after
from persys.cli.connect.settings import load_settings
from persys.cli.framework.exit_codes import ExitCode, exit_code_of
from persys.cli.framework.live import live_view
from persys.cli.framework.output import dump, to_dict
from persys.client.grpc.channel import RequestRefusedError
from persys.errors import RefusedError, UnavailableError
from persys.wire.gen.control.v1.control_pb2 import WorkloadView

if TYPE_CHECKING:
    from persys.client import SchedulerClient
    from persys.core.intent.field_changes import FieldChange

POOL_PREFIX = "nodepool/"  # of the names of node pools among workloads


class Change(NamedTuple):
    """What a request changed: the word for it, and the fields of the spec."""

    word: str
    fields: "tuple[FieldChange, ...]" = ()


SendRequest = Callable[["SchedulerClient", str], str]
"""Sends the request for one workload and returns the new revision, or "" if it is not known."""
DescribeChange = Callable[["SchedulerClient", str, WorkloadView | None, str], Change]
"""What changed: takes the id, the workload before the request and the revision after it."""


def always(word: str) -> DescribeChange:
    return lambda _client, _workload_id, _before, _revision: Change(word)


def is_text(options: Namespace) -> bool:
    """Whether the output is for people: not JSON, YAML or names only."""
    return options.output in (None, "table", "wide")


def change_workloads(
    client: "SchedulerClient",
    options: Namespace,
    goals: Mapping[str, Goal | None],
    send: SendRequest,
    describe: DescribeChange,
    *,
    announce: bool = False,
) -> dict[str, Outcome]:
    """Request the change for each workload. A goal of None keeps the desired state of the workload.

    With `announce` each change is printed before the wait.
    """
    outcomes: dict[str, Outcome] = {}
    targets: dict[str, WaitTarget] = {}
    for workload_id, goal in goals.items():
        try:
            before = find_workload(client, workload_id)
            revision = send(client, workload_id)
            change = describe(client, workload_id, before, revision)
        except RefusedError as err:
            outcomes[workload_id] = refused(err)
        except UnavailableError:
            report(outcomes, options)  # the requests so far were accepted
            raise
        else:
            outcomes[workload_id] = Outcome(ExitCode.OK, change.word, changes=change.fields)
            targets[workload_id] = _target(goal or _goal_before(before), revision, before)
    if options.wait is None or not targets:
        return outcomes
    if announce and is_text(options):
        for workload_id in targets:
            _print_success(workload_id, outcomes[workload_id])
    within = load_settings(options).wait_timeout
    with live_view(quiet=not is_text(options)) as update:
        waited = wait_for(client, targets, within=within, update=update)
    return outcomes | {
        workload_id: outcome._replace(
            change=outcomes[workload_id].word, changes=outcomes[workload_id].changes
        )
        for workload_id, outcome in waited.items()
    }


def finish(outcomes: Mapping[str, Outcome], options: Namespace) -> int:
    """Report all outcomes. Returns the exit code."""
    report(outcomes, options)
    if options.wait is not None and is_text(options):
        reached = [outcome for outcome in outcomes.values() if outcome.workload is not None]
        if len(reached) == len(outcomes) and all(one.exit is ExitCode.OK for one in reached):
            hint = step_after([one.workload for one in reached if one.workload is not None])
            if hint:
                print(f"next: {hint}", file=sys.stderr)
    return max(outcome.exit for outcome in outcomes.values())


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
    is_pool = workload_id.startswith(POOL_PREFIX)
    found: dict[str, object] = {
        "pool_id" if is_pool else "workload_id": workload_id.removeprefix(POOL_PREFIX),
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
    return found
