"""What operators do to nodes: close them, empty them, give them up."""

import gc
import sys
from argparse import Namespace
from datetime import timedelta
from time import sleep
from typing import TYPE_CHECKING

from persys.cli.exits import Exit
from persys.cli.peers import scheduler
from persys.cli.settings import duration, load
from persys.core.duration import format_duration
from persys.infra.clock import SystemClock
from persys.wire.gen.control.v1.control_pb2 import NodeView

if TYPE_CHECKING:
    from persys.client import SchedulerClient

_INTERVAL_SECONDS = 0.5
# How long only workloads that cannot leave may be there: room that is being freed is there within seconds.
_STUCK_SECONDS = 3.0


def cordon(options: Namespace) -> Exit:
    with scheduler(options) as client:
        client.cordon(options.id)
    print(f"node {options.id} takes no new work; what it has goes on")
    return Exit.OK


def uncordon(options: Namespace) -> Exit:
    with scheduler(options) as client:
        client.uncordon(options.id)
    print(f"node {options.id} takes work again")
    return Exit.OK


def taint(options: Namespace) -> Exit:
    """Add these; a key that the node has already gets the new value."""
    with scheduler(options) as client:
        has = {_key(old): old for old in client.get_node(options.id).taints}
        node = client.taint(options.id, (has | {_key(new): new for new in options.taints}).values())
    return _show_taints(node)


def untaint(options: Namespace) -> Exit:
    with scheduler(options) as client:
        has = client.get_node(options.id).taints
        if options.taint_key and options.taint_key not in map(_key, has):
            print(f"node {options.id} has no taint {options.taint_key}", file=sys.stderr)
            return Exit.FAILED
        node = client.taint(
            options.id, [old for old in has if options.taint_key and _key(old) != options.taint_key]
        )
    return _show_taints(node)


def drain(options: Namespace) -> Exit:
    deadline = duration(options.deadline, "--deadline") if options.deadline else None
    with scheduler(options) as client:
        node = client.drain(options.id, deadline=deadline)
        if options.wait is None:
            print(_progress(node))
            return Exit.OK
        return _until_empty(client, options.id, load(options).wait_timeout)


def confirm_dead(options: Namespace) -> Exit:
    with scheduler(options) as client:
        client.confirm_dead(options.id)
    print(f"node {options.id} is confirmed dead; all its workloads move")
    return Exit.OK


def remove(options: Namespace) -> Exit:
    with scheduler(options) as client:
        client.remove_node(options.id)
    print(f"node {options.id} is removed")
    return Exit.OK


def _key(taint: str) -> str:
    return taint.partition("=")[0].strip()


def _show_taints(node: NodeView) -> Exit:
    if node.taints:
        taints = ", ".join(node.taints)
        print(f"node {node.node_id} takes only new work that tolerates {taints}; what it has stays")
    else:
        print(f"node {node.node_id} has no taints")
    return Exit.OK


def _until_empty(client: "SchedulerClient", node_id: str, within: timedelta) -> Exit:
    """A line whenever something has moved; the last one says whether the node is empty."""
    gc.enable()
    clock = SystemClock()
    moving_at = clock.monotonic()
    ends_at = moving_at + within.total_seconds()
    shown = ""
    while True:
        node = client.get_node(node_id)
        if (line := _progress(node)) != shown:
            print(line, flush=True)
            shown = line
        if node.drain.state != "draining":
            break
        if sum(block.stays for block in node.drain.blocked) < node.drain.remaining:
            moving_at = clock.monotonic()
        elif clock.monotonic() - moving_at >= _STUCK_SECONDS:
            return _stuck(node)
        if clock.monotonic() >= ends_at:
            print(f"not empty after {format_duration(within)}")
            break
        sleep(_INTERVAL_SECONDS)
    for block in node.drain.blocked:
        print(f"  {block.workload_id}: {block.reason}")
    return {"drained": Exit.OK, "overdue": Exit.FAILED}.get(node.drain.state, Exit.TIMED_OUT)


def _stuck(node: NodeView) -> Exit:
    print(f"node {node.node_id} cannot be drained: all that is left stays until you act")
    for block in node.drain.blocked:
        print(f"  {block.workload_id}: {block.reason}")
    name = node.drain.blocked[0].workload_id
    print(
        f"next: see where it could go with `persysctl explain {name}`, "
        f"or delete it with `persysctl workload delete {name}`",
        file=sys.stderr,
    )
    return Exit.FAILED


def _progress(node: NodeView) -> str:
    if node.drain.state == "drained":
        return f"node {node.node_id} is drained: it is empty"
    return f"node {node.node_id} is {node.drain.state}: {node.drain.remaining} still there"
