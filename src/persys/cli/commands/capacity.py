"""`persysctl capacity`: how many more copies of a workload fit, and whether the loss of a node is tolerated.

The exit code is 0 only if at least one more fits and no loss leaves a workload unplaceable, so that a script
can alert on 1. For a set, all members that it does not have yet must fit.
"""

import math
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import ExitCode, UsageError
from persys.cli.framework.output import align_columns, render_one
from persys.cli.specs.spec_files import Specs, read
from persys.wire.gen.control.v1.control_pb2 import (
    GetCapacityResponse,
    LossView,
    NodeRoom,
    WorkloadSpec,
)

if TYPE_CHECKING:
    from persys.client import SchedulerClient

_ROWS_MAX = 20
_NAMES_MAX = 5


def show(options: Namespace) -> ExitCode:
    subject = _subject(read(options), options)
    with scheduler_client(options) as client:
        missing = _missing_members(client, subject)
        answer = client.get_capacity(subject.spec)

    def describe(found: GetCapacityResponse, _now: datetime, _wide: bool) -> str:
        note = f"{missing} of {subject.replicas} members are missing" if subject.replicas else ""
        return _describe(found, subject.id, note)

    print(render_one(answer, options, describe=describe, name=_names))
    fits = _fit_count(answer) >= max(1, missing)
    return ExitCode.OK if fits and answer.survives_any_loss else ExitCode.FAILED


class _Subject(NamedTuple):
    """The workload or set of the file, and the spec of one copy."""

    file: str
    id: str
    spec: WorkloadSpec
    replicas: int = 0  # 0: a workload


def _subject(specs: Specs, options: Namespace) -> _Subject:
    found = [_Subject(one.file, one.id, one.document.request.spec) for one in specs.workloads]
    for one in specs.sets:
        wanted = one.document.request.set
        replicas = max(wanted.replicas, wanted.scale.min, 1)
        found.append(_Subject(one.file, one.id, wanted.template, replicas))
    if not found:
        specs.only_workloads()
    if len(found) > 1:
        named = ", ".join(options.file)
        raise UsageError(f"expected a file with one workload; {named} has {len(found)}")
    if not found[0].spec.ByteSize():
        where = f"{found[0].file}: {found[0].id}"
        raise UsageError(f"{where} has no spec; capacity needs its resources")
    return found[0]


def _missing_members(client: "SchedulerClient", subject: _Subject) -> int:
    """How many copies must fit."""
    if not subject.replicas:
        return 1
    from persys.cli.commands.lookup import find_set  # start-up time

    view = find_set(client, subject.id)
    return subject.replicas if view is None else max(0, subject.replicas - view.member_count)


def _fit_count(answer: GetCapacityResponse) -> float:
    if answer.unlimited or answer.offload_unlimited:
        return math.inf
    return answer.fits + answer.offload_fits


def _names(answer: GetCapacityResponse) -> str:
    """The nodes with enough capacity."""
    return "\n".join(node.node_id for node in answer.nodes if node.fits or node.unlimited)


def _describe(answer: GetCapacityResponse, workload_id: str, note: str) -> str:
    count = "any number" if answer.unlimited else str(answer.fits)
    verb = "fits" if count == "1" else "fit"
    parts = [f"{count} more of {workload_id} {verb}"]
    tiers = any(node.tier for node in answer.nodes)
    if tiers:
        beyond = "any number" if answer.offload_unlimited else str(answer.offload_fits)
        parts = [f"{parts[0]} in tier 0, {beyond} in higher tiers"]
    parts[0] += f"; {note}" if note else ""
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
