"""`persysctl drift list`: differences between nodes and records."""

from argparse import Namespace

from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import BLANK, age
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import Column, code_text, render_list
from persys.wire.gen.control.v1.control_pb2 import DriftView, ListDriftsResponse

NODE = Column[DriftView]("NODE", lambda drift, now: drift.node_id)
WORKLOAD = Column[DriftView]("WORKLOAD", lambda drift, now: drift.workload_id)
STATE = Column[DriftView]("STATE", lambda drift, now: code_text(drift.state) or BLANK)
AGE = Column[DriftView]("SEEN", lambda drift, now: age(drift, "detected_at", now=now))
DETAIL = Column[DriftView]("DETAIL", lambda drift, now: drift.detail)
REVISION = Column[DriftView]("REVISION", lambda drift, now: drift.revision_id, wide=True)
EPOCH = Column[DriftView]("EPOCH", lambda drift, now: str(drift.epoch), wide=True)

_DRIFTS = (
    NODE,
    WORKLOAD,
    Column[DriftView]("TYPE", lambda drift, now: drift.type),
    STATE,
    AGE,
    REVISION,
    EPOCH,
    DETAIL,
)


def list_drifts(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: client.list_drifts(
                node_id=options.node, workload_id=options.workload, type=options.type or ""
            ),
            lambda found: render_drifts(found, options, _DRIFTS, "no drifts"),
            watch=options.watch,
        )


def render_drifts(
    found: ListDriftsResponse,
    options: Namespace,
    columns: tuple[Column[DriftView], ...],
    empty: str,
) -> str:
    shown = render_list(
        found.drifts,
        options,
        columns=columns,
        name=lambda drift: f"{drift.node_id}/{drift.workload_id}",
        empty=empty,
    )
    if found.orphans_unrecorded and options.output not in ("json", "yaml", "name"):
        shown += f"\nand {found.orphans_unrecorded} more orphans that are not recorded"
    return shown
