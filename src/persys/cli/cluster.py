"""`persysctl cluster summary`."""

from argparse import Namespace
from datetime import datetime

from persys.cli.exits import Exit
from persys.cli.output import described, render_one
from persys.cli.peers import scheduler
from persys.cli.watching import show
from persys.wire.gen.control.v1.control_pb2 import GetClusterSummaryResponse


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
                counts, options, describe=_describe, name=lambda counts: client.target
            ),
            watch=options.watch,
        )


def _describe(counts: GetClusterSummaryResponse, now: datetime, wide: bool) -> str:
    nodes = f"{counts.total_nodes} ({counts.ready_nodes} ready, {counts.not_ready_nodes} not ready)"
    workloads = (
        f"{counts.total_workloads} ({counts.running_workloads} running, "
        f"{counts.pending_workloads} pending, {counts.failed_workloads} failed, "
        f"{counts.deleted_workloads} deleted)"
    )
    return described((("Nodes", nodes), ("Workloads", workloads)))
