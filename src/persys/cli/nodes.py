"""`persysctl node list` and `node get`."""

from argparse import Namespace
from datetime import datetime

from persys.cli.exits import Exit
from persys.cli.output import Column, described, render_list, render_one
from persys.cli.peers import scheduler
from persys.cli.spans import NOT_SAID, age
from persys.cli.watching import show
from persys.wire.gen.control.v1.control_pb2 import NodeView

_COLUMNS: tuple[Column[NodeView], ...] = (
    Column("ID", lambda node, now: node.node_id),
    Column("STATUS", lambda node, now: _status(node)),
    Column("CPU FREE", lambda node, now: _cpu(node)),
    Column("MEMORY FREE", lambda node, now: _memory(node)),
    Column("WORKLOADS", lambda node, now: str(node.workload_count)),
    Column("HEARTBEAT", lambda node, now: age(node, "last_heartbeat", now=now)),
    Column("TYPES", lambda node, now: ",".join(node.supported_workload_types) or NOT_SAID),
    Column("DISK FREE", lambda node, now: _disk(node), wide=True),
    Column("ENDPOINT", lambda node, now: node.grpc_endpoint or NOT_SAID, wide=True),
    Column("VERSION", lambda node, now: node.agent_version or NOT_SAID, wide=True),
    Column("LABELS", lambda node, now: _labels(node) or NOT_SAID, wide=True),
    Column("REASON", lambda node, now: node.status_reason or NOT_SAID, wide=True),
)


def list_nodes(options: Namespace) -> Exit:
    with scheduler(options) as client:
        return show(
            lambda: client.list_nodes(status=options.status or ""),
            lambda nodes: render_list(
                nodes,
                options,
                columns=_COLUMNS,
                name=lambda node: node.node_id,
                nothing="no nodes",
            ),
            watch=options.watch,
        )


def get_node(options: Namespace) -> Exit:
    with scheduler(options) as client:
        return show(
            lambda: client.get_node(options.id),
            lambda node: render_one(
                node, options, describe=_describe, name=lambda node: node.node_id
            ),
            watch=options.watch,
        )


def _describe(node: NodeView, now: datetime, wide: bool) -> str:
    changed = age(node, "status_updated_at", now=now)
    by = f" by {node.status_updated_by}" if node.status_updated_by else ""
    return described(
        (
            ("Id", node.node_id),
            ("Status", _status(node)),
            ("Reason", node.status_reason),
            ("Changed", f"{changed} ago{by}" if changed != NOT_SAID else ""),
            ("Heartbeat", f"{age(node, 'last_heartbeat', now=now)} ago"),
            ("Endpoint", node.grpc_endpoint),
            ("Version", node.agent_version),
            ("Cpu free", _cpu(node)),
            ("Memory free", _memory(node)),
            ("Disk free", _disk(node)),
            ("Workloads", str(node.workload_count)),
            ("Drain", _drain(node)),
            *((f"Blocked {block.workload_id}", block.reason) for block in node.drain.blocked),
            ("Clock ahead", f"{node.clock_skew_ms} ms" if node.clock_skew_ms else ""),
            ("Types", ", ".join(node.supported_workload_types)),
            ("Labels", _labels(node)),
            ("Taints", ", ".join(node.taints)),
        )
    )


def _status(node: NodeView) -> str:
    """The status, with what the contract's status field cannot express: cordoned or confirmed dead."""
    if node.confirmed_dead:
        return f"{node.status} (dead)"
    return f"{node.status} (cordoned)" if node.cordoned and node.status == "Ready" else node.status


def _drain(node: NodeView) -> str:
    return f"{node.drain.state}, {node.drain.remaining} remaining" if node.drain.state else ""


def _cpu(node: NodeView) -> str:
    return f"{node.available_cpu_cores:g}/{node.total_cpu_cores:g}"


def _memory(node: NodeView) -> str:
    return f"{node.available_memory_mb}/{node.total_memory_mb} MB"


def _disk(node: NodeView) -> str:
    return f"{node.available_disk_gb}/{node.total_disk_gb} GB"


def _labels(node: NodeView) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(node.labels.items()))
