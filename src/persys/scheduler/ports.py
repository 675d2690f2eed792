"""What the scheduler needs of the nodes: a few verbs. The gRPC adapter is `agents.py`."""

from typing import Protocol

from persys.core.effects import Remove
from persys.model.action import Action
from persys.model.ids import NodeId, WorkloadId
from persys.model.intent import KeptIntent
from persys.model.observation import Observation
from persys.model.spec import WorkloadType
from persys.model.workload import Workload


class Agents(Protocol):
    """Every verb is idempotent and raises AgentUnreachableError when there was no answer."""

    async def apply(
        self, node_id: NodeId, endpoint: str, workload: Workload, epoch: int
    ) -> Observation:
        """Give the order. Returns what the agent says now, often only that it has begun."""

    async def remove(self, removal: Remove, endpoint: str) -> None:
        """Give the order to remove. Returns when it was taken, not when it is done."""

    async def ask(self, node_id: NodeId, endpoint: str, workload_id: WorkloadId) -> Observation:
        """How the workload is; `Actual.ABSENT` when the agent positively has none."""

    async def actions(
        self, node_id: NodeId, endpoint: str, workload_id: WorkloadId
    ) -> list[Action]:
        """What the node did and does for the workload, the newest few. Some nodes do not tell."""

    async def survey(self, node_id: NodeId, endpoint: str) -> list[Observation]:
        """Everything the node has."""

    async def probe(self, node_id: NodeId, endpoint: str) -> frozenset[WorkloadType]:
        """Return when the node answers calls: the types whose runtime it reports as unhealthy.

        RefusedError is an answer too.
        """

    async def intents(self, node_id: NodeId, endpoint: str) -> list[KeptIntent]:
        """What the node keeps for us; nothing from an agent that keeps none, or that it cannot read."""
