"""`persysctl top` and `persysctl stats`: resource usage, as last measured by the agents."""

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from persys.cli.commands.lookup import of_one_workload
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.ages import BLANK, age
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import align_columns, dump, format_bytes, key_value_lines, to_dict
from persys.errors import NotFoundError
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1.control_pb2 import NodeView, WorkloadUsageSnapshot, WorkloadView

if TYPE_CHECKING:
    from persys.client import SchedulerClient

Found = tuple[list[NodeView], list[WorkloadView]]

_ORDERS: dict[str, Callable[[WorkloadView], float]] = {
    "cpu": lambda workload: -workload.usage.cpu_percent,
    "memory": lambda workload: -workload.usage.memory_bytes,
    "name": lambda workload: 0,
}


def show(options: Namespace) -> ExitCode:
    watch = sys.stdout.isatty() and not options.once and options.output not in ("json", "yaml")
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: _fetch(client, options.node),
            lambda found: _render(found, options),
            watch=watch,
        )


def stats(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client, of_one_workload(client, options.id):
        return print_or_watch(
            lambda: _usage_of(client.get_workload(options.id)),
            lambda usage: _render_one(usage, options),
            watch=options.watch,
        )


def _fetch(client: "SchedulerClient", node_id: str) -> Found:
    nodes = [node for node in client.list_nodes() if node_id in ("", node.node_id)]
    workloads = client.list_workloads(node_id=node_id)
    return nodes, [workload for workload in workloads if workload.HasField("usage")]


def _render(found: Found, options: Namespace) -> str:
    nodes, workloads = found
    workloads = sorted(workloads, key=lambda one: (_ORDERS[options.sort](one), one.workload_id))
    if options.output in ("json", "yaml"):
        usages = {
            "nodes": [{"node_id": node.node_id, "usage": to_dict(node.usage)} for node in nodes],
            "workloads": [to_dict(workload.usage) for workload in workloads],
        }
        return dump(usages, options.output)
    if options.output == "name":
        return "\n".join(workload.workload_id for workload in workloads)
    now = SystemClock().now()
    return f"{align_columns(_node_rows(nodes))}\n\n{align_columns(_workload_rows(workloads, now))}"


def _node_rows(nodes: Sequence[NodeView]) -> list[list[str]]:
    titles = ["NODE", "STATUS", "CPU", "MEMORY", "DISK", "WORKLOADS"]
    return [titles, *(_node_row(node) for node in sorted(nodes, key=lambda one: one.node_id))]


def _node_row(node: NodeView) -> list[str]:
    if not node.HasField("usage"):
        return [node.node_id, node.status, *[BLANK] * 3, str(node.workload_count)]
    used = node.usage
    return [
        node.node_id,
        node.status,
        f"{used.cpu_used_millicores / 1000:.1f}/{node.total_cpu_cores:g}",
        f"{used.memory_used_mb}/{node.total_memory_mb} MB",
        f"{used.disk_used_gb}/{node.total_disk_gb} GB",
        str(node.workload_count),
    ]


def _workload_rows(workloads: Sequence[WorkloadView], now: datetime) -> list[list[str]]:
    titles = ["WORKLOAD", "NODE", "CPU %", "MEMORY", "READ", "WRITTEN", "RECEIVED", "SENT", "SEEN"]
    rows = [
        [
            workload.workload_id,
            workload.assigned_node_id or BLANK,
            *_figures(workload.usage),
            age(workload.usage, "collected_at", now=now),
        ]
        for workload in workloads
    ]
    return [titles, *rows]


def _figures(usage: WorkloadUsageSnapshot) -> list[str]:
    amounts = (
        usage.memory_bytes,
        usage.disk_read_bytes,
        usage.disk_write_bytes,
        usage.net_rx_bytes,
        usage.net_tx_bytes,
    )
    return [f"{usage.cpu_percent:.1f}", *(format_bytes(count) for count in amounts)]


def _usage_of(workload: WorkloadView) -> WorkloadUsageSnapshot:
    if not workload.HasField("usage"):
        raise NotFoundError(
            "usage", f"no measurement of {workload.workload_id}, which is {workload.status}"
        )
    return workload.usage


def _render_one(usage: WorkloadUsageSnapshot, options: Namespace) -> str:
    if options.output in ("json", "yaml"):
        return dump(to_dict(usage), options.output)
    if options.output == "name":
        return usage.workload_id
    titles = ("Cpu %", "Memory", "Read", "Written", "Received", "Sent")
    facts = [("Id", usage.workload_id), *zip(titles, _figures(usage), strict=True)]
    seen = f"{age(usage, 'collected_at', now=SystemClock().now())} ago, by {usage.source}"
    return key_value_lines([*facts, ("Seen", seen)])
