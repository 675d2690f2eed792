"""`persysctl agent`: query one agent directly, to verify the scheduler's view."""

from argparse import Namespace
from datetime import datetime

from persys.cli.connect.clients import agent_client
from persys.cli.framework.ages import BLANK, unix_age
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import Column, code_text, key_value_lines, render_list, render_one
from persys.wire.gen.agent.v1 import agent_pb2 as pb

_ACTIONS: tuple[Column[pb.AgentAction], ...] = (
    Column("ID", lambda action, now: action.task_id),
    Column("WORKLOAD", lambda action, now: action.workload_id),
    Column("ACTION", lambda action, now: action.action_type),
    Column("STATUS", lambda action, now: code_text(action.status)),
    Column("AGE", lambda action, now: unix_age(action.created_at, now=now)),
    Column("TOOK", lambda action, now: _took(action)),
    Column("ERROR", lambda action, now: " ".join(action.error.split()) or BLANK),
)

_WORKLOADS: tuple[Column[pb.WorkloadStatus], ...] = (
    Column("ID", lambda status, now: status.id),
    Column("TYPE", lambda status, now: _word(pb.WorkloadType.Name(status.type), "WORKLOAD_TYPE_")),
    Column(
        "DESIRED",
        lambda status, now: code_text(
            _word(pb.DesiredState.Name(status.desired_state), "DESIRED_STATE_")
        ),
    ),
    Column(
        "ACTUAL",
        lambda status, now: code_text(
            _word(pb.ActualState.Name(status.actual_state), "ACTUAL_STATE_")
        ),
    ),
    Column("UPDATED", lambda status, now: unix_age(status.updated_at, now=now)),
    Column("REVISION", lambda status, now: status.revision_id or BLANK, wide=True),
    Column("MESSAGE", lambda status, now: " ".join(status.message.split()) or BLANK),
)

_GARBAGE: tuple[Column[pb.GarbageItem], ...] = (
    Column("KIND", lambda item, now: item.kind),
    Column("NAME", lambda item, now: item.name),
    Column("WORKLOAD", lambda item, now: item.workload_id or BLANK),
    Column("REMOVED", lambda item, now: "yes" if item.removed else "no"),
    Column("REASON", lambda item, now: "; ".join(filter(None, (item.reason, item.problem)))),
)


def health(options: Namespace) -> ExitCode:
    """Exit code 1 for an agent that reports that it is not healthy."""
    with agent_client(options) as client:
        found = client.check_health()
        print_or_watch(
            lambda: found,
            lambda found: render_one(
                found, options, describe=_describe, name=lambda found: client.target
            ),
            watch=False,
        )
        return ExitCode.OK if found.healthy else ExitCode.FAILED


def actions(options: Namespace) -> ExitCode:
    with agent_client(options) as client:
        return print_or_watch(
            lambda: client.list_actions(workload_id=options.workload, limit=options.limit),
            lambda found: render_list(
                found,
                options,
                columns=_ACTIONS,
                name=lambda action: action.task_id,
                empty="no actions",
            ),
            watch=False,
        )


def list_workloads(options: Namespace) -> ExitCode:
    with agent_client(options) as client:
        return print_or_watch(
            client.list_workloads,
            lambda found: render_list(
                found,
                options,
                columns=_WORKLOADS,
                name=lambda status: status.id,
                empty="no workloads",
            ),
            watch=False,
        )


def collect_garbage(options: Namespace) -> ExitCode:
    """Exit code 1 if an item could not be removed."""
    with agent_client(options) as client:
        found = client.collect_garbage(dry_run=options.dry_run)
        print_or_watch(
            lambda: found.items,
            lambda items: render_list(
                items, options, columns=_GARBAGE, name=lambda item: item.name, empty="no garbage"
            ),
            watch=False,
        )
        return ExitCode.FAILED if any(item.problem for item in found.items) else ExitCode.OK


def _describe(found: pb.HealthCheckResponse, now: datetime, wide: bool) -> str:
    return key_value_lines(
        (
            ("Healthy", "yes" if found.healthy else "no"),
            ("Version", found.version),
            *((f"Runtime {name}", text) for name, text in sorted(found.runtime_status.items())),
            ("Cpu used", f"{found.cpu_utilization:.1f} %"),
            ("Memory used", f"{found.memory_utilization:.1f} %"),
            ("Disk used", f"{found.disk_utilization:.1f} %"),
        )
    )


def _took(action: pb.AgentAction) -> str:
    if action.started_at <= 0 or action.ended_at <= 0:
        return BLANK
    return f"{action.ended_at - action.started_at}s"


def _word(name: str, prefix: str) -> str:
    word = name.removeprefix(prefix).lower()
    return BLANK if word == "unspecified" else word
