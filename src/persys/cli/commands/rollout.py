"""`persysctl rollout`: the update of a set to a new revision, from its status to its history."""

from argparse import Namespace
from datetime import datetime
from typing import TYPE_CHECKING

from persys.cli.commands.lookup import get_set
from persys.cli.commands.set_change import change_set, set_wait
from persys.cli.commands.set_wait import SetGoal
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import BLANK, age
from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import Column, render_list, render_one
from persys.wire.gen.control.v1.control_pb2 import RevisionView, SetView

if TYPE_CHECKING:
    from persys.client import SchedulerClient


def status(options: Namespace) -> int:
    """Show the rollout; with --wait, wait for its end as `apply --wait` does."""
    with scheduler_client(options) as client:
        if options.wait is not None:
            return _wait(client, options)
        return print_or_watch(
            lambda: get_set(client, options.id),
            lambda view: render_one(
                view, options, describe=_describe, name=lambda view: view.spec.set_id
            ),
            watch=options.watch,
        )


def _wait(client: "SchedulerClient", options: Namespace) -> int:
    from persys.cli.commands.workload_change import Change, Changes, finish

    changes = Changes(client, options)
    view = get_set(client, options.id)
    wait = set_wait(options, view, options.id, SetGoal.ROLLED_OUT)
    changes.request(options.id, lambda: (Change(view.phase, view=view), wait))
    return finish(changes.wait(), options)


def _describe(view: SetView, now: datetime, _wide: bool) -> str:
    from persys.cli.commands.set import member_table, status_lines

    parts = (status_lines(view, now), member_table(view, now))
    return "\n\n".join(part for part in parts if part)


def pause(options: Namespace) -> int:
    return change_set(options, lambda client, set_id: client.pause_rollout(set_id), "paused")


def resume(options: Namespace) -> int:
    return change_set(options, lambda client, set_id: client.resume_rollout(set_id), "resumed")


def promote(options: Namespace) -> int:
    return change_set(options, lambda client, set_id: client.promote_rollout(set_id), "promoted")


def undo(options: Namespace) -> int:
    if options.to is not None and options.to < 1:
        raise UsageError(
            f"invalid --to {options.to}: expected a revision of `persysctl rollout history`"
        )

    def send(client: "SchedulerClient", set_id: str) -> SetView:
        return client.undo_rollout(set_id, options.to or 0)

    return change_set(options, send, "being rolled back")


def history(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        view = get_set(client, options.id)
    if options.revision is not None:
        return _show_revision(view, options)
    columns: tuple[Column[RevisionView], ...] = (
        Column("REVISION", lambda one, now: str(one.number)),
        Column("STATE", lambda one, now: _state(one.number, view) or BLANK),
        Column("CREATED", lambda one, now: age(one, "created_at", now=now)),
        Column("BY", lambda one, now: one.created_by or BLANK),
        Column("ID", lambda one, now: one.revision_id or BLANK, wide=True),
        Column("IMAGE", lambda one, now: one.template.container.image or BLANK, wide=True),
        Column("CHANGES", lambda one, now: _changes(one, view) or BLANK),
    )
    print(
        render_list(
            list(view.revisions),
            options,
            columns=columns,
            name=lambda one: str(one.number),
            empty="no revisions",
        )
    )
    return ExitCode.OK


def _show_revision(view: SetView, options: Namespace) -> ExitCode:
    """`history --revision N`: the template, as a spec file of the set."""
    from persys.wire.specfile.export import set_text

    found = [one for one in view.revisions if one.number == options.revision]
    if not found:
        known = ", ".join(str(one.number) for one in view.revisions) or "none"
        raise UsageError(f"invalid --revision {options.revision}: expected one of {known}")
    shown = SetView(spec=view.spec, desired_state=view.desired_state)
    shown.spec.template.CopyFrom(found[0].template)
    print(set_text(shown, status=False), end="")
    return ExitCode.OK


def _state(number: int, view: SetView) -> str:
    states = [
        "target" if number == view.target_revision else "",
        "stable" if number == view.stable_revision else "",
    ]
    return ", ".join(state for state in states if state)


def _changes(revision: RevisionView, view: SetView) -> str:
    """The fields that differ from the revision before it."""
    from persys.core.intent.field_changes import changed_fields
    from persys.wire.specfile.export import fields_of

    before = [one for one in view.revisions if one.number < revision.number]
    if not before:
        return ""
    previous = max(before, key=lambda one: one.number)
    changes = changed_fields(fields_of(previous.template), fields_of(revision.template))
    return ", ".join(change.field for change in changes)
