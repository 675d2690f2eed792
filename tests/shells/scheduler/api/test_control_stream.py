"""The control stream: agents without an inbound port work like agents with an endpoint."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import grpc
import pytest

from builders import a_supervisor
from persys.agent.api.tunnel_server import TunnelServer
from persys.agent.uplink.link import SchedulerLostError
from persys.agent.uplink.stream_link import connect_stream
from persys.infra.rpc.grpc_server import new_channel
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.third_party_agent import Agent


def registration(node_id: str) -> pb.RegisterNodeRequest:
    return pb.RegisterNodeRequest(
        node_id=node_id,
        capabilities=pb.NodeCapabilities(
            cpu_total_millicores=4000, memory_total_mb=8192, supported_workload_types=["container"]
        ),
    )


class StreamAgent:
    """An agent without a port: it opens a stream and serves calls on it."""

    def __init__(self, cluster: Cluster, node_id: str, agent: Agent | None = None) -> None:
        self.agent = agent or Agent()
        self._address = f"127.0.0.1:{cluster.settings.grpc_port}"
        self._node_id = node_id
        self.joined = 0

    async def run(self) -> None:
        connect = connect_stream(
            TunnelServer(self.agent, a_supervisor()), new_channel, certificate=lambda: None
        )
        while True:
            with suppress(SchedulerLostError):
                async with connect(self._address) as link:
                    response = await link.register(registration(self._node_id))
                    assert response.accepted, response.reason
                    self.joined += 1
                    while True:
                        await link.heartbeat(pb.HeartbeatRequest(node_id=self._node_id))
                        await asyncio.sleep(0.2)
            await asyncio.sleep(0.05)


@asynccontextmanager
async def a_stream_agent(
    cluster: Cluster, node_id: str = "inside", *, agent: Agent | None = None
) -> AsyncIterator[StreamAgent]:
    node = StreamAgent(cluster, node_id, agent)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(node.run())

        async def ready() -> bool:
            return node.joined > 0

        await eventually(ready, lambda: "the agent to join")
        yield node
        running.cancel()


async def test_an_agent_without_a_port_runs_workloads(cluster: Cluster) -> None:
    async with a_stream_agent(cluster) as node:
        await cluster.control.apply("web")
        view = await cluster.control.until("web", "Running")
        await cluster.control.want("web", "Stopped")
        await cluster.control.until("web", "Stopped")
        await cluster.control.delete("web")
        await cluster.control.until_gone("web")

    assert view.assigned_node_id == "inside"
    assert node.agent.deletes == ["web"]


async def test_an_agent_of_another_cluster_is_refused_on_its_stream(cluster: Cluster) -> None:
    connect = connect_stream(
        TunnelServer(Agent(), a_supervisor()), new_channel, certificate=lambda: None
    )
    async with connect(f"127.0.0.1:{cluster.settings.grpc_port}") as link:
        foreign = registration("inside")
        foreign.cluster_id = "another"
        refused = await link.register(foreign)

    assert not refused.accepted
    assert "this scheduler serves cluster 'default'" in refused.reason
    assert (await cluster.control.summary()).total_nodes == 0


async def test_agents_with_an_endpoint_and_on_streams_work_together(cluster: Cluster) -> None:
    outside = await cluster.join("outside")
    async with a_stream_agent(cluster) as node:
        for name in ("a", "b"):
            await cluster.control.apply(name, cpu=3000)
        for name in ("a", "b"):
            await cluster.control.until(name, "Running")

        assert len(node.agent.running()) == len(outside.agent.running()) == 1


async def test_an_agent_reconnects_after_a_restart_of_the_scheduler(cluster: Cluster) -> None:
    async with a_stream_agent(cluster) as node:
        await cluster.control.apply("before")
        await cluster.control.until("before", "Running")

        await cluster.stop()
        await cluster.start()
        await cluster.control.apply("after")
        await cluster.control.until("after", "Running")

        assert node.joined == 2
        assert [request.id for request in node.agent.applies].count("before") == 1


async def test_a_scheduler_with_open_streams_stops_at_once(cluster: Cluster) -> None:
    async with a_stream_agent(cluster):
        async with asyncio.timeout(1.5):
            await cluster.stop()
        await cluster.start()


async def test_a_third_party_agent_gets_the_orders_of_the_contract(cluster: Cluster) -> None:
    """It supports only the four messages: it registers, sends heartbeats and executes orders."""
    states: dict[str, str] = {}
    orders: list[str] = []

    async def serve_orders(call: grpc.aio.StreamStreamCall) -> None:  # type: ignore[type-arg]
        async for message in call:
            match message.WhichOneof("message"):
                case "apply":
                    states[message.apply.workload_id] = message.apply.desired_state
                    orders.append(f"apply {message.apply.spec.container.image}")
                case "delete":
                    states.pop(message.delete.workload_id, None)
                    orders.append(f"delete {message.delete.workload_id}")

    async def beat(call: grpc.aio.StreamStreamCall) -> None:  # type: ignore[type-arg]
        await call.write(pb.ControlMessage(register=registration("plain")))
        while True:
            statuses = [pb.WorkloadStatus(workload_id=k, state=v) for k, v in states.items()]
            heartbeat = pb.HeartbeatRequest(node_id="plain", workload_statuses=statuses)
            await call.write(pb.ControlMessage(heartbeat=heartbeat))
            await asyncio.sleep(0.1)

    call = cluster.control.stub.ControlStream()
    async with asyncio.TaskGroup() as group:
        parts = [group.create_task(serve_orders(call)), group.create_task(beat(call))]
        await cluster.control.apply("web", image="shop:1")
        view = await cluster.control.until("web", "Running")
        await cluster.control.delete("web")
        await cluster.control.until_gone("web")
        for part in parts:
            part.cancel()
    call.cancel()

    assert view.assigned_node_id == "plain"
    assert orders[0] == "apply shop:1"
    assert "delete web" in orders


async def test_a_stream_that_does_not_begin_with_a_registration_is_refused(
    cluster: Cluster,
) -> None:
    call = cluster.control.stub.ControlStream()
    await call.write(pb.ControlMessage(heartbeat=pb.HeartbeatRequest(node_id="n1")))

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call.read()

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "register" in (refused.value.details() or "")


async def test_a_heartbeat_of_an_unknown_node_ends_the_stream(cluster: Cluster) -> None:
    call = cluster.control.stub.ControlStream()
    await call.write(pb.ControlMessage(register=registration("n1")))
    await call.read()
    await call.write(pb.ControlMessage(heartbeat=pb.HeartbeatRequest(node_id="another")))

    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call.read()

    assert error.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    "cluster",
    [
        {
            "node_lease": timedelta(seconds=2),
            "node_unavailable_grace": timedelta(seconds=0.5),
            "reconcile_interval": timedelta(minutes=10),
            "drift_detect_interval": timedelta(minutes=10),
        }
    ],
    indirect=True,
    ids=["no safety passes"],
)
async def test_a_stale_copy_behind_nat_is_removed_as_soon_as_its_stream_is_open(
    cluster: Cluster,
) -> None:
    async with a_stream_agent(cluster) as node:
        await cluster.control.apply("web")
        await cluster.control.until("web", "Running")
    await cluster.control.until_node("inside", "NotReady")
    await cluster.control.delete("web")
    await cluster.control.until_gone("web")
    assert node.agent.running() == {"web"}

    async with a_stream_agent(cluster, agent=node.agent):

        async def removed() -> bool:
            return node.agent.running() == set()

        await eventually(removed, lambda: f"the old copy to go: {node.agent.copies}")
