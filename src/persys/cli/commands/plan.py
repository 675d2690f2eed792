"""`persysctl plan`: what applying a file would change, as a diff. The exit codes follow diff(1).

0: no change. 1: changes. 2: a workload is refused, would be pending, or cannot be evaluated.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Sequence

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import report_error
from persys.cli.framework.output import dump, to_dict
from persys.cli.specs.apply import plan_pool
from persys.cli.specs.changes import change_lines
from persys.cli.specs.spec_files import print_compose_files, read
from persys.core.intent.field_changes import FieldChange
from persys.errors import RefusedError
from persys.wire.gen.control.v1.control_pb2 import WorkloadPlan

UNCHANGED, CHANGED, IMPOSSIBLE = 0, 1, 2

_SIGNS = {"create": "+", "delete": "-", "none": " ", "refused": "!"}
_ACTIONS = ("create", "update", "start", "stop", "delete")


def show(options: Namespace) -> int:
    found = read(options)
    specs = {spec.id: spec for spec in found.workloads}
    print_compose_files(found, options, "planned")
    try:
        with scheduler_client(options) as client:
            plans = [plan_pool(client, pool) for pool in found.pools]
            if specs:
                plans += client.plan(found.requests)
    except RefusedError as err:
        # Exit code 1 means that there are changes.
        return max(IMPOSSIBLE, report_error(err))
    for plan in plans:
        if plan.action == "refused" and plan.workload_id in specs:
            plan.reason = specs[plan.workload_id].located(plan.reason)
    print(_rendered(plans, options.output))
    return _code(plans)


def _code(plans: Sequence[WorkloadPlan]) -> int:
    if any(plan.action == "refused" or plan.would_wait for plan in plans):
        return IMPOSSIBLE
    return CHANGED if any(plan.action != "none" for plan in plans) else UNCHANGED


def _rendered(plans: Sequence[WorkloadPlan], form: str | None) -> str:
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
