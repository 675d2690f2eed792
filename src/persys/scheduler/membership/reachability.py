"""Tracks which nodes reply to calls: a node that sends heartbeats but does not reply gets no new work.

The first call without a reply closes the node for placement, in memory only. Probes open it again within
seconds of its recovery. Workloads on the node stay, and their orders are retried as usual.
Removals of stale copies are sent again when it replies.

Third-party agents do not report which runtimes respond. They are probed with HealthCheck after registration
and with each full poll. A type with an unhealthy runtime gets no new work; the node is probed each second
until the runtime is healthy.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import islice

import structlog

from persys.errors import PersysError
from persys.model import feature
from persys.model.ids import NodeId
from persys.model.node import NodeStatus
from persys.model.spec import WorkloadType
from persys.scheduler.ports import Agents
from persys.scheduler.state.cluster import ClusterState, NodeState

log = structlog.get_logger()

PROBE_INTERVAL = timedelta(seconds=1)
PROBES_AT_ONCE = 64


class Reachability:
    def __init__(
        self,
        cluster: ClusterState,
        agents: Agents,
        *,
        capacity_freed: Callable[[NodeId], None],
        replies_again: Callable[[NodeId], None],
    ) -> None:
        """`replies_again` sends the removals again that got no reply."""
        self._cluster = cluster
        self._agents = agents
        self._capacity_freed = capacity_freed
        self._replies_again = replies_again
        self._unreachable: dict[NodeId, None] = {}
        self._unhealthy: dict[NodeId, None] = {}  # their runtimes are to be probed
        self._wakeup = asyncio.Event()

    def note(self, node_id: NodeId, problem: str) -> None:
        """Record the outcome of a call to a node. `problem` is empty for any reply, also an error."""
        if problem:
            self._close(node_id, problem)
        else:
            self.reset(node_id)

    def reset(self, node_id: NodeId) -> None:
        """The node has replied or has just connected."""
        if self._unreachable.pop(node_id, node_id) is None and node_id in self._cluster.nodes:
            self._cluster.set_unreachable(node_id, "")
            self._capacity_freed(node_id)
            self._replies_again(node_id)
            log.info("node.answering", node_id=node_id)

    def probe_runtimes(self, node_id: NodeId) -> None:
        """Probe the runtimes of a node soon. Nodes that push their status are skipped."""
        member = self._cluster.nodes.get(node_id)
        if member is not None and feature.PUSHES_STATUS not in member.node.capabilities.features:
            self._unhealthy[node_id] = None
            self._wakeup.set()

    async def run(self) -> None:
        """Probe the nodes that do not reply, as long as they send heartbeats."""
        while True:
            await self._wakeup.wait()
            if not self._unreachable and not self._unhealthy:
                self._wakeup.clear()
                continue
            await asyncio.sleep(PROBE_INTERVAL.total_seconds())
            probed = {
                **dict.fromkeys(islice(self._unreachable, PROBES_AT_ONCE)),
                **dict.fromkeys(islice(self._unhealthy, PROBES_AT_ONCE)),
            }
            async with asyncio.TaskGroup() as group:
                for node_id in probed:
                    group.create_task(self._probe(node_id))

    async def _probe(self, node_id: NodeId) -> None:
        member = self._cluster.nodes.get(node_id)
        was_due = self._unhealthy.pop(node_id, node_id) is None
        if member is None:
            self._unreachable.pop(node_id, None)
            return
        if self._unreachable.pop(node_id, node_id) is None:
            self._unreachable[node_id] = None  # to the end of the queue, which may be long
        if member.node.status is NodeStatus.NOT_READY:
            return
        try:
            unhealthy = await self._agents.probe(node_id, member.node.endpoint)
        except PersysError:
            # The call itself was recorded by `note`. The known state of its runtimes is kept.
            self._probe_again(member)
            return
        self.reset(node_id)
        if was_due:
            self._note_runtimes(node_id, unhealthy)

    def _note_runtimes(self, node_id: NodeId, unhealthy: frozenset[WorkloadType]) -> None:
        member = self._cluster.nodes.get(node_id)
        if member is None:
            return
        before = member.unhealthy_types
        if self._cluster.set_unhealthy(node_id, unhealthy):
            self._capacity_freed(node_id)
        if member.unhealthy_types != before:
            log.warning("node.runtimes", node_id=node_id, unhealthy=sorted(member.unhealthy_types))
        self._probe_again(member)

    def _probe_again(self, member: NodeState) -> None:
        if member.unhealthy_types:
            self._unhealthy[member.node.id] = None

    def _close(self, node_id: NodeId, problem: str) -> None:
        if node_id in self._unreachable or node_id not in self._cluster.nodes:
            return
        self._unreachable[node_id] = None
        self._cluster.set_unreachable(node_id, problem)
        self._wakeup.set()
        log.warning("node.not_answering", node_id=node_id, reason=problem)
