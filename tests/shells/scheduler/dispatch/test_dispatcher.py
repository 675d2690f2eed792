"""Orders in the lanes of nodes: which are sent, and which are dropped because they are outdated."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest

from builders import NOON, WEB, a_dispatch, a_supervisor, a_workload, an_assignment, an_observation
from persys.core.reconcile.dispatch import Dispatch
from persys.core.reconcile.effects import (
    Apply,
    Effect,
    FetchActions,
    KeepActions,
    PollStatus,
    Remove,
)
from persys.errors import AgentUnreachableError, UnavailableError
from persys.infra.clock import SystemClock
from persys.model import feature
from persys.model.action import Action
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities, Node
from persys.model.placement import Tombstone
from persys.model.spec import WorkloadType
from persys.model.status import Actual, Observation
from persys.model.workload import StoredIntent, Workload
from persys.scheduler.dispatch.dispatcher import Dispatcher
from persys.scheduler.dispatch.observations import Observations
from persys.scheduler.state.cluster import ClusterState
from shells.scheduler.harness import eventually

N1 = NodeId("n1")
ORDERS: list[Effect] = [Apply(N1, a_workload(), 1), Remove(N1, WEB, 1)]
QUESTIONS: list[Effect] = [PollStatus(N1, WEB), FetchActions(N1, WEB, 1, "it takes long")]


class RecordingAgents:
    """Implements Agents: records its calls, and replies at once or not at all."""

    def __init__(self) -> None:
        self.verbs: list[str] = []
        self.is_silent = False
        self.silent_about: set[str] = set()
        self.answer = Actual.PENDING
        self.meanwhile: Callable[[], None] | None = None  # before the first answer
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.called = asyncio.Event()

    def _answer(self, verb: str, node_id: NodeId) -> Observation:
        self.verbs.append(verb)
        if self.meanwhile is not None:
            self.meanwhile()
            self.meanwhile = None
        if self.is_silent:
            raise AgentUnreachableError("no answer")
        return an_observation(self.answer, node_id=node_id)

    async def apply(
        self, node_id: NodeId, endpoint: str, workload: Workload, epoch: int
    ) -> Observation:
        return self._answer("apply", node_id)

    async def apply_all(
        self, node_id: NodeId, endpoint: str, orders: Sequence[tuple[Workload, int]]
    ) -> list[Observation | UnavailableError]:
        self.verbs.append(f"batch of {len(orders)}")
        return [
            AgentUnreachableError("no result")
            if workload.id in self.silent_about
            else an_observation(self.answer, name=workload.id, node_id=node_id, epoch=epoch)
            for workload, epoch in orders
        ]

    async def remove(self, removal: Remove, endpoint: str) -> None:
        self._answer("remove", removal.node_id)

    async def get_status(
        self, node_id: NodeId, endpoint: str, workload_id: WorkloadId
    ) -> Observation:
        seen = self._answer("ask", node_id)
        self.called.set()
        await self.may_answer.wait()
        return seen

    async def actions(
        self, node_id: NodeId, endpoint: str, workload_id: WorkloadId
    ) -> list[Action]:
        self._answer("actions", node_id)
        return []

    async def list_workloads(self, node_id: NodeId, endpoint: str) -> list[Observation]:
        return [self._answer("survey", node_id)]

    async def probe(self, node_id: NodeId, endpoint: str) -> frozenset[WorkloadType]:
        self._answer("probe", node_id)
        return frozenset()

    async def intents(self, node_id: NodeId, endpoint: str) -> list[StoredIntent]:
        self._answer("intents", node_id)
        return []


class World:
    """A workload that is assigned to n1, with an order in its lane."""

    def __init__(self) -> None:
        self.cluster = ClusterState()
        self.agents = RecordingAgents()
        self.woken: list[WorkloadId] = []
        self.may_order = True
        self.supervisor = a_supervisor("scheduler")
        self.dispatcher = Dispatcher(
            self.cluster,
            self.agents,
            Observations(
                self.cluster,
                wake=self.woken.append,
                removed=lambda _node_id, _workload_id: None,
                replaced=lambda _node_id, _workload_id: None,
                listed=lambda _node_id, _seen: None,
            ),
            SystemClock(),
            supervisor=self.supervisor,
            wake=self.woken.append,
            replied=self.woken.append,
            may_order=lambda: self.may_order,
            acknowledged=lambda _effect: None,
            inquired=self._inquired,
            keep_actions=self._keep_actions,
        )
        self.cluster.put_node(Node(N1, Capabilities(4000, 8192), "n1:1", NOON), lease_until=0.0)
        self.entry = self.cluster.put_workload(a_workload())
        self.cluster.put_assignment(WEB, an_assignment())
        self.entry.dispatch = a_dispatch(answered=False)

    async def _keep_actions(self, *_said: object) -> None: ...

    async def _inquired(
        self, _asked: FetchActions, _actions: object, _problem: str, _health: str
    ) -> None:
        """Stores nothing."""

    def many(self, count: int) -> list[Apply]:
        """Further workloads that are assigned to n1, and their orders."""
        orders = []
        for number in range(count):
            workload = a_workload(f"web-{number}")
            entry = self.cluster.put_workload(workload)
            self.cluster.put_assignment(workload.id, an_assignment(name=workload.id))
            entry.dispatch = a_dispatch(answered=False)
            orders.append(Apply(N1, workload, 1))
        return orders

    def accept_batches(self) -> None:
        capabilities = Capabilities(4000, 8192, features=frozenset({feature.ORDER_BATCHES}))
        self.cluster.put_node(Node(N1, capabilities, "n1:1", NOON), lease_until=0.0)

    async def is_idle(self) -> bool:
        return not self.dispatcher.depth()

    async def perform(self, effect: Effect) -> list[str]:
        """The calls to the node. No effect raises an unexpected error."""
        self.dispatcher.submit(effect)
        await eventually(self.is_idle, lambda: f"{effect} to be performed")
        assert self.supervisor.recent() == []
        return self.agents.verbs


@pytest.fixture
async def world() -> AsyncIterator[World]:
    created = World()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(created.dispatcher.run())
        await asyncio.sleep(0)
        yield created
        running.cancel()


async def test_a_poll_is_noted_before_its_reply_so_that_it_is_not_repeated(world: World) -> None:
    world.entry.dispatch = a_dispatch()
    during: list[Dispatch | None] = []
    world.agents.meanwhile = lambda: during.append(world.entry.dispatch)

    await world.perform(PollStatus(N1, WEB))

    (dispatch,) = during
    assert dispatch is not None
    assert dispatch.polled_at is not None


async def test_the_poll_after_a_removal_is_noted_so_that_it_is_not_repeated(world: World) -> None:
    world.agents.may_answer.clear()
    world.dispatcher.submit(Remove(N1, WEB, 1))
    await asyncio.wait_for(world.agents.called.wait(), 30)

    assert world.agents.verbs == ["remove", "ask"]
    assert world.entry.dispatch is not None
    assert world.entry.dispatch.polled_at is not None
    world.agents.may_answer.set()


async def test_a_poll_that_is_queued_behind_a_removal_is_not_sent_again(world: World) -> None:
    world.dispatcher.submit(Remove(N1, WEB, 1))

    assert await world.perform(PollStatus(N1, WEB)) == ["remove", "ask"]
    assert await world.perform(PollStatus(N1, WEB)) == ["remove", "ask", "ask"]


async def test_a_poll_of_a_stale_copy_does_not_postpone_the_poll_of_the_new_one(
    world: World,
) -> None:
    world.cluster.put_tombstone(Tombstone(an_assignment(), NOON))
    world.cluster.put_assignment(WEB, an_assignment(node_id="n2", epoch=2))
    world.entry.dispatch = a_dispatch()

    await world.perform(PollStatus(N1, WEB))

    assert world.entry.dispatch == a_dispatch()


async def test_the_actions_of_an_ended_order_are_fetched_once(world: World) -> None:
    assert await world.perform(KeepActions(N1, WEB, NOON)) == ["actions"]
    assert await world.perform(KeepActions(N1, WEB, NOON)) == ["actions"]


async def test_an_order_is_sent_and_its_reply_recorded(world: World) -> None:
    assert await world.perform(ORDERS[0]) == ["apply"]

    assert world.entry.dispatch is not None
    assert world.entry.dispatch.answered_at is not None
    assert world.entry.observation is not None
    assert world.woken


@pytest.mark.parametrize("effect", [*ORDERS, *QUESTIONS], ids=lambda effect: type(effect).__name__)
async def test_nothing_is_sent_to_a_removed_node(world: World, effect: Effect) -> None:
    world.cluster.drop_node(N1)

    assert await world.perform(effect) == []


async def test_an_order_of_an_earlier_assignment_is_not_sent(world: World) -> None:
    world.cluster.put_assignment(WEB, an_assignment(epoch=2))

    assert await world.perform(ORDERS[0]) == []


async def test_an_outdated_order_is_not_sent(world: World) -> None:
    world.cluster.put_workload(a_workload(revision="r2"))
    assert await world.perform(ORDERS[0]) == []

    world.cluster.put_workload(a_workload())
    world.cluster.put_assignment(WEB, None)
    assert await world.perform(ORDERS[0]) == []

    world.cluster.drop_workload(WEB)
    assert await world.perform(ORDERS[0]) == []


async def test_an_order_fulfilled_by_another_observation_is_not_sent(world: World) -> None:
    world.entry.dispatch = None

    assert await world.perform(ORDERS[0]) == []


async def test_a_late_removal_is_not_sent_to_a_node_with_a_newer_assignment(world: World) -> None:
    world.cluster.put_assignment(WEB, an_assignment(epoch=2))
    sent = world.entry.dispatch

    assert await world.perform(Remove(N1, WEB, 1)) == []

    assert world.entry.dispatch is sent


async def test_a_removal_of_the_present_copy_is_recorded_when_accepted(world: World) -> None:
    await world.perform(Remove(N1, WEB, 1))

    assert world.entry.dispatch is not None
    assert world.entry.dispatch.answered_at is not None


@pytest.mark.parametrize("effect", ORDERS, ids=lambda effect: type(effect).__name__)
async def test_an_order_without_an_answer_is_sent_again_later(world: World, effect: Effect) -> None:
    world.agents.is_silent = True

    await world.perform(effect)

    assert world.entry.dispatch is not None
    assert (world.entry.dispatch.unanswered_count, world.entry.dispatch.problem) == (1, "no answer")
    assert world.woken == [WEB]


async def test_while_orders_are_not_allowed_only_polls_are_sent(world: World) -> None:
    world.may_order = False
    for effect in (*ORDERS, *QUESTIONS):
        await world.perform(effect)

    assert world.agents.verbs == ["ask", "actions", "probe"]
    assert world.entry.dispatch is None


async def test_dropped_orders_are_repeated_when_orders_are_allowed_again(world: World) -> None:
    stale = Remove(N1, WorkloadId("moved"), 1, keeps_data=True)
    world.cluster.put_tombstone(Tombstone(an_assignment(name=stale.workload_id), NOON))
    world.may_order = False
    for effect in (ORDERS[0], stale):
        await world.perform(effect)
    world.dispatcher.resume()
    assert (world.woken, world.agents.verbs) == ([], [])

    world.may_order = True
    world.dispatcher.resume()

    async def is_repeated() -> bool:
        return world.woken[:1] == [WEB] and "remove" in world.agents.verbs

    await eventually(is_repeated, lambda: "both orders to be repeated")


async def test_a_queued_poll_is_not_queued_twice(world: World) -> None:
    for _ in range(2):
        world.dispatcher.submit(QUESTIONS[0])

    assert await world.perform(QUESTIONS[0]) == ["ask"]
    assert await world.perform(QUESTIONS[0]) == ["ask", "ask"]


async def test_a_node_with_a_call_in_progress_gets_no_further_call(world: World) -> None:
    world.agents.may_answer.clear()
    world.dispatcher.submit(QUESTIONS[0])
    world.dispatcher.submit(ORDERS[0])
    await asyncio.wait_for(world.agents.called.wait(), 30)
    for _ in range(20):  # everything that can be sent is sent now
        await asyncio.sleep(0)
    assert world.agents.verbs == ["ask"]

    world.agents.may_answer.set()

    await eventually(world.is_idle, lambda: "the order to be sent")
    assert world.agents.verbs == ["ask", "apply"]


@pytest.mark.parametrize("is_silent", [False, True], ids=["refused", "not answered"])
@pytest.mark.parametrize("effect", ORDERS, ids=lambda effect: type(effect).__name__)
async def test_the_result_of_an_order_does_not_revert_a_later_decision(
    world: World, effect: Effect, is_silent: bool
) -> None:
    newer = a_dispatch(revision="r2", answered=False)

    def decide() -> None:
        world.entry.dispatch = newer

    world.agents.meanwhile = decide
    world.agents.answer = Actual.FAILED
    world.agents.is_silent = is_silent

    await world.perform(effect)

    assert world.entry.dispatch is newer
    assert world.entry.refusal is None


def dispatch_of(world: World, name: str) -> Dispatch:
    found = world.cluster.workloads[WorkloadId(name)].dispatch
    assert found is not None
    return found


async def perform_all(world: World, effects: Sequence[Effect]) -> list[str]:
    for effect in effects[:-1]:
        world.dispatcher.submit(effect)
    return await world.perform(effects[-1])


async def test_orders_that_follow_each_other_are_sent_in_one_message(world: World) -> None:
    world.accept_batches()
    orders = world.many(3)

    assert await perform_all(world, orders) == ["batch of 3"]

    for order in orders:
        entry = world.cluster.workloads[order.workload.id]
        assert entry.observation is not None
        assert dispatch_of(world, order.workload.id).answered_at is not None
        # The reply is dated with the time of sending.
        assert entry.observation.seen_at == dispatch_of(world, order.workload.id).sent_at
        assert order.workload.id in world.woken


async def test_a_batch_has_at_most_64_orders(world: World) -> None:
    world.accept_batches()

    assert await perform_all(world, world.many(130)) == ["batch of 64", "batch of 64", "batch of 2"]


async def test_orders_are_sent_alone_to_agents_without_batches(world: World) -> None:
    assert await perform_all(world, world.many(3)) == ["apply"] * 3


async def test_an_order_is_not_sent_before_an_earlier_removal(world: World) -> None:
    world.accept_batches()
    first, second, third, fourth = world.many(4)
    removal = Remove(N1, WorkloadId("old"), 1)

    sent = await perform_all(world, [first, second, removal, third, fourth])

    assert sent == ["batch of 2", "remove", "ask", "batch of 2"]


async def test_an_outdated_order_of_a_batch_is_not_sent(world: World) -> None:
    world.accept_batches()
    orders = world.many(3)
    world.cluster.put_workload(a_workload("web-1", revision="r2"))

    assert await perform_all(world, orders) == ["batch of 2"]


async def test_a_repeated_order_is_sent_once(world: World) -> None:
    world.accept_batches()
    first, second = world.many(2)

    assert await perform_all(world, [first, first, second]) == ["batch of 2"]


async def test_an_order_without_a_result_is_sent_alone_the_next_time(world: World) -> None:
    world.accept_batches()
    orders = world.many(3)
    world.agents.silent_about = {"web-1"}
    await perform_all(world, orders)
    assert dispatch_of(world, "web-1").unanswered_count == 1
    assert dispatch_of(world, "web-2").answered_at is not None
    world.agents.verbs.clear()
    for order in orders:
        entry = world.cluster.workloads[order.workload.id]
        count = dispatch_of(world, order.workload.id).unanswered_count
        entry.dispatch = replace(a_dispatch(answered=False), unanswered_count=count)

    assert await perform_all(world, orders) == ["batch of 2", "apply"]


async def test_a_refused_order_of_a_batch_is_a_refusal_of_its_workload(world: World) -> None:
    world.accept_batches()
    world.agents.answer = Actual.FAILED

    await perform_all(world, world.many(2))

    assert dispatch_of(world, "web-0").refused
    assert world.cluster.workloads[WorkloadId("web-1")].refusal is not None


async def test_a_batch_is_dropped_while_orders_are_not_allowed(world: World) -> None:
    world.accept_batches()
    world.may_order = False

    assert await perform_all(world, world.many(3)) == []

    assert world.cluster.workloads[WorkloadId("web-0")].dispatch is None
