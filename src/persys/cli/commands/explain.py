"""`persysctl explain`: why a workload runs on its node, or why each node rejects it."""

from argparse import Namespace
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from persys.cli.commands.lookup import find_set
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import BLANK
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.output import align_columns, render_one
from persys.errors import NotFoundError
from persys.wire.gen.control.v1.control_pb2 import ExplainWorkloadResponse, NodeVerdict, SetView

if TYPE_CHECKING:
    from persys.client import SchedulerClient

_ROWS_MAX = 20
_CHANGES_MAX = 5
_ALL = 2**31 - 1


def show(options: Namespace) -> ExitCode:
    limit = _ALL if options.output in ("json", "yaml") else _ROWS_MAX
    with scheduler_client(options) as client:
        try:
            answer = client.explain(options.id, limit=limit)
        except NotFoundError:
            view = find_set(client, options.id)
            if view is None:
                raise
            return _show_set(client, options, view, limit)
    print(render_one(answer, options, describe=_describe, name=lambda found: found.workload_id))
    return ExitCode.OK


def _show_set(client: "SchedulerClient", options: Namespace, view: SetView, limit: int) -> ExitCode:
    """Where each member runs, and the explanation of the first that is pending, or else of the first."""
    if options.output not in ("json", "yaml", "name"):
        print(_where(view), end="\n\n")
    pending = [member for member in view.members if not member.node_id]
    for member in (pending or view.members)[:1]:
        answer = client.explain(member.workload_id, limit=limit)
        print(render_one(answer, options, describe=_describe, name=lambda one: one.workload_id))
    return ExitCode.OK


def _where(view: SetView) -> str:
    on = Counter(member.node_id for member in view.members)
    placed = [f"{count} on {node_id}" for node_id, count in sorted(on.items()) if node_id]
    pending = [f"{on['']} pending"] if on[""] else []
    return f"set {view.spec.set_id} has {len(view.members)} members: " + ", ".join(placed + pending)


def _describe(answer: ExplainWorkloadResponse, _now: datetime, wide: bool) -> str:
    shown = list(answer.nodes[:_ROWS_MAX])
    parts = [f"{answer.workload_id} {answer.summary}"]
    if answer.rule:
        parts[0] = f"{parts[0]}\nRule of the last decision: {answer.rule}"
    if shown:
        rows = [["NODE", "VERDICT", "WHY", "REQUIRED CHANGE"]]
        rows += [_row(node, answer) for node in shown]
        table = rows if wide else [row[:3] for row in rows]
        if any(node.tier for node in shown):
            tiers = ["TIER", *(_tier(node) for node in shown)]
            table = [[row[0], tier, *row[1:]] for row, tier in zip(table, tiers, strict=True)]
        parts.append(align_columns(table))
    if rest := _rest(answer, shown):
        parts.append(rest)
    if answer.changes:
        lines = "\n".join(f"  {change}" for change in answer.changes[:_CHANGES_MAX])
        parts.append(f"Changes that would place it, smallest first:\n{lines}")
    if answer.copies:
        lines = "\n".join(f"  {copy}" for copy in answer.copies)
        parts.append(f"Copies on nodes where it is not assigned:\n{lines}")
    return "\n\n".join(parts)


def _row(node: NodeVerdict, answer: ExplainWorkloadResponse) -> list[str]:
    verdict = "fits" if node.fits else "refused"
    if node.node_id == answer.assigned_node_id:
        verdict = "chosen"
    why = _score(node) if node.fits else _refusal(node)
    return [node.node_id, verdict, why, node.change or BLANK]


def _tier(node: NodeVerdict) -> str:
    """The tier, with the price per core and hour if there is one."""
    return f"{node.tier} at {node.core_hour_price:g}" if node.core_hour_price else str(node.tier)


def _refusal(node: NodeVerdict) -> str:
    # Millicores are written 500m, other units with a space.
    unit = node.unit if node.unit == "m" else f" {node.unit}"
    lacks = f" by {node.missing}{unit}" if node.missing else ""
    return f"{node.detail}{lacks}"


def _score(node: NodeVerdict) -> str:
    return ", ".join(
        part.detail or f"{part.name} {part.value:g}"
        for part in node.score
        if part.name not in ("tier", "price")  # in a column of their own
    )


def _rest(answer: ExplainWorkloadResponse, shown: list[NodeVerdict]) -> str:
    """The nodes that the table omits, counted by reason."""
    in_table = Counter((node.filter, node.detail) for node in shown if not node.fits)
    fitting = answer.fit_count - sum(node.fits for node in shown)
    left = [
        (count.detail, count.nodes - in_table[count.filter, count.detail])
        for count in answer.counts
    ]
    groups = [f"{count} {detail}" for detail, count in [("that fit", fitting), *left] if count > 0]
    if not groups:
        return ""
    return f"and {answer.node_count - len(shown)} more: {'; '.join(groups)}"
