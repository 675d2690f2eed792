"""`persysctl federation`: add, list, get and remove federated nodes, which stand for another cluster.

A federation has no record of its own: it is a node with a `remote`, and its settings are files of the machine
that runs persys-federation.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, to_builtins

from persys.cli.commands.node import node_status, wait_until_empty
from persys.cli.connect.clients import scheduler_client
from persys.cli.connect.settings import load_settings
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import align_columns, dump, key_value_lines, render_rows
from persys.errors import RefusedError
from persys.wire.gen.control.v1.control_pb2 import NodeView, WorkloadView


class Used(Struct):
    """How much of a resource the node offers, and how much of it is reserved by workloads."""

    offered: float
    used: float

    def __str__(self) -> str:
        return f"{self.used:g}/{self.offered:g}"


class Federation(Struct):
    name: str
    cluster: str  # id of the remote cluster
    address: str
    status: str
    problems: list[str]
    tier: int
    core_hour_price: float
    cpu_cores: Used
    memory_mb: Used
    disk_gb: Used
    workload_count: int
    spend_per_hour: float


class Offloaded(Struct):
    id: str
    type: str
    status: str
    remote_id: str
    remote_node: str
    reason: str


_COLUMNS: Mapping[str, Callable[[Federation], str]] = {
    "NAME": lambda row: row.name,
    "CLUSTER": lambda row: row.cluster,
    "REMOTE": lambda row: row.address,
    "STATUS": lambda row: row.status,
    "TIER": lambda row: str(row.tier),
    "PRICE": lambda row: f"{row.core_hour_price:g}",
    "CPU USED": lambda row: str(row.cpu_cores),
    "MEMORY USED": lambda row: f"{row.memory_mb} MB",
    "WORKLOADS": lambda row: str(row.workload_count),
    "SPEND/H": lambda row: f"{row.spend_per_hour:.2f}",
    "PROBLEM": lambda row: "; ".join(row.problems),
}


def add(options: Namespace) -> ExitCode:
    from persys.cli.commands.federation_setup import set_up  # slow imports of TLS

    return set_up(options)


def list_federations(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: [node for node in client.list_nodes() if node.remote],
            lambda nodes: render_rows(
                [_federation(node) for node in nodes],
                options,
                columns=_COLUMNS,
                name=lambda row: row.name,
                empty="no federated nodes; add one with `persysctl federation add`",
                blank="-",
            ),
            watch=options.watch,
        )


def get(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:

        def fetch() -> tuple[NodeView, list[WorkloadView]]:
            node = _federated(client.get_node(options.name))
            found = client.list_workloads(node_id=node.node_id)
            return node, [client.get_workload(each.workload_id) for each in found]

        return print_or_watch(fetch, lambda found: _render(*found, options), watch=options.watch)


def remove(options: Namespace) -> ExitCode:
    """Drain the node, remove it, and name what remains to be done on both sides."""
    from persys.cli.commands.federation_setup import remaining_steps

    with scheduler_client(options) as client:
        _federated(client.get_node(options.name))
        client.drain(options.name)
        code = wait_until_empty(client, options.name, load_settings(options).wait_timeout)
        if code is not ExitCode.OK:
            print(
                f"federation {options.name} was not removed; the node takes no new workloads. "
                f"Continue with `persysctl federation remove {options.name}`, or cancel with "
                f"`persysctl node uncordon {options.name}`",
                file=sys.stderr,
            )
            return code
        client.remove_node(options.name)
    print(f"federation {options.name} is removed from this cluster")
    for line in remaining_steps(options):
        print(line)
    return ExitCode.OK


def _federated(node: NodeView) -> NodeView:
    if not node.remote:
        raise RefusedError(
            f"node {node.node_id} is not a federated node: expected one of "
            "`persysctl federation list`"
        )
    return node


def _federation(node: NodeView) -> Federation:
    cluster, _, address = node.remote.partition(" ")
    cores = Used(node.total_cpu_cores, round(node.total_cpu_cores - node.available_cpu_cores, 3))
    reason = [node.status_reason] if node.status != "Ready" and node.status_reason else []
    return Federation(
        name=node.node_id,
        cluster=cluster,
        address=address,
        status=node_status(node),
        problems=[*node.problems] or reason,
        tier=node.tier,
        core_hour_price=node.core_hour_price,
        cpu_cores=cores,
        memory_mb=Used(node.total_memory_mb, node.total_memory_mb - node.available_memory_mb),
        disk_gb=Used(node.total_disk_gb, node.total_disk_gb - node.available_disk_gb),
        workload_count=node.workload_count,
        spend_per_hour=round(cores.used * node.core_hour_price, 4),
    )


def _offloaded(view: WorkloadView) -> Offloaded:
    return Offloaded(
        id=view.workload_id,
        type=view.type,
        status=view.status,
        remote_id=view.metadata.get("remote_workload", ""),
        remote_node=view.metadata.get("remote_node", ""),
        reason=view.reason.message,
    )


def _render(node: NodeView, views: Sequence[WorkloadView], options: Namespace) -> str:
    found, workloads = _federation(node), [_offloaded(view) for view in views]
    match options.output:
        case "name":
            return found.name
        case "json" | "yaml":
            shown = {**to_builtins(found), "workloads": to_builtins(workloads)}
            return dump(shown, options.output)
        case _:
            return _describe(found, workloads)


def _describe(found: Federation, workloads: Sequence[Offloaded]) -> str:
    facts = key_value_lines(
        (
            ("Name", found.name),
            ("Remote cluster", found.cluster),
            ("Remote address", found.address),
            ("Status", found.status),
            ("Problem", "; ".join(found.problems)),
            ("Tier", str(found.tier)),
            ("Price", f"{found.core_hour_price:g} per core and hour"),
            ("Spend", f"{found.spend_per_hour:g} per hour"),
            ("Cpu used", f"{found.cpu_cores} cores"),
            ("Memory used", f"{found.memory_mb} MB"),
            ("Disk used", f"{found.disk_gb} GB"),
            ("Workloads", str(found.workload_count)),
        )
    )
    if not workloads:
        return facts
    cells = [
        [each.id, each.type, each.status, each.remote_id or "-", each.remote_node or "-"]
        for each in workloads
    ]
    head = ["WORKLOAD", "TYPE", "STATUS", "REMOTE ID", "REMOTE NODE"]
    return f"{facts}\n\n{align_columns([head, *cells])}"
