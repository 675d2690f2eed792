"""Batches of orders on the wire: their sizes, and the result of each order."""

from collections.abc import Callable
from typing import Any

import grpc

from builders import a_workload
from persys.core.secrets import Resolved
from persys.errors import AgentUnreachableError, RefusedError, UnavailableError
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId
from persys.model.spec import ContainerSpec
from persys.model.status import Actual, Failure, FailureReason, Observation
from persys.model.workload import Workload
from persys.scheduler.dispatch.order_sender import BATCH_BYTES_MAX, OrderSender, no_secrets
from persys.wire.gen.agent.v1 import agent_pb2

N1 = NodeId("n1")
NO_SECRET = "SecretMissing"


def accepted(order: agent_pb2.ApplyWorkloadRequest) -> agent_pb2.ApplyWorkloadResponse:
    status = agent_pb2.WorkloadStatus(
        id=order.id, revision_id=order.revision_id, actual_state=agent_pb2.ACTUAL_STATE_PENDING
    )
    return agent_pb2.ApplyWorkloadResponse(applied=True, status=status)


class FakeAgent:
    """Answers the calls of a scheduler. A test replaces the result of some orders."""

    def __init__(self) -> None:
        self.sent: list[list[str]] = []
        self.error: Exception | None = None
        self.refuses_batches = False
        self.results: dict[str, agent_pb2.ApplyResult | None] = {}

    async def call(self, _node_id: NodeId, _endpoint: str, method: str, request: Any) -> Any:
        orders = list(request.orders) if method == "ApplyWorkloads" else [request]
        self.sent.append([order.id for order in orders])
        if self.error is not None:
            raise self.error
        if method == "ApplyWorkload":
            return accepted(request)
        if self.refuses_batches:
            raise RefusedError("the agent of node n1 does not support ApplyWorkloads")
        results = [
            self.results.get(order.id, agent_pb2.ApplyResult(id=order.id, response=accepted(order)))
            for order in orders
        ]
        return agent_pb2.ApplyWorkloadsResponse(results=[one for one in results if one is not None])

    async def apply_all(
        self, *workloads: Workload, resolve: Callable[..., Any] = no_secrets
    ) -> list[Observation | UnavailableError]:
        async def is_plain(*_order: object) -> bool:
            return False

        sender = OrderSender(
            SystemClock(),
            call=self.call,
            send_plain=is_plain,
            prove=lambda *_order: b"",
            resolve=resolve,
        )
        return await sender.apply_all(N1, "n1:1", [(workload, 1) for workload in workloads])


def actual_states(results: list[Observation | UnavailableError]) -> list[Actual]:
    assert all(isinstance(one, Observation) for one in results), results
    return [one.actual for one in results if isinstance(one, Observation)]


async def test_several_orders_are_one_call() -> None:
    agent = FakeAgent()

    results = await agent.apply_all(a_workload("a"), a_workload("b"))

    assert agent.sent == [["a", "b"]]
    assert actual_states(results) == [Actual.PENDING, Actual.PENDING]


async def test_a_batch_is_split_by_size() -> None:
    agent = FakeAgent()
    large = ContainerSpec("nginx", env={"X": "x" * (BATCH_BYTES_MAX // 5)})

    await agent.apply_all(*(a_workload(name, spec=large) for name in "abcde"))

    # The intent of each order contains the spec as well.
    assert agent.sent == [["a", "b"], ["c", "d"], ["e"]]


async def test_an_order_without_a_result_counts_as_unanswered() -> None:
    agent = FakeAgent()
    agent.results["a"] = None

    first, second = await agent.apply_all(a_workload("a"), a_workload("b"))

    assert isinstance(first, AgentUnreachableError)
    assert isinstance(second, Observation)


async def test_an_error_of_one_order_has_the_meaning_of_the_same_error_of_a_call() -> None:
    agent = FakeAgent()
    invalid, busy = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE
    agent.results["a"] = agent_pb2.ApplyResult(id="a", code=invalid.value[0], error="image: bad")
    agent.results["b"] = agent_pb2.ApplyResult(id="b", code=busy.value[0], error="try again")

    refused, unanswered, fine = await agent.apply_all(*map(a_workload, "abc"))

    assert isinstance(refused, Observation)
    assert refused.failure is not None
    assert (refused.failure.reason, refused.failure.retryable) == (
        FailureReason.INVALID_SPEC,
        False,
    )
    assert isinstance(unanswered, AgentUnreachableError)
    assert "try again" in str(unanswered)
    assert isinstance(fine, Observation)


async def test_a_lost_reply_leaves_all_orders_of_the_batch_unanswered() -> None:
    agent = FakeAgent()
    agent.error = AgentUnreachableError("UNAVAILABLE: connection lost")

    results = await agent.apply_all(a_workload("a"), a_workload("b"))

    assert all(isinstance(one, AgentUnreachableError) for one in results)


async def test_orders_are_sent_alone_if_the_agent_refuses_the_batch() -> None:
    agent = FakeAgent()
    agent.refuses_batches = True

    results = await agent.apply_all(a_workload("a"), a_workload("b"))

    assert agent.sent == [["a", "b"], ["a"], ["b"]]
    assert actual_states(results) == [Actual.PENDING, Actual.PENDING]


async def test_an_order_whose_secrets_are_missing_fails_alone() -> None:
    async def resolve(workload: Workload) -> Resolved | Failure:
        if workload.id == "a":
            return Failure(FailureReason.INVALID_SPEC, "no secret", code=NO_SECRET)
        return await no_secrets(workload)

    agent = FakeAgent()
    results = await agent.apply_all(*map(a_workload, "abc"), resolve=resolve)

    assert agent.sent == [["b", "c"]]
    assert actual_states(results) == [Actual.FAILED, Actual.PENDING, Actual.PENDING]
