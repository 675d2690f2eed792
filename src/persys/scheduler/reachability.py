"""Which nodes answer calls: one that sends heartbeats and answers no orders gets no new work.

The first call without an answer closes the node for placement, in memory only. Probes open it again within
seconds of its recovery. Workloads that are on the node stay, and their orders are sent again as ever.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from itertools import islice

import structlog

from persys.errors import PersysError
from persys.model.ids import NodeId
from persys.model.node import NodeStatus
from persys.scheduler.cluster import Cluster
from persys.scheduler.ports import Agents

log = structlog.get_logger()

PROBE_INTERVAL = timedelta(seconds=1)
PROBES_AT_ONCE = 64


class Reachability:
    def __init__(
        self, cluster: Cluster, agents: Agents, *, room_appeared: Callable[[NodeId], None]
    ) -> None:
        self._cluster = cluster
        self._agents = agents
        self._room_appeared = room_appeared
        self._unreachable: dict[NodeId, None] = {}
        self._news = asyncio.Event()

    def note(self, node_id: NodeId, problem: str) -> None:
        """What came of a call to a node. `problem` is empty if it was answered, in whatever way."""
        if problem:
            self._close(node_id, problem)
        else:
            self.reset(node_id)

    def reset(self, node_id: NodeId) -> None:
        """The node answered, or has just connected."""
        if self._unreachable.pop(node_id, node_id) is None and node_id in self._cluster.members:
            self._cluster.set_unreachable(node_id, "")
            self._room_appeared(node_id)
            log.info("node.answering", node_id=node_id)

    async def run(self) -> None:
        """Probe the nodes that did not answer, for as long as they send heartbeats."""
        while True:
            await self._news.wait()
            if not self._unreachable:
                self._news.clear()
                continue
            await asyncio.sleep(PROBE_INTERVAL.total_seconds())
            probed = list(islice(self._unreachable, PROBES_AT_ONCE))
            async with asyncio.TaskGroup() as group:
                for node_id in probed:
                    group.create_task(self._probe(node_id))

    async def _probe(self, node_id: NodeId) -> None:
        member = self._cluster.members.get(node_id)
        if member is None:
            self._unreachable.pop(node_id, None)
            return
        if self._unreachable.pop(node_id, node_id) is None:
            self._unreachable[node_id] = None  # behind the others, of which there may be many
        if member.node.status is NodeStatus.NOT_READY:
            return
        try:
            await self._agents.probe(node_id, member.node.endpoint)
        except PersysError:
            return  # an answer was noted where the call was made
        self.reset(node_id)

    def _close(self, node_id: NodeId, problem: str) -> None:
        if node_id in self._unreachable or node_id not in self._cluster.members:
            return
        self._unreachable[node_id] = None
        self._cluster.set_unreachable(node_id, problem)
        self._news.set()
        log.warning("node.not_answering", node_id=node_id, reason=problem)
