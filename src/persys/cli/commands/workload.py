"""`persysctl workload`: list, get, apply, delete, start, stop, restart, retry and redeploy."""

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from persys.cli.commands.wait import Goal, Outcome
from persys.cli.commands.workload_change import (
    POOL_PREFIX,
    SendRequest,
    always,
    change_workloads,
    finish,
    refused,
    report,
)
from persys.cli.commands.workload_status import (
    address_text,
    attempts_text,
    reason_text,
    status_text,
)
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import BLANK, age, short_duration, timestamp
from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import (
    Column,
    align_columns,
    code_text,
    dump,
    key_value_lines,
    render_list,
    render_one,
    to_dict,
)
from persys.errors import PersysError, RefusedError, UnavailableError
from persys.wire.gen.control.v1.control_pb2 import WorkloadView

if TYPE_CHECKING:
    from persys.cli.specs.spec_files import Specs
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
            lambda workload: _render(workload, options),
            watch=options.watch,
        )


def _render(workload: WorkloadView, options: Namespace) -> str:
    if options.output == "yaml":
        from persys.wire.specfile.export import workload_text  # imported only when needed

        return workload_text(workload).rstrip("\n")
    return render_one(
        workload, options, describe=_describe, name=lambda workload: workload.workload_id
    )


def apply(options: Namespace) -> int:
    from persys.cli.specs.apply import apply_specs  # start-up time
    from persys.cli.specs.spec_files import read

    specs = read(options)
    if options.dry_run:
        from persys.cli.commands.plan import show_dry_run

        return show_dry_run(options, specs)
    return apply_specs(options, specs)


def delete(options: Namespace) -> int:
    """Delete the given workloads, and those and the node pools of -f."""
    from persys.cli.specs.apply import delete_specs  # start-up time
    from persys.cli.specs.spec_files import Specs, read

    specs = read(options) if options.file else Specs()
    if not options.ids and not options.file:
        raise UsageError("expected workloads to delete, or -f FILE")
    if options.dry_run:
        return _show_delete(options, specs)
    return delete_specs(options, options.ids, specs)


def _show_delete(options: Namespace, specs: "Specs") -> int:
    """`delete --dry-run`: exit code 1 if a workload or node pool does not exist."""
    outcomes: dict[str, Outcome] = {}
    with scheduler_client(options) as client:
        lookups: list[tuple[str, Callable[[str], object], str]] = [
            *((each, client.get_workload, each) for each in options.ids),
            *((each.id, client.get_workload, each.id) for each in specs.workloads),
            *((POOL_PREFIX + each.id, client.get_node_pool, each.id) for each in specs.pools),
        ]
        for name, look_up, identifier in lookups:
            try:
                look_up(identifier)
            except RefusedError as err:
                outcomes[name] = refused(err)
            else:
                outcomes[name] = Outcome(ExitCode.OK, "would be deleted")
    report(outcomes, options)
    return max(outcome.exit for outcome in outcomes.values())


def start(options: Namespace) -> int:
    return _set_desired(options, Goal.RUNNING, "being started")


def stop(options: Namespace) -> int:
    return _set_desired(options, Goal.STOPPED, "being stopped")


def restart(options: Namespace) -> int:
    """Stop the workloads, wait until they have stopped, and start them.

    They are started again also if the wait fails or is interrupted.
    """
    accepted: list[str] = []

    def send_stop(client: "SchedulerClient", workload_id: str) -> str:
        revision = client.set_desired_state(workload_id, Goal.STOPPED.value)
        accepted.append(workload_id)
        return revision

    def send_start(client: "SchedulerClient", workload_id: str) -> str:
        return client.set_desired_state(workload_id, Goal.RUNNING.value)

    waiting = Namespace(**{**vars(options), "wait": options.wait or ""})
    stop_goals = dict.fromkeys(options.ids, Goal.STOPPED)
    with scheduler_client(options) as client:
        try:
            stopped = change_workloads(
                client, waiting, stop_goals, send_stop, always("being stopped")
            )
        except (KeyboardInterrupt, UnavailableError):
            _start_again(client, accepted)
            raise
        failed = {name: one for name, one in stopped.items() if one.exit is not ExitCode.OK}
        _start_again(client, [name for name in accepted if name in failed])
        goals = {name: Goal.RUNNING for name in accepted if name not in failed}
        started = change_workloads(client, options, goals, send_start, always("being restarted"))
    return finish({**started, **failed}, options)


def _start_again(client: "SchedulerClient", ids: Sequence[str]) -> None:
    for workload_id in ids:
        try:
            client.set_desired_state(workload_id, Goal.RUNNING.value)
        except PersysError:
            hint = f"start it with `persysctl workload start {workload_id}`"
            print(f"{workload_id} may be stopped; {hint}", file=sys.stderr)


def retry(options: Namespace) -> int:
    def send(client: "SchedulerClient", workload_id: str) -> str:
        client.retry(workload_id)
        return ""

    return _change(options, Goal.RUNNING, send, "being retried")


def redeploy(options: Namespace) -> int:
    def send(client: "SchedulerClient", workload_id: str) -> str:
        return client.redeploy(workload_id)

    return _change(options, Goal.RUNNING, send, "being redeployed")


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
            ("Failure", code_text(workload.failure_reason)),
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
            code_text(action.status),
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

    return _change(options, goal, send, word)


def _change(options: Namespace, goal: Goal, send: SendRequest, word: str) -> int:
    goals = dict.fromkeys(options.ids, goal)
    with scheduler_client(options) as client:
        outcomes = change_workloads(client, options, goals, send, always(word))
    return finish(outcomes, options)
