"""`persysctl capacity`: how many more copies of a workload fit, and whether the loss of a node is tolerated.

The exit code is 0 only if at least one more fits and no loss leaves a workload unplaceable, so that a script
can alert on 1.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.framework.output import align_columns, render_one
from persys.cli.specs.spec_files import read
from persys.wire.gen.control.v1.control_pb2 import GetCapacityResponse, LossView, NodeRoom

_ROWS_MAX = 20
_NAMES_MAX = 5


def show(options: Namespace) -> ExitCode:
    specs = read(options).only_workloads()
    if len(specs) > 1:
        named = ", ".join(options.file)
        raise UsageError(f"expected a file with one workload; {named} has {len(specs)}")
    request = specs[0].request
    if not request.HasField("spec"):
        raise UsageError(
            f"{specs[0].file}: {request.workload_id} has no spec; capacity needs its resources"
        )
    with scheduler_client(options) as client:
        answer = client.get_capacity(request.spec)

    def describe(found: GetCapacityResponse, _now: datetime, _wide: bool) -> str:
        return _describe(found, request.workload_id)

    print(render_one(answer, options, describe=describe, name=_names))
    return ExitCode.OK if _any_fits(answer) and answer.survives_any_loss else ExitCode.FAILED


def _any_fits(answer: GetCapacityResponse) -> bool:
    in_tier_0 = answer.fits or answer.unlimited
    return bool(in_tier_0 or answer.offload_fits or answer.offload_unlimited)


def _names(answer: GetCapacityResponse) -> str:
    """The nodes with enough capacity."""
    return "\n".join(node.node_id for node in answer.nodes if node.fits or node.unlimited)


def _describe(answer: GetCapacityResponse, workload_id: str) -> str:
    count = "any number" if answer.unlimited else str(answer.fits)
    verb = "fits" if count == "1" else "fit"
    parts = [f"{count} more of {workload_id} {verb}"]
    tiers = any(node.tier for node in answer.nodes)
    if tiers:
        beyond = "any number" if answer.offload_unlimited else str(answer.offload_fits)
        parts = [f"{parts[0]} in tier 0, {beyond} in higher tiers"]
    shown, hidden = answer.nodes[:_ROWS_MAX], answer.nodes[_ROWS_MAX:]
    if shown:
        rows = [["NODE", "TIER", "FIT", "LIMITED BY"]]
        rows += [
            [node.node_id, str(node.tier), _fits(node), node.limited_by or "-"] for node in shown
        ]
        parts.append(align_columns(rows if tiers else [[row[0], *row[2:]] for row in rows]))
    if hidden:
        counts = Counter(node.limited_by for node in hidden)
        capacity = sum(node.fits for node in hidden)
        reasons = "; ".join(f"{many} {reason}" for reason, many in counts.most_common())
        parts.append(f"and {len(hidden)} more nodes with capacity for {capacity}: {reasons}")
    parts.append(_survival(answer))
    return "\n\n".join(parts)


def _fits(node: NodeRoom) -> str:
    return "any" if node.unlimited else str(node.fits)


def _survival(answer: GetCapacityResponse) -> str:
    losses = [loss for loss in answer.losses if loss.stranded or loss.bound]
    table = "\n" + _table(losses[:_ROWS_MAX]) if losses else ""
    if len(losses) > _ROWS_MAX:
        table += f"\nand {len(losses) - _ROWS_MAX} more nodes with such workloads"
    fatal = [loss.node_id for loss in answer.losses if loss.stranded]
    if len(answer.losses) == 1:
        only = answer.losses[0].node_id
        return f"Does not tolerate the loss of a node: {only} is the only one{table}"
    if not answer.losses:
        return "Does not tolerate the loss of a node: there are no nodes"
    if answer.survives_any_loss:
        return f"Tolerates the loss of any one node{table}"
    return f"Does not tolerate the loss of {_listed(fatal)}{table}"


def _table(losses: Sequence[LossView]) -> str:
    rows = [
        [loss.node_id, str(loss.moved), _listed(loss.stranded), _listed(loss.bound)]
        for loss in losses
    ]
    return align_columns([["LOST NODE", "MOVED", "UNPLACEABLE", "BOUND TO THEIR DATA"], *rows])


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _NAMES_MAX
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(names[:_NAMES_MAX]) + more or "-"
