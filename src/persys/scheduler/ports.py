"""The port to the agents. The gRPC adapter is `agents.py`."""

from collections.abc import Sequence
from typing import Protocol

from persys.core.reconcile.effects import Remove
from persys.errors import UnavailableError
from persys.model.action import Action
from persys.model.ids import NodeId, WorkloadId
from persys.model.spec import WorkloadType
from persys.model.status import Observation
from persys.model.workload import StoredIntent, Workload


class Agents(Protocol):
    """Every method is idempotent and raises AgentUnreachableError if there is no reply."""

    async def apply(
        self, node_id: NodeId, endpoint: str, workload: Workload, epoch: int
    ) -> Observation:
        """Send the order. Returns the state that the agent reports, often only pending."""

    async def apply_all(
        self, node_id: NodeId, endpoint: str, orders: Sequence[tuple[Workload, int]]
    ) -> list[Observation | UnavailableError]:
        """Send several orders, each with its epoch and of another workload, to an agent that accepts batches.

        The results have the sequence of the orders. An order without a reply has the error as its result.
        """

    async def remove(self, removal: Remove, endpoint: str) -> None:
        """Send a removal. Returns when it was accepted, not when it is done."""

    async def get_status(
        self, node_id: NodeId, endpoint: str, workload_id: WorkloadId
    ) -> Observation:
        """The state of the workload; `Actual.ABSENT` if the agent confirms that it has no copy."""

    async def actions(
        self, node_id: NodeId, endpoint: str, workload_id: WorkloadId
    ) -> list[Action]:
        """The newest actions of the node for the workload. Empty if the agent does not support it."""

    async def list_workloads(self, node_id: NodeId, endpoint: str) -> list[Observation]:
        """All workloads on the node."""

    async def probe(self, node_id: NodeId, endpoint: str) -> frozenset[WorkloadType]:
        """Returns when the node replies: the types whose runtime it reports as unhealthy.

        RefusedError is a reply too.
        """

    async def intents(self, node_id: NodeId, endpoint: str) -> list[StoredIntent]:
        """The intents that the node stores; empty if the agent stores none or cannot read them."""
