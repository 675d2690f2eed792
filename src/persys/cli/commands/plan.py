"""`persysctl plan`: what applying a file would change, as a diff. The exit codes follow diff(1).

0: no change. 1: changes. 2: a workload is refused, would be pending, or cannot be evaluated.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import ExitCode, report_error
from persys.cli.framework.output import dump, to_dict
from persys.cli.specs.apply import plan_job, plan_pool, plan_service
from persys.cli.specs.changes import change_lines
from persys.cli.specs.spec_files import Specs, print_compose_files, read
from persys.core.intent.field_changes import FieldChange
from persys.errors import RefusedError
from persys.wire.gen.control.v1.control_pb2 import SetSpec, WorkloadPlan

if TYPE_CHECKING:
    from persys.client import SchedulerClient

UNCHANGED, CHANGED, IMPOSSIBLE = 0, 1, 2
REFUSED = "refused"

_SIGNS = {"create": "+", "delete": "-", "none": " ", "refused": "!"}
_ACTIONS = ("create", "update", "start", "stop", "delete")


def show(options: Namespace) -> int:
    found = read(options)
    print_compose_files(found, options, "planned")
    try:
        with scheduler_client(options) as client:
            plans = plans_of(client, found)
    except RefusedError as err:
        # Exit code 1 means that there are changes.
        return max(IMPOSSIBLE, report_error(err))
    print(rendered(plans, options.output))
    return _code(plans)


def show_dry_run(options: Namespace, specs: Specs) -> ExitCode:
    """`--dry-run` of a command that applies. Exit code 2 if a workload would be refused, otherwise 0."""
    with scheduler_client(options) as client:
        plans = plans_of(client, specs)
    print(rendered(plans, options.output))
    return ExitCode.USAGE if any(plan.action == REFUSED for plan in plans) else ExitCode.OK


def plans_of(client: "SchedulerClient", specs: Specs) -> list[WorkloadPlan]:
    """What applying the files would change. The reason of a refusal has its place in the file."""
    located = {
        **{spec.id: spec.located for spec in specs.workloads},
        **{spec.id: spec.located for spec in specs.sets},
    }
    plans = [plan_pool(client, pool) for pool in specs.pools]
    if located:
        plans += client.plan(specs.requests, sets=_sets(client, specs))
    for plan in plans:
        if plan.action == REFUSED and plan.workload_id in located:
            plan.reason = located[plan.workload_id](plan.reason)
    plans += [plan_job(client, job) for job in specs.jobs]
    return plans + [plan_service(client, service) for service in specs.services]


def _sets(client: "SchedulerClient", specs: Specs) -> list[SetSpec]:
    if not specs.sets:
        return []
    from persys.cli.commands.lookup import find_set  # start-up time
    from persys.cli.commands.set_change import with_restart

    return [
        with_restart(spec.document.request, find_set(client, spec.id)).set for spec in specs.sets
    ]


def _code(plans: Sequence[WorkloadPlan]) -> int:
    if any(plan.action == REFUSED or plan.would_wait for plan in plans):
        return IMPOSSIBLE
    return CHANGED if any(plan.action != "none" for plan in plans) else UNCHANGED


def rendered(plans: Sequence[WorkloadPlan], form: str | None) -> str:
    if form in ("json", "yaml"):
        return dump([to_dict(plan) for plan in plans], form)
    if form == "name":
        return "\n".join(plan.workload_id for plan in plans if plan.action != "none")
    return "\n".join([*("\n".join(_lines(plan)) for plan in plans), "", _summary(plans)])


def _lines(plan: WorkloadPlan) -> Iterator[str]:
    yield f"{_SIGNS.get(plan.action, '~')} {plan.workload_id}: {_headline(plan)}"
    changes = [FieldChange(each.field, each.before, each.after) for each in plan.changes]
    yield from (f"    {line}" for line in change_lines(changes, diffs=True))
    for displaced in plan.displaces:
        yield f"    ! {displaced}"


def _headline(plan: WorkloadPlan) -> str:
    action = "unchanged" if plan.action == "none" else plan.action
    if plan.would_wait:
        return f"{action}, would be pending: {plan.reason}"
    if not plan.node_id:
        return f"{action}: {plan.reason}" if plan.reason else action
    if plan.current_node_id == plan.node_id:
        return f"{action}, stays on {plan.node_id}"
    why = f" ({plan.reason})" if plan.reason else ""
    where = f", from {plan.current_node_id} to" if plan.current_node_id else " on"
    return f"{action}{where} {plan.node_id}{why}"


def _summary(plans: Sequence[WorkloadPlan]) -> str:
    counts = Counter(plan.action for plan in plans)
    parts = [
        *((counts[action], f"to {action}") for action in _ACTIONS),
        (counts["none"], "unchanged"),
        (counts["refused"], "refused"),
        (sum(plan.would_wait for plan in plans), "would be pending"),
    ]
    noun = "workload" if len(plans) == 1 else "workloads"
    counted = ", ".join(f"{count} {label}" for count, label in parts if count)
    return f"{len(plans)} {noun}: {counted}. Nothing was written."
