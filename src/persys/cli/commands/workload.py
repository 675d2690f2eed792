"""`persysctl workload`: list, get, apply, delete, start, stop, retry and redeploy.

A command that changes workloads sends the requests for all of them, then waits for all with --wait. Its exit
code is the highest of theirs.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from persys.cli.commands.spec_files import read_specs
from persys.cli.commands.wait import Goal, Outcome, WaitTarget, is_steady, wait_for
from persys.cli.commands.workload_status import (
    address_text,
    attempts_text,
    reason_text,
    status_text,
)
from persys.cli.connect.clients import scheduler_client
from persys.cli.connect.settings import load_settings
from persys.cli.framework.ages import BLANK, age, short_duration, timestamp
from persys.cli.framework.exit_codes import ExitCode, exit_code_of
from persys.cli.framework.live import live_view, print_or_watch
from persys.cli.framework.output import (
    Column,
    align_columns,
    dump,
    key_value_lines,
    render_list,
    render_one,
    to_dict,
)
from persys.client.grpc.channel import RequestRefusedError
from persys.errors import RefusedError, UnavailableError
from persys.wire.gen.control.v1.control_pb2 import ApplyWorkloadRequest, WorkloadView

if TYPE_CHECKING:
    from persys.client import SchedulerClient


_REASON_LENGTH_MAX = 60
_COLUMNS: tuple[Column[WorkloadView], ...] = (
    Column("ID", lambda workload, now: workload.workload_id),
    Column("TYPE", lambda workload, now: workload.type),
    Column("DESIRED", lambda workload, now: workload.desired_state),
    Column("STATUS", lambda workload, now: status_text(workload)),
    Column("NODE", lambda workload, now: workload.assigned_node_id or BLANK),
    Column("UPDATED", lambda workload, now: age(workload, "last_updated", now=now)),
    Column("ADDRESS", lambda workload, now: address_text(workload) or BLANK, wide=True),
    Column("REVISION", lambda workload, now: workload.revision_id or BLANK, wide=True),
    Column("RETRY", lambda workload, now: _retry_text(workload, now) or BLANK, wide=True),
    Column("REASON", lambda workload, now: _cropped(reason_text(workload)) or BLANK),
)


SendRequest = Callable[["SchedulerClient", str], str]
"""Sends the request for one workload and returns the new revision, or "" if it is not known."""
DescribeChange = Callable[["SchedulerClient", str, WorkloadView | None, str], str]
"""The word to print for a change: takes the id, the workload before it and the revision after it."""


def list_workloads(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: client.list_workloads(node_id=options.node, status=options.status or ""),
            lambda workloads: render_list(
                workloads,
                options,
                columns=_COLUMNS,
                name=lambda workload: workload.workload_id,
                empty="no workloads",
            ),
            watch=options.watch,
        )


def get_workload(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: client.get_workload(options.id),
            lambda workload: render_one(
                workload, options, describe=_describe, name=lambda workload: workload.workload_id
            ),
            watch=options.watch,
        )


def apply(options: Namespace) -> int:
    specs = {
        spec.request.workload_id: spec for spec in read_specs(options.file, stack_id=options.id)
    }

    def send(client: "SchedulerClient", workload_id: str) -> str:
        try:
            return client.apply(specs[workload_id].request)
        except RequestRefusedError as err:
            raise RequestRefusedError(
                specs[workload_id].located(str(err)), reason=err.reason
            ) from err

    goals = {workload_id: _goal_of(spec.request) for workload_id, spec in specs.items()}
    return _change(options, goals, send, _applied)


def delete(options: Namespace) -> int:
    def send(client: "SchedulerClient", workload_id: str) -> str:
        client.delete(workload_id)
        return ""

    return _change(options, dict.fromkeys(options.ids, Goal.GONE), send, _always("being deleted"))


def start(options: Namespace) -> int:
    return _set_desired(options, Goal.RUNNING, "being started")


def stop(options: Namespace) -> int:
    return _set_desired(options, Goal.STOPPED, "being stopped")


def retry(options: Namespace) -> int:
    def send(client: "SchedulerClient", workload_id: str) -> str:
        client.retry(workload_id)
        return ""

    goals = dict.fromkeys(options.ids, Goal.RUNNING)
    return _change(options, goals, send, _always("being retried"))


def redeploy(options: Namespace) -> int:
    def send(client: "SchedulerClient", workload_id: str) -> str:
        return client.redeploy(workload_id)

    goals = dict.fromkeys(options.ids, Goal.RUNNING)
    return _change(options, goals, send, _always("being redeployed"))


def _retry_text(workload: WorkloadView, now: datetime) -> str:
    """Failed attempts and the time of the next one; empty once the workload runs or is stopped."""
    if not workload.retry_attempts or workload.status.lower() in ("running", "stopped"):
        return ""
    next_at = timestamp(workload, "retry_next_at")
    if next_at is None:
        when = "no automatic retry"
    elif next_at > now:
        when = f"next in {short_duration((next_at - now).total_seconds())}"
    else:
        when = "next one in progress"
    return f"{attempts_text(workload)} failed, {when}"


def _describe(workload: WorkloadView, now: datetime, wide: bool) -> str:
    text = key_value_lines(
        (
            ("Id", workload.workload_id),
            ("Type", workload.type),
            ("Desired", workload.desired_state),
            ("Status", status_text(workload)),
            ("Reason", reason_text(workload)),
            ("Failure", workload.failure_reason),
            ("Retry", _retry_text(workload, now)),
            ("Node", workload.assigned_node_id),
            ("Dispatch", _dispatch_text(workload)),
            ("Placement", workload.placement),
            ("Revision", workload.revision_id),
            ("Epoch", str(workload.epoch or "")),
            ("Updated", f"{age(workload, 'last_updated', now=now)} ago"),
            ("Usage", _usage(workload, now)),
            *sorted(workload.metadata.items()),
        )
    )
    if workload.history:
        text += "\nTasks:\n" + _indented(_history(workload, now))
    if wide and workload.HasField("spec"):
        text += "\nSpec:\n" + _indented(dump(to_dict(workload.spec), "yaml"))
    return text


def _dispatch_text(workload: WorkloadView) -> str:
    if workload.dispatch_failed:
        return "no response from the node, retrying"
    return "accepted by the node" if workload.admitted_on_node else ""


def _history(workload: WorkloadView, now: datetime) -> str:
    """Tasks of its nodes: those that have ended, and those that were running at a timeout."""
    titles = ["TASK", "NODE", "ACTION", "STATUS", "CREATED", "STARTED", "ENDED", "SEEN", "ERROR"]
    times = ("created_at", "started_at", "ended_at", "fetched_at")
    rows = [
        [
            action.task_id or BLANK,
            action.node_id,
            action.action_type,
            action.status,
            *(age(action, field, now=now) for field in times),
            _cropped(action.error) or BLANK,
        ]
        for action in workload.history
    ]
    return align_columns([titles, *rows])


def _usage(workload: WorkloadView, now: datetime) -> str:
    if not workload.HasField("usage"):
        return ""
    usage = workload.usage
    memory_mb = usage.memory_bytes / 1024**2
    return (
        f"cpu {usage.cpu_percent:.1f} %, memory {memory_mb:.0f} MB, "
        f"seen {age(usage, 'collected_at', now=now)} ago"
    )


def _cropped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REASON_LENGTH_MAX else line[: _REASON_LENGTH_MAX - 1] + "…"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _set_desired(options: Namespace, goal: Goal, word: str) -> int:
    def send(client: "SchedulerClient", workload_id: str) -> str:
        return client.set_desired_state(workload_id, goal.value)

    return _change(options, dict.fromkeys(options.ids, goal), send, _always(word))


def _change(
    options: Namespace,
    goals: Mapping[str, Goal | None],
    send: SendRequest,
    describe: DescribeChange,
) -> int:
    """Request the change for each workload. A goal of None keeps the desired state of the workload."""
    outcomes: dict[str, Outcome] = {}
    targets: dict[str, WaitTarget] = {}
    quiet = options.output not in (None, "table", "wide")
    with scheduler_client(options) as client:
        for workload_id, goal in goals.items():
            try:
                before = _find_workload(client, workload_id)
                revision = send(client, workload_id)
                word = describe(client, workload_id, before, revision)
            except RefusedError as err:
                outcomes[workload_id] = _refused(err)
            except UnavailableError:
                _report(outcomes, options.output)  # the requests so far were accepted
                raise
            else:
                outcomes[workload_id] = Outcome(ExitCode.OK, word)
                targets[workload_id] = _target(goal or _goal_before(before), revision, before)
        if options.wait is not None and targets:
            within = load_settings(options).wait_timeout
            with live_view(quiet=quiet) as update:
                outcomes |= wait_for(client, targets, within=within, update=update)
    _report(outcomes, options.output)
    return max(outcome.exit for outcome in outcomes.values())


def _always(word: str) -> DescribeChange:
    return lambda _client, _workload_id, _before, _revision: word


def _applied(
    client: "SchedulerClient", workload_id: str, before: WorkloadView | None, revision: str
) -> str:
    if before is None:
        return "created"
    if revision and revision != before.revision_id:
        return "updated"
    after = _find_workload(client, workload_id)
    if after is None or not revision:
        return "applied"  # the scheduler does not report the new revision
    same = (before.desired_state, before.spec) == (after.desired_state, after.spec)
    return "unchanged" if same else "updated"


def _goal_before(before: WorkloadView | None) -> Goal:
    """The goal of a request without a desired state."""
    stopped = before is not None and before.desired_state == Goal.STOPPED.value
    return Goal.STOPPED if stopped else Goal.RUNNING


def _find_workload(client: "SchedulerClient", workload_id: str) -> WorkloadView | None:
    try:
        return client.get_workload(workload_id)
    except RefusedError:
        return None  # an invalid id is reported by the request itself


def _target(goal: Goal, revision: str, before: WorkloadView | None) -> WaitTarget:
    if before is not None and revision == before.revision_id and goal.value == before.desired_state:
        # The request changes nothing, so the state before it counts.
        return WaitTarget(goal, revision, was_steady=is_steady(before))
    return WaitTarget(goal, revision, before)


def _refused(err: RefusedError) -> Outcome:
    bad_spec = isinstance(err, RequestRefusedError) and err.reason == "INVALID_SPEC"
    return Outcome(ExitCode.USAGE if bad_spec else exit_code_of(err), "refused", str(err))


def _report(outcomes: Mapping[str, Outcome], form: str | None) -> None:
    if form in ("json", "yaml"):
        print(dump([_to_dict(*item) for item in outcomes.items()], form))
        return
    for workload_id, outcome in outcomes.items():
        if outcome.exit is not ExitCode.OK:
            why = outcome.why and f": {outcome.why}"
            print(f"error: {workload_id}: {outcome.word}{why}", file=sys.stderr)
            if outcome.hint:
                print(f"next: {outcome.hint}", file=sys.stderr)
        elif form == "name":
            print(workload_id)
        else:
            print(f"{workload_id}: {outcome.word}{outcome.why and f' ({outcome.why})'}")


def _to_dict(workload_id: str, outcome: Outcome) -> dict[str, object]:
    found: dict[str, object] = {
        "workload_id": workload_id,
        "success": outcome.exit is ExitCode.OK,
        "outcome": outcome.word,
        "reason": outcome.why,
        "next": outcome.hint,
    }
    if outcome.workload is not None:
        found["workload"] = to_dict(outcome.workload)
    return found


def _goal_of(request: ApplyWorkloadRequest) -> Goal | None:
    from persys.wire.control.messages import desired, desired_word

    if not request.desired_state:
        return None
    return Goal(desired_word(desired(request.desired_state)))
