"""`persysctl drift` and `persysctl orphans`: differences between nodes and records."""

from argparse import Namespace
from collections.abc import Iterable
from datetime import datetime

from persys.cli.connect.clients import scheduler
from persys.cli.framework.ages import NOT_SAID, age
from persys.cli.framework.exit_codes import Exit
from persys.cli.framework.live import show
from persys.cli.framework.output import Column, described, dump, plain, render_list, render_one
from persys.wire.gen.control.v1.control_pb2 import DriftView, ListDriftsResponse, OrphanView

ORPHAN = "orphan_on_agent"

_NODE = Column[DriftView]("NODE", lambda drift, now: drift.node_id)
_WORKLOAD = Column[DriftView]("WORKLOAD", lambda drift, now: drift.workload_id)
_STATE = Column[DriftView]("STATE", lambda drift, now: drift.state or NOT_SAID)
_AGE = Column[DriftView]("SEEN", lambda drift, now: age(drift, "detected_at", now=now))
_DETAIL = Column[DriftView]("DETAIL", lambda drift, now: drift.detail)
_REVISION = Column[DriftView]("REVISION", lambda drift, now: drift.revision_id, wide=True)
_EPOCH = Column[DriftView]("EPOCH", lambda drift, now: str(drift.epoch), wide=True)

_DRIFTS = (
    _NODE,
    _WORKLOAD,
    Column[DriftView]("TYPE", lambda drift, now: drift.type),
    _STATE,
    _AGE,
    _REVISION,
    _EPOCH,
    _DETAIL,
)
_ORPHANS = (
    _NODE,
    _WORKLOAD,
    _STATE,
    Column[DriftView]("ADOPTABLE", lambda drift, now: "yes" if drift.adoptable else "no"),
    _AGE,
    _REVISION,
    _EPOCH,
    _DETAIL,
)


def list_drifts(options: Namespace) -> Exit:
    with scheduler(options) as client:
        return show(
            lambda: client.list_drifts(
                node_id=options.node, workload_id=options.workload, type=options.type or ""
            ),
            lambda found: _rendered(found, options, _DRIFTS, "no drifts"),
            watch=options.watch,
        )


def list_orphans(options: Namespace) -> Exit:
    with scheduler(options) as client:
        return show(
            lambda: client.list_drifts(node_id=options.node, type=ORPHAN),
            lambda found: _rendered(found, options, _ORPHANS, "no orphans"),
            watch=options.watch,
        )


def get_orphan(options: Namespace) -> Exit:
    with scheduler(options) as client:
        view = client.get_orphan(options.node, options.id)
    print(render_one(view, options, describe=_described_orphan, name=lambda _: options.id))
    return Exit.OK


def names(parts: Iterable[str]) -> list[str]:
    """Names from an option that takes several, separated by commas, and is repeatable."""
    return [name.strip() for part in parts for name in part.split(",") if name.strip()]


def adopt(options: Namespace) -> Exit:
    with scheduler(options) as client:
        client.adopt_orphan(options.node, options.id, allow_secrets=names(options.allow_secrets))
    print(f"{options.id} is adopted as a workload on node {options.node}")
    return Exit.OK


def delete(options: Namespace) -> Exit:
    with scheduler(options) as client:
        client.delete_orphan(options.node, options.id)
    print(f"{options.id} is being deleted from node {options.node}")
    return Exit.OK


def _described_orphan(view: OrphanView, now: datetime, wide: bool) -> str:
    facts = described(
        (
            ("Node", view.drift.node_id),
            ("Workload", view.drift.workload_id),
            ("State", view.drift.state),
            ("Revision", view.drift.revision_id),
            ("Secrets", ", ".join(view.secrets) or "none"),
        )
    )
    if not view.HasField("spec"):
        return f"{facts}\nThe node does not report its spec."
    return f"{facts}\nSpec, as the node reports it:\n{dump(plain(view.spec), 'yaml')}"


def _rendered(
    found: ListDriftsResponse,
    options: Namespace,
    columns: tuple[Column[DriftView], ...],
    nothing: str,
) -> str:
    shown = render_list(
        found.drifts,
        options,
        columns=columns,
        name=lambda drift: f"{drift.node_id}/{drift.workload_id}",
        nothing=nothing,
    )
    if found.orphans_unrecorded and options.output not in ("json", "yaml", "name"):
        shown += f"\nand {found.orphans_unrecorded} more orphans that are not recorded"
    return shown
