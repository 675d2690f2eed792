"""Calls many nodes concurrently and collects a reply or a problem per node.

A node that does not reply delays the others at most by its own deadline, and is never shown as empty.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from persys.errors import NotFoundError, PersysError
from persys.model.ids import NodeId
from persys.model.node import Node, NodeStatus
from persys.scheduler.state.cluster import ClusterState

Answer = TypeVar("Answer")

AT_ONCE_MAX = 64


@dataclass(frozen=True, slots=True)
class NodeReplies(Generic[Answer]):
    by_node: dict[NodeId, Answer]
    problems: dict[NodeId, str]  # of nodes without a reply


def select_nodes(cluster: ClusterState, node_ids: Iterable[str]) -> list[Node]:
    """The named nodes, or all if none is named. Raises NotFoundError."""
    wanted = [NodeId(name) for name in node_ids if name]
    for name in wanted:
        if name not in cluster.nodes:
            raise NotFoundError("node", name)
    return [cluster.nodes[name].node for name in wanted or sorted(cluster.nodes)]


async def call_all(
    nodes: Iterable[Node], call: Callable[[Node], Awaitable[Answer]]
) -> NodeReplies[Answer]:
    """`call` has its own deadline and raises PersysError on failure. Nodes that are not ready are skipped."""
    found: NodeReplies[Answer] = NodeReplies({}, {})
    slots = asyncio.Semaphore(AT_ONCE_MAX)

    async def one(node: Node) -> None:
        async with slots:
            try:
                found.by_node[node.id] = await call(node)
            except PersysError as err:
                found.problems[node.id] = str(err)

    async with asyncio.TaskGroup() as group:
        for node in nodes:
            if node.status is NodeStatus.NOT_READY:
                found.problems[node.id] = f"is not ready: {node.status_reason or 'no heartbeats'}"
            else:
                group.create_task(one(node))
    return found
