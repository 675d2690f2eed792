"""`persysctl node`: list, get, cordon, uncordon, taint, untaint, drain, confirm-dead and remove."""

import gc
import sys
from argparse import Namespace
from collections.abc import Sequence
from datetime import datetime, timedelta
from time import sleep
from typing import TYPE_CHECKING

from persys.cli.connect.clients import scheduler_client
from persys.cli.connect.settings import duration, load_settings
from persys.cli.framework.ages import BLANK, age
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.live import print_or_watch
from persys.cli.framework.output import Column, key_value_lines, render_list, render_one
from persys.core.duration import format_duration
from persys.errors import NotFoundError, UnavailableError
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1.control_pb2 import NodeView

if TYPE_CHECKING:
    from persys.client import SchedulerClient


_INTERVAL_SECONDS = 0.5
# How long a drain may show only blocked workloads before it counts as stuck: capacity that is being freed
# elsewhere is available within seconds.
_STUCK_SECONDS = 3.0
_COLUMNS: tuple[Column[NodeView], ...] = (
    Column("ID", lambda node, now: node.node_id),
    Column("STATUS", lambda node, now: node_status(node)),
    Column("CPU FREE", lambda node, now: _cpu(node)),
    Column("MEMORY FREE", lambda node, now: _memory(node)),
    Column("WORKLOADS", lambda node, now: str(node.workload_count)),
    Column("HEARTBEAT", lambda node, now: age(node, "last_heartbeat", now=now)),
    Column("TYPES", lambda node, now: ",".join(node.supported_workload_types) or BLANK),
    Column("DISK FREE", lambda node, now: _disk(node), wide=True),
    Column("TIER", lambda node, now: str(node.tier), wide=True),
    Column("PRICE", lambda node, now: _price(node) or BLANK, wide=True),
    Column("ENDPOINT", lambda node, now: node.grpc_endpoint or BLANK, wide=True),
    Column("VERSION", lambda node, now: node.agent_version or BLANK, wide=True),
    Column("LABELS", lambda node, now: _labels(node) or BLANK, wide=True),
    Column("REASON", lambda node, now: node.status_reason or BLANK, wide=True),
)


def list_nodes(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: client.list_nodes(status=options.status or ""),
            lambda nodes: render_list(
                nodes,
                options,
                columns=_columns(nodes),
                name=lambda node: node.node_id,
                empty="no nodes",
            ),
            watch=options.watch,
        )


def _columns(nodes: Sequence[NodeView]) -> list[Column[NodeView]]:
    """With nodes of higher tiers, the tier and the price are shown without `-o wide` too."""
    tiers = any(node.tier for node in nodes)
    return [
        column._replace(wide=False) if tiers and column.title in ("TIER", "PRICE") else column
        for column in _COLUMNS
    ]


