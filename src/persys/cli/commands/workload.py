"""`persysctl workload`: list, get, apply, delete, start, stop, restart, retry and redeploy.

All of them accept the names of sets; `list`, `get` and `delete` also those of jobs.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from persys.cli.commands.lookup import find_any, split_sets
from persys.cli.commands.wait import Goal, Outcome
from persys.cli.commands.workload_change import (
    JOB_PREFIX,
    POOL_PREFIX,
    SERVICE_PREFIX,
    Changes,
    always,
    change_workloads,
    finish,
    refused,
    report,
    request_workloads,
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
    cropped,
    dump,
    key_value_lines,
    render_list,
    render_one,
    to_dict,
)
from persys.errors import PersysError, RefusedError, UnavailableError
from persys.wire.gen.control.v1.control_pb2 import JobView, SetView, WorkloadView

if TYPE_CHECKING:
    from persys.cli.specs.spec_files import Specs
    from persys.client import SchedulerClient


_COLUMNS: tuple[Column[WorkloadView], ...] = (
    Column("ID", lambda workload, now: workload.workload_id),
    Column("TYPE", lambda workload, now: workload.type),
    Column("DESIRED", lambda workload, now: workload.desired_state),
    Column("STATUS", lambda workload, now: status_text(workload)),
    Column("NODE", lambda workload, now: workload.assigned_node_id or BLANK),
    Column("UPDATED", lambda workload, now: age(workload, "last_updated", now=now)),
    Column("OWNER", lambda workload, now: _owner_text(workload) or BLANK, wide=True),
    Column("ADDRESS", lambda workload, now: address_text(workload) or BLANK, wide=True),
    Column("REVISION", lambda workload, now: workload.revision_id or BLANK, wide=True),
    Column("RETRY", lambda workload, now: _retry_text(workload, now) or BLANK, wide=True),
    Column("REASON", lambda workload, now: cropped(reason_text(workload)) or BLANK),
)


def list_workloads(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: [
                workload
                for workload in client.list_workloads(
                    node_id=options.node, status=options.status or ""
                )
                if options.owner in ("", *_names(workload))
            ],
            lambda workloads: render_list(
                workloads,
                options,
                columns=_COLUMNS,
                name=lambda workload: workload.workload_id,
                empty="no workloads",
            ),
            watch=options.watch,
        )


def _names(workload: WorkloadView) -> tuple[str, str, str]:
    """The workload, its set or run, and its job."""
    membership = workload.membership
    return workload.workload_id, membership.owner, membership.job_id


def _owner_text(workload: WorkloadView) -> str:
    """`set/web`, or `job/backup` with the run."""
    membership = workload.membership
    if membership.job_id:
        return f"job/{membership.job_id} ({membership.owner})"
    return f"set/{membership.owner}" if membership.owner else ""


def get_workload(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: find_any(client, options.id),
            lambda found: _render(found, options),
            watch=options.watch,
        )


def _render(found: WorkloadView | SetView | JobView, options: Namespace) -> str:
    if isinstance(found, SetView):
        from persys.cli.commands.set import render as render_set  # start-up time

        return render_set(found, options)
    if isinstance(found, JobView):
        from persys.cli.commands.job import render as render_job  # start-up time

        return render_job(found, options)
    return _render_workload(found, options)


def _render_workload(workload: WorkloadView, options: Namespace) -> str:
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
    """Delete what the ids name, and what is in the files of -f."""
    from persys.cli.specs.apply import delete_specs  # start-up time
    from persys.cli.specs.spec_files import Specs, read

    specs = read(options) if options.file else Specs()
    if not options.ids and not options.file:
        raise UsageError("expected workloads to delete, or -f FILE")
    if options.dry_run:
        return _show_delete(options, specs)
    return delete_specs(options, options.ids, specs)


def _show_delete(options: Namespace, specs: "Specs") -> int:
    """`delete --dry-run`: exit code 1 if one of them does not exist."""
    outcomes: dict[str, Outcome] = {}
    with scheduler_client(options) as client:
        look_up_any = partial(find_any, client)
        lookups: list[tuple[str, Callable[[str], object], str]] = [
            *((each, look_up_any, each) for each in options.ids),
            *((each.id, look_up_any, each.id) for each in specs.workloads),
            *((each.id, client.get_set, each.id) for each in specs.sets),
            *((JOB_PREFIX + each.id, client.get_job, each.id) for each in specs.jobs),
            *((SERVICE_PREFIX + each.id, client.get_service, each.id) for each in specs.services),
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
    """Stop the workloads, wait until they have stopped, and start them. Members of sets are replaced.

    Workloads are started again also if the wait fails or is interrupted.
    """
    accepted: list[str] = []

    def send_stop(client: "SchedulerClient", workload_id: str) -> str:
        revision = client.set_desired_state(workload_id, Goal.STOPPED.value)
        accepted.append(workload_id)
        return revision

    def send_start(client: "SchedulerClient", workload_id: str) -> str:
        return client.set_desired_state(workload_id, Goal.RUNNING.value)

    waiting = Namespace(**{**vars(options), "wait": options.wait or ""})
    with scheduler_client(options) as client:
        sets, others = split_sets(client, options.ids)
        stop_goals = dict.fromkeys(others, Goal.STOPPED)
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
        changes = Changes(client, options)
        request_workloads(changes, goals, send_start, always("being restarted"))
        _restart_sets(changes, options, sets, "being restarted")
        return finish({**changes.wait(), **failed}, options)


def _restart_sets(
    changes: Changes, options: Namespace, sets: Mapping[str, SetView], word: str
) -> None:
    if sets:
        from persys.cli.commands.set_change import request_restarts  # start-up time

        request_restarts(changes, options, sets, word)


def _start_again(client: "SchedulerClient", ids: Sequence[str]) -> None:
    for workload_id in ids:
        try:
            client.set_desired_state(workload_id, Goal.RUNNING.value)
        except PersysError:
            hint = f"start it with `persysctl workload start {workload_id}`"
            print(f"{workload_id} may be stopped; {hint}", file=sys.stderr)


def retry(options: Namespace) -> int:
    """The members of a set are retried that have failed."""

    def send(client: "SchedulerClient", workload_id: str) -> str:
        client.retry(workload_id)
        return ""

    with scheduler_client(options) as client:
        sets, others = split_sets(client, options.ids)
        for set_id, view in sets.items():
            failed = [one.workload_id for one in view.members if one.health == "failed"]
            if not failed:
                raise RefusedError(f"no member of set {set_id} has failed")
            others += failed
        changes = Changes(client, options)
        request_workloads(
            changes, dict.fromkeys(others, Goal.RUNNING), send, always("being retried")
        )
        return finish(changes.wait(), options)


def redeploy(options: Namespace) -> int:
    """The members of a set are replaced as in an update."""

    def send(client: "SchedulerClient", workload_id: str) -> str:
        return client.redeploy(workload_id)

    word = "being redeployed"
    with scheduler_client(options) as client:
        sets, others = split_sets(client, options.ids)
        changes = Changes(client, options)
        request_workloads(changes, dict.fromkeys(others, Goal.RUNNING), send, always(word))
        _restart_sets(changes, options, sets, word)
        return finish(changes.wait(), options)


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
            ("Owner", _owner_text(workload)),
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
            cropped(action.error) or BLANK,
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


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _set_desired(options: Namespace, goal: Goal, word: str) -> int:
    def send(client: "SchedulerClient", workload_id: str) -> str:
        return client.set_desired_state(workload_id, goal.value)

    with scheduler_client(options) as client:
        sets, others = split_sets(client, options.ids)
        changes = Changes(client, options)
        request_workloads(changes, dict.fromkeys(others, goal), send, always(word))
        if sets:
            from persys.cli.commands.set_change import request_desired  # start-up time

            request_desired(changes, options, sets, goal, word)
        return finish(changes.wait(), options)
