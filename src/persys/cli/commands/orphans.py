"""`persysctl orphans`: list, get, adopt and delete containers, stacks and VMs without a matching workload."""

from argparse import Namespace
from datetime import datetime

from persys.cli.commands.drift import (
    AGE,
    DETAIL,
    EPOCH,
    NODE,
    REVISION,
    STATE,
    WORKLOAD,
    render_drifts,
)
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.arguments import split_names
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import Column, dump, key_value_lines, render_one, to_dict
from persys.wire.gen.control.v1.control_pb2 import DriftView, OrphanView

ORPHAN = "orphan_on_agent"
_ORPHANS = (
    NODE,
    WORKLOAD,
    STATE,
    Column[DriftView]("ADOPTABLE", lambda drift, now: "yes" if drift.adoptable else "no"),
    AGE,
    REVISION,
    EPOCH,
    DETAIL,
)


def list_orphans(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: client.list_drifts(node_id=options.node, type=ORPHAN),
            lambda found: render_drifts(found, options, _ORPHANS, "no orphans"),
            watch=options.watch,
        )


def get_orphan(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        view = client.get_orphan(options.node, options.id)
    print(render_one(view, options, describe=_described_orphan, name=lambda _: options.id))
    return ExitCode.OK


def adopt(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        client.adopt_orphan(
            options.node, options.id, allow_secrets=split_names(options.allow_secrets)
        )
    print(f"{options.id} is adopted as a workload on node {options.node}")
    return ExitCode.OK


def delete(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        client.delete_orphan(options.node, options.id)
    print(f"{options.id} is being deleted from node {options.node}")
    return ExitCode.OK


def _described_orphan(view: OrphanView, now: datetime, wide: bool) -> str:
    facts = key_value_lines(
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
    return f"{facts}\nSpec, as the node reports it:\n{dump(to_dict(view.spec), 'yaml')}"