def get_node(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        return print_or_watch(
            lambda: client.get_node(options.id),
            lambda node: render_one(
                node, options, describe=_describe, name=lambda node: node.node_id
            ),
            watch=options.watch,
        )


def cordon(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        client.cordon(options.id)
    print(f"node {options.id} is cordoned; its workloads keep running")
    return ExitCode.OK


def uncordon(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        client.uncordon(options.id)
    print(f"node {options.id} is schedulable again")
    return ExitCode.OK


def taint(options: Namespace) -> ExitCode:
    """Add taints; a key that the node already has gets the new value."""
    with scheduler_client(options) as client:
        has = {_key(old): old for old in client.get_node(options.id).taints}
        node = client.taint(options.id, (has | {_key(new): new for new in options.taints}).values())
    return _show_taints(node)


def untaint(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        has = client.get_node(options.id).taints
        if options.taint_key and options.taint_key not in map(_key, has):
            print(f"node {options.id} has no taint {options.taint_key}", file=sys.stderr)
            return ExitCode.FAILED
        node = client.taint(
            options.id, [old for old in has if options.taint_key and _key(old) != options.taint_key]
        )
    return _show_taints(node)


def drain(options: Namespace) -> ExitCode:
    deadline = duration(options.deadline, "--deadline") if options.deadline else None
    with scheduler_client(options) as client:
        node = client.drain(options.id, deadline=deadline)
        if options.wait is None:
            print(_progress(node))
            return ExitCode.OK
        code = wait_until_empty(client, options.id, load_settings(options).wait_timeout)
    if code is ExitCode.OK:
        print(
            f"next: make it schedulable again with `persysctl node uncordon {options.id}`, "
            f"or remove it with `persysctl node remove {options.id}`",
            file=sys.stderr,
        )
    return code


def confirm_dead(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        client.confirm_dead(options.id)
    print(f"node {options.id} is confirmed dead; all its workloads are rescheduled")
    return ExitCode.OK


def remove(options: Namespace) -> ExitCode:
    with scheduler_client(options) as client:
        client.remove_node(options.id)
    print(f"node {options.id} is removed")
    return ExitCode.OK


def _describe(node: NodeView, now: datetime, wide: bool) -> str:
    changed = age(node, "status_updated_at", now=now)
    by = f" by {node.status_updated_by}" if node.status_updated_by else ""
    return key_value_lines(
        (
            ("Id", node.node_id),
            ("Status", node_status(node)),
            ("Reason", node.status_reason),
            ("Changed", f"{changed} ago{by}" if changed != BLANK else ""),
            ("Heartbeat", f"{age(node, 'last_heartbeat', now=now)} ago"),
            ("Endpoint", node.grpc_endpoint),
            ("Version", node.agent_version),
            ("Cpu free", _cpu(node)),
            ("Memory free", _memory(node)),
            ("Disk free", _disk(node)),
            ("Tier", str(node.tier) if node.tier else ""),
            ("Price", f"{_price(node)} per core and hour" if _price(node) else ""),
            ("Remote", node.remote),
            ("Workloads", str(node.workload_count)),
            ("Drain", _drain(node)),
            *((f"Blocked {block.workload_id}", block.reason) for block in node.drain.blocked),
            ("Clock ahead", f"{node.clock_skew_ms} ms" if node.clock_skew_ms else ""),
            ("Types", ", ".join(node.supported_workload_types)),
            ("Labels", _labels(node)),
            ("Taints", ", ".join(node.taints)),
        )
    )


def node_status(node: NodeView) -> str:
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


def _price(node: NodeView) -> str:
    return f"{node.core_hour_price:g}" if node.core_hour_price else ""


def _labels(node: NodeView) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(node.labels.items()))


def _key(taint: str) -> str:
    return taint.partition("=")[0].strip()


def _show_taints(node: NodeView) -> ExitCode:
    if node.taints:
        taints = ", ".join(node.taints)
        print(f"node {node.node_id} is tainted: {taints}; its present workloads keep running")
    else:
        print(f"node {node.node_id} has no taints")
    return ExitCode.OK


def wait_until_empty(client: "SchedulerClient", node_id: str, within: timedelta) -> ExitCode:
    """Wait until the node is empty; prints a line on each change of its drain status."""
    gc.enable()
    clock = SystemClock()
    moving_at = clock.monotonic()
    ends_at = moving_at + within.total_seconds()
    shown = ""
    while True:
        try:
            node, away = client.get_node(node_id), ""
        except NotFoundError:
            return _ended(ExitCode.FAILED, f"node {node_id} was removed", "`persysctl node list`")
        except UnavailableError as err:  # the scheduler may be restarting
            node, away = NodeView(node_id=node_id), f"no response from the scheduler: {err}"
        line = away or _progress(node)
        if line != shown:
            print(line, flush=True)
            shown = line
        if not away and node.drain.state != "draining":
            return _after_drain(node)
        if away or _may_progress(node):
            moving_at = clock.monotonic()
        elif clock.monotonic() - moving_at >= _STUCK_SECONDS:
            return _stuck(node, ExitCode.FAILED, "the remaining workloads cannot be moved")
        if clock.monotonic() >= ends_at and away:
            return _ended(ExitCode.UNREACHABLE, f"node {node_id}: {away}", "`persysctl doctor`")
        if clock.monotonic() >= ends_at:
            return _stuck(node, ExitCode.TIMED_OUT, f"not empty after {format_duration(within)}")
        sleep(_INTERVAL_SECONDS)


def _may_progress(node: NodeView) -> bool:
    """Whether a workload may still leave the node. A NotReady node removes copies only after it returns."""
    blocked = node.drain.blocked
    waiting = node.drain.remaining - len(blocked) if node.status != "NotReady" else 0
    return waiting > 0 or not all(block.stays for block in blocked)


def _after_drain(node: NodeView) -> ExitCode:
    match node.drain.state:
        case "drained":
            return ExitCode.OK
        case "overdue":
            return _stuck(node, ExitCode.FAILED, "not empty at its deadline")
        case _:
            why = f"the drain of node {node.node_id} was cancelled: it is schedulable again"
            return _ended(ExitCode.FAILED, why, f"`persysctl node drain {node.node_id}`")


def _stuck(node: NodeView, code: ExitCode, why: str) -> ExitCode:
    print(f"error: node {node.node_id} is not drained: {why}", file=sys.stderr)
    for block in node.drain.blocked:
        print(f"  {block.workload_id}: {block.reason}", file=sys.stderr)
    if not node.drain.blocked:
        print(f"next: show what remains with `persysctl node get {node.node_id}`", file=sys.stderr)
        return code
    name = node.drain.blocked[0].workload_id
    print(
        f"next: show which nodes can run it with `persysctl explain {name}`, "
        f"or delete it with `persysctl workload delete {name}`; "
        f"`persysctl orphans list --node {node.node_id}` lists orphans",
        file=sys.stderr,
    )
    return code


def _ended(code: ExitCode, why: str, command: str) -> ExitCode:
    print(f"error: {why}\nnext: {command}", file=sys.stderr)
    return code


def _progress(node: NodeView) -> str:
    if node.drain.state == "drained":
        return f"node {node.node_id} is drained"
    return f"node {node.node_id} is {node.drain.state}: {node.drain.remaining} remaining"
