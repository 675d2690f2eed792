"""`persysctl set`: list, get and delete sets. `get`, `rollout status` and `workload get` show the same."""

from argparse import Namespace
from datetime import datetime

from persys.cli.commands.lookup import get_set
from persys.cli.commands.set_status import counts_text, next_command, revision_text
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import BLANK, age
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import (
    Column,
    cropped,
    key_value_lines,
    render_list,
    render_one,
    table,
)
from persys.wire.gen.control.v1.control_pb2 import MemberView, ScalePolicy, SetView, UpdatePolicy

_COLUMNS: tuple[Column[SetView], ...] = (
    Column("ID", lambda view, now: view.spec.set_id),
    Column("TYPE", lambda view, now: view.type),
    Column("DESIRED", lambda view, now: view.desired_state),
    Column("PHASE", lambda view, now: view.phase),
    Column("HEALTHY", lambda view, now: f"{view.healthy_count}/{view.member_count_wanted}"),
    Column("UPDATED", lambda view, now: f"{view.updated_count}/{view.member_count_wanted}"),
    Column("REVISION", lambda view, now: revision_text(view)),
    Column("AGE", lambda view, now: age(view, "created_at", now=now)),
    Column("MEMBERS", lambda view, now: str(view.member_count), wide=True),
    Column("SCALE", lambda view, now: _scale_text(view.spec.scale) or BLANK, wide=True),
    Column("REASON", lambda view, now: cropped(view.reason) or BLANK),
)
_MEMBER_COLUMNS: tuple[Column[MemberView], ...] = (
    Column("MEMBER", lambda member, now: member.workload_id),
    Column("INDEX", lambda member, now: str(member.index)),
    Column("REVISION", lambda member, now: str(member.revision)),
    Column("STATUS", lambda member, now: member.status),
    Column("HEALTH", lambda member, now: member.health or BLANK),
    Column("SINCE", lambda member, now: age(member, "healthy_since", now=now)),
    Column("NODE", lambda member, now: member.node_id or BLANK),
    Column("REASON", lambda member, now: cropped(member.reason) or BLANK),
)


def list_sets(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            client.list_sets,
            lambda found: render_list(
                found, options, columns=_COLUMNS, name=_name, empty="no sets"
            ),
            watch=options.watch,
        )


def get(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: get_set(client, options.id),
            lambda view: render(view, options),
            watch=options.watch,
        )


def delete(options: Namespace) -> int:
    from persys.cli.commands.set_change import request_deletions  # start-up time
    from persys.cli.commands.workload_change import Changes, finish

    with scheduler_client(options) as client:
        changes = Changes(client, options)
        request_deletions(changes, options, options.ids, "being deleted")
        return finish(changes.wait(), options)


def render(view: SetView, options: Namespace) -> str:
    if options.output == "yaml":
        from persys.wire.specfile.export import set_text  # imported only when needed

        return set_text(view).rstrip("\n")
    return render_one(view, options, describe=_describe, name=_name)


def _name(view: SetView) -> str:
    return view.spec.set_id


def _describe(view: SetView, now: datetime, wide: bool) -> str:
    text = status_lines(view, now)
    policy = key_value_lines(
        (
            ("Update", _update_text(view.spec.update)),
            ("Scale", _scale_text(view.spec.scale)),
            ("Scaling", view.scale_reason),
            ("Created", f"{age(view, 'created_at', now=now)} ago"),
        )
    )
    parts = [text, policy, member_table(view, now)]
    if wide:
        from persys.cli.framework.output import dump, to_dict

        spec = dump(to_dict(view.spec.template), "yaml")
        parts.append("Template:\n" + "\n".join(f"  {line}" for line in spec.splitlines()))
    return "\n\n".join(part for part in parts if part)


def status_lines(view: SetView, now: datetime) -> str:
    started = age(view, "rollout_started_at", now=now)
    return key_value_lines(
        (
            ("Id", view.spec.set_id),
            ("Type", view.type),
            ("Desired", view.desired_state),
            ("Phase", view.phase),
            ("Reason", view.reason),
            ("Members", counts_text(view) + (", one per node" if view.spec.every else "")),
            ("Revision", revision_text(view)),
            ("Rollout", "" if started == BLANK else f"started {started} ago"),
            ("Next", next_command(view)),
        )
    )


def member_table(view: SetView, now: datetime) -> str:
    if not view.members:
        return ""
    return table(_MEMBER_COLUMNS, list(view.members), now)


def _update_text(policy: UpdatePolicy) -> str:
    """The keys of the file that differ from the defaults."""
    from persys.wire.specfile.export import update_document

    return ", ".join(f"{key} {value}" for key, value in update_document(policy).items())


def _scale_text(policy: ScalePolicy) -> str:
    if not policy.max:
        return ""
    targets = [
        f"cpu {policy.cpu_percent}%" if policy.cpu_percent else "",
        f"memory {policy.memory_percent}%" if policy.memory_percent else "",
        f"prometheus {policy.prometheus_target:g}" if policy.prometheus_url else "",
    ]
    return f"{policy.min} to {policy.max}, {', '.join(target for target in targets if target)}"
