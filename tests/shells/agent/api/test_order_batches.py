"""Batches of orders: each is accepted or refused alone, and their journal entries share one transaction."""

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from persys.agent.api.tunnel_server import AbortedError, TunnelServer
from persys.model.ids import WorkloadId
from persys.model.status import Actual
from persys.model.workload import Order
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits.table import ORDERS_MAX
from shells.agent.in_memory import (
    Node,
    NoVolumes,
    RunningAgent,
    a_context,
    a_running_agent,
)

INVALID, UNAVAILABLE = (
    code.value[0] for code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAVAILABLE)
)


class StalledVolumes(NoVolumes):
    """The volumes of one workload are on a storage that does not respond."""

    def __init__(self, stalled: str) -> None:
        self._stalled = stalled
        self.responds = asyncio.Event()

    async def check(self, order: Order) -> None:
        if order.workload_id == self._stalled:
            await self.responds.wait()


def an_order(name: str, *, epoch: int = 0, image: str = "app:1") -> agent_pb2.ApplyWorkloadRequest:
    return agent_pb2.ApplyWorkloadRequest(
        id=name,
        type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
        revision_id="r1",
        desired_state=agent_pb2.DESIRED_STATE_RUNNING,
        spec=agent_pb2.WorkloadSpec(container=agent_pb2.ContainerSpec(image=image)),
        epoch=epoch,
    )


async def send(
    running: RunningAgent, orders: Iterable[agent_pb2.ApplyWorkloadRequest]
) -> list[agent_pb2.ApplyResult]:
    request = agent_pb2.ApplyWorkloadsRequest(orders=orders)
    response = await running.call(running.api.ApplyWorkloads(request, a_context()))
    return list(response.results)


async def test_each_order_of_a_batch_is_accepted_or_refused_alone(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        await running.apply("known", epoch=7)
        await running.until_actual("known", Actual.RUNNING)
        orders = [
            an_order("good"),
            an_order("Not an id"),
            an_order("without-image", image=""),
            an_order("known", epoch=7),
            an_order("known-too", epoch=3),
            an_order("last"),
        ]

        results = await send(running, orders)

        assert [result.id for result in results] == [order.id for order in orders]
        assert [result.code for result in results] == [0, INVALID, 0, 0, 0, 0]
        good, bad_id, invalid, skipped, new, last = results
        assert all(one.response.applied and not one.response.skipped for one in (good, new, last))
        assert "id" in bad_id.error
        assert not invalid.response.applied
        assert "image" in invalid.response.message
        assert skipped.response.skipped
        for name in ("good", "known-too", "last"):
            await running.until_actual(name, Actual.RUNNING)
        assert running.errors == []


async def test_a_stale_order_of_a_batch_is_answered_with_the_known_epoch(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        await running.apply("moved", epoch=7)

        stale, other = await send(running, [an_order("moved", epoch=5), an_order("other")])

        assert (stale.code, stale.response.known_epoch) == (0, 7)
        assert other.response.applied


async def test_the_entries_of_a_batch_are_written_in_one_transaction(tmp_path: Path) -> None:
    thread, statements = ThreadPoolExecutor(1), list[str]()
    async with a_running_agent(Node(tmp_path, journal_thread=thread)) as running:
        thread.submit(running.journal.connection.set_trace_callback, statements.append).result()

        await send(running, [an_order(f"web-{number}") for number in range(ORDERS_MAX)])

        until_commit = statements[: statements.index("COMMIT")]
        assert sum("INSERT INTO entries" in one for one in until_commit) == ORDERS_MAX


async def test_an_order_that_hangs_does_not_delay_the_results_of_others(tmp_path: Path) -> None:
    volumes = StalledVolumes("stalled")
    async with a_running_agent(Node(tmp_path, volumes=volumes)) as running:
        good, stalled = await send(running, [an_order("good"), an_order("stalled")])

        assert good.response.applied
        assert (stalled.code, "in progress" in stalled.error) == (UNAVAILABLE, True)
        volumes.responds.set()
        await running.until_actual("stalled", Actual.RUNNING)


async def test_a_workload_that_is_twice_in_a_batch_gets_both_orders(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        first, second = await send(running, [an_order("web", epoch=1), an_order("web", epoch=2)])

        assert (first.code, second.code) == (0, 0)
        assert running.journal.entries[WorkloadId("web")].order.epoch == 2


async def test_a_batch_with_too_many_orders_is_refused(tmp_path: Path) -> None:
    async with a_running_agent(Node(tmp_path)) as running:
        orders = [an_order(f"web-{number}") for number in range(ORDERS_MAX + 1)]

        with pytest.raises(AbortedError, match=f"expected at most {ORDERS_MAX}"):
            await send(running, orders)

        assert running.journal.entries == {}


async def test_an_invalid_order_on_the_control_stream_does_not_refuse_its_batch(
    tmp_path: Path,
) -> None:
    replies: list[control_pb2.StreamReply] = []

    async def reply(one: control_pb2.StreamReply) -> None:
        replies.append(one)

    orders = [an_order("good"), an_order("long", image="x" * 5000)]
    request = agent_pb2.ApplyWorkloadsRequest(orders=orders).SerializeToString()
    async with a_running_agent(Node(tmp_path)) as running, asyncio.TaskGroup() as group:
        server = TunnelServer(running.api, running.agent.supervisor)
        call = control_pb2.StreamCall(id=1, method="ApplyWorkloads", request=request)
        server.handle(call, reply, group)
        await running.until(lambda: bool(replies), "the batch is answered")

    response = agent_pb2.ApplyWorkloadsResponse.FromString(replies[0].response)
    assert [result.response.applied for result in response.results] == [True, False]
    assert "image" in response.results[1].response.message
