"""`persysctl capacity`: how many more copies of a workload fit, and whether the loss of a node is tolerated.

The exit code is 0 only if at least one more fits and no loss leaves a workload unplaceable, so that a script
can alert on 1.
"""

from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from persys.cli.commands.workload import read_specs
from persys.cli.connect.clients import scheduler
from persys.cli.framework.exit_codes import Exit, UsageError
from persys.cli.framework.live import show
from persys.cli.framework.output import aligned, described, dump, render_one
from persys.wire.gen.control.v1.control_pb2 import (
    GetCapacityResponse,
    GetClusterSummaryResponse,
    LossView,
    NodeRoom,
)

_ROWS_MAX = 20
_NAMES_MAX = 5


def show_capacity(options: Namespace) -> Exit:
    specs = read_specs(options.file, stack_id=options.id)
    if len(specs) > 1:
        named = ", ".join(options.file)
        raise UsageError(f"expected a file with one workload; {named} has {len(specs)}")
    request = specs[0].request
    if not request.HasField("spec"):
        raise UsageError(
            f"{specs[0].file}: {request.workload_id} has no spec; capacity needs its resources"
        )
    with scheduler(options) as client:
        answer = client.get_capacity(request.spec)

    def describe(found: GetCapacityResponse, _now: datetime, _wide: bool) -> str:
        return _describe(found, request.workload_id)

    print(render_one(answer, options, describe=describe, name=_names))
    return (
        Exit.OK if (answer.fits or answer.unlimited) and answer.survives_any_loss else Exit.FAILED
    )


def _names(answer: GetCapacityResponse) -> str:
    """The nodes with enough capacity."""
    return "\n".join(node.node_id for node in answer.nodes if node.fits or node.unlimited)


def _describe(answer: GetCapacityResponse, workload_id: str) -> str:
    count = "any number" if answer.unlimited else str(answer.fits)
    verb = "fits" if count == "1" else "fit"
    parts = [f"{count} more of {workload_id} {verb}"]
    shown, hidden = answer.nodes[:_ROWS_MAX], answer.nodes[_ROWS_MAX:]
    if shown:
        rows = [[node.node_id, _fits(node), node.limited_by or "-"] for node in shown]
        parts.append(aligned([["NODE", "FIT", "LIMITED BY"], *rows]))
    if hidden:
        counts = Counter(node.limited_by for node in hidden)
        room = sum(node.fits for node in hidden)
        reasons = "; ".join(f"{many} {reason}" for reason, many in counts.most_common())
        parts.append(f"and {len(hidden)} more nodes with capacity for {room}: {reasons}")
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
    return aligned([["LOST NODE", "MOVED", "UNPLACEABLE", "BOUND TO THEIR DATA"], *rows])


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _NAMES_MAX
    more = f" and {rest} more" if rest > 0 else ""
    return ", ".join(names[:_NAMES_MAX]) + more or "-"


def summary(options: Namespace) -> Exit:
    with scheduler(options) as client:

        def fetch() -> GetClusterSummaryResponse:
            found = client.get_summary()
            if options.watch:
                found.ClearField("generated_at")  # it would count as a change at every poll
            return found

        return show(
            fetch,
            lambda counts: render_one(
                counts, options, describe=_describe_cluster, name=lambda counts: client.target
            ),
            watch=options.watch,
        )


def _describe_cluster(counts: GetClusterSummaryResponse, now: datetime, wide: bool) -> str:
    nodes = f"{counts.total_nodes} ({counts.ready_nodes} ready, {counts.not_ready_nodes} not ready)"
    workloads = (
        f"{counts.total_workloads} ({counts.running_workloads} running, "
        f"{counts.pending_workloads} pending, {counts.failed_workloads} failed, "
        f"{counts.deleted_workloads} deleted)"
    )
    return described((("Nodes", nodes), ("Workloads", workloads)))


Row = Mapping[str, Any]

_CLUSTERS: Mapping[str, Callable[[Row], str]] = {
    "ID": lambda row: str(row["id"]),
    "NAME": lambda row: str(row.get("name", "")),
    "ROUTING": lambda row: str(row.get("routing_strategy", "")),
    "SCHEDULERS": lambda row: f"{row['healthy_schedulers']}/{row['total_schedulers']} healthy",
    "LEADER": lambda row: _leader(row),
}
_AUDIT: Mapping[str, Callable[[Row], str]] = {
    "TIME": lambda row: str(row["at"])[:19].replace("T", " "),
    "IDENTITY": lambda row: str(row["who"]),
    "ACTION": lambda row: str(row["deed"]),
    "TARGET": lambda row: str(row.get("target", "")),
    "CLUSTER": lambda row: str(row.get("cluster", "")),
    "RESULT": lambda row: str(row["status"]),
}


def list_clusters(options: Namespace) -> Exit:
    with scheduler(options) as client:
        found = client.list_clusters()
    print(shown(found["clusters"], options, _CLUSTERS, name="id", nothing="no clusters"))
    return Exit.OK


def audit(options: Namespace) -> Exit:
    with scheduler(options) as client:
        found = client.get_audit(limit=options.limit)
    print(shown(found["deeds"], options, _AUDIT, name="number", nothing="no audit entries"))
    return Exit.OK


def shown(
    rows: Sequence[Row],
    options: Namespace,
    columns: Mapping[str, Callable[[Row], str]],
    *,
    name: str,
    nothing: str,
) -> str:
    match options.output:
        case "name":
            return "\n".join(str(row[name]) for row in rows)
        case "json" | "yaml":
            return dump(list(rows), options.output)
        case _ if not rows:
            return nothing
        case _:
            cells = [[text(row) or "-" for text in columns.values()] for row in rows]
            return aligned([list(columns), *cells])


def _leader(row: Row) -> str:
    return next(
        (str(one["address"]) for one in row.get("schedulers", ()) if one.get("is_leader")), "-"
    )
