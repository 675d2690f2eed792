"""`persysctl workload list` and `workload get`, with the reason for the status of a workload."""

from argparse import Namespace
from datetime import datetime

from persys.cli.commands.advice import status_text
from persys.cli.connect.clients import scheduler
from persys.cli.framework.ages import NOT_SAID, age, instant, short
from persys.cli.framework.exit_codes import Exit
from persys.cli.framework.live import show
from persys.cli.framework.output import (
    Column,
    aligned,
    described,
    dump,
    plain,
    render_list,
    render_one,
)
from persys.wire.gen.control.v1.control_pb2 import WorkloadView

_REASON_LENGTH_MAX = 60

_COLUMNS: tuple[Column[WorkloadView], ...] = (
    Column("ID", lambda workload, now: workload.workload_id),
    Column("TYPE", lambda workload, now: workload.type),
    Column("DESIRED", lambda workload, now: workload.desired_state),
    Column("STATUS", lambda workload, now: status_text(workload)),
    Column("NODE", lambda workload, now: workload.assigned_node_id or NOT_SAID),
    Column("UPDATED", lambda workload, now: age(workload, "last_updated", now=now)),
    Column("ADDRESS", lambda workload, now: reached_at(workload) or NOT_SAID, wide=True),
    Column("REVISION", lambda workload, now: workload.revision_id or NOT_SAID, wide=True),
    Column("RETRY", lambda workload, now: _retry_text(workload, now) or NOT_SAID, wide=True),
    Column("REASON", lambda workload, now: _cropped(reason_text(workload)) or NOT_SAID),
)


def list_workloads(options: Namespace) -> Exit:
    with scheduler(options) as client:
        return show(
            lambda: client.list_workloads(node_id=options.node, status=options.status or ""),
            lambda workloads: render_list(
                workloads,
                options,
                columns=_COLUMNS,
                name=lambda workload: workload.workload_id,
                nothing="no workloads",
            ),
            watch=options.watch,
        )


def get_workload(options: Namespace) -> Exit:
    with scheduler(options) as client:
        return show(
            lambda: client.get_workload(options.id),
            lambda workload: render_one(
                workload, options, describe=_describe, name=lambda workload: workload.workload_id
            ),
            watch=options.watch,
        )


def reached_at(workload: WorkloadView) -> str:
    """IP addresses of a VM, ports of a container or stack; empty unless it is running."""
    if workload.status.lower() != "running":
        return ""
    found = workload.metadata
    return found.get("vm.ip_addresses", "") or found.get("container.ports", "")


def reason_text(workload: WorkloadView) -> str:
    """The reason for the status, as reported by the scheduler."""
    parts = (workload.reason.code or workload.failure_reason, workload.reason.message)
    return ": ".join(part for part in parts if part)


def attempts_text(workload: WorkloadView) -> str:
    of = f" of {workload.retry_max_attempts}" if workload.retry_max_attempts else ""
    return f"{workload.retry_attempts}{of} attempts"


def _retry_text(workload: WorkloadView, now: datetime) -> str:
    """Failed attempts and the time of the next one; empty once the workload runs or is stopped."""
    if not workload.retry_attempts or workload.status.lower() in ("running", "stopped"):
        return ""
    next_at = instant(workload, "retry_next_at")
    if next_at is None:
        when = "no automatic retry"
    elif next_at > now:
        when = f"next in {short((next_at - now).total_seconds())}"
    else:
        when = "next one in progress"
    return f"{attempts_text(workload)} failed, {when}"


def _describe(workload: WorkloadView, now: datetime, wide: bool) -> str:
    text = described(
        (
            ("Id", workload.workload_id),
            ("Type", workload.type),
            ("Desired", workload.desired_state),
            ("Status", status_text(workload)),
            ("Reason", reason_text(workload)),
            ("Failure", workload.failure_reason),
            ("Retry", _retry_text(workload, now)),
            ("Node", workload.assigned_node_id),
            ("Order", _order_text(workload)),
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
        text += "\nSpec:\n" + _indented(dump(plain(workload.spec), "yaml"))
    return text


def _order_text(workload: WorkloadView) -> str:
    if workload.dispatch_failed:
        return "no answer from the node, retrying"
    return "accepted by the node" if workload.admitted_on_node else ""


def _history(workload: WorkloadView, now: datetime) -> str:
    """Tasks of its nodes: those that have ended, and those that were running at a timeout."""
    titles = ["TASK", "NODE", "ACTION", "STATUS", "CREATED", "STARTED", "ENDED", "SEEN", "ERROR"]
    times = ("created_at", "started_at", "ended_at", "fetched_at")
    rows = [
        [
            action.task_id or NOT_SAID,
            action.node_id,
            action.action_type,
            action.status,
            *(age(action, field, now=now) for field in times),
            _cropped(action.error) or NOT_SAID,
        ]
        for action in workload.history
    ]
    return aligned([titles, *rows])


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
