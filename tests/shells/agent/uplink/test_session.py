"""The agent against a fake scheduler: registration, heartbeats, changes, loss and recovery."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from persys.agent.uplink.session import HEARTBEAT_DEFAULT_SECONDS
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING


class FakeScheduler(control_pb2_grpc.AgentControlServicer):
    def __init__(self, port: int, *, interval: int = 1) -> None:
        self.port = port
        self.interval = interval
        self.accepts = True
        self.acknowledges = True
        self.drains = False
        self.asked_at: list[float] = []  # times of the registrations
        self.joined: list[control_pb2.RegisterNodeRequest] = []
        self.heartbeats: list[control_pb2.HeartbeatRequest] = []
        self.heartbeat_at: list[float] = []  # times of the heartbeats
        self._server: grpc.Server | None = None

    def start(self) -> None:
        server = grpc.server(ThreadPoolExecutor(4))
        control_pb2_grpc.add_AgentControlServicer_to_server(self, server)
        server.add_insecure_port(f"127.0.0.1:{self.port}")
        server.start()
        self._server = server

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(0).wait()
        self._server = None

    def RegisterNode(  # noqa: N802 - gRPC names the methods
        self, request: control_pb2.RegisterNodeRequest, _context: Any
    ) -> control_pb2.RegisterNodeResponse:
        self.asked_at.append(time.monotonic())
        if self.accepts:
            self.joined.append(request)
        return control_pb2.RegisterNodeResponse(
            accepted=self.accepts, reason="not now", heartbeat_interval_seconds=self.interval
        )

    def Heartbeat(  # noqa: N802 - gRPC names the methods
        self, request: control_pb2.HeartbeatRequest, context: Any
    ) -> control_pb2.HeartbeatResponse:
        if not self.acknowledges:
            context.abort(grpc.StatusCode.NOT_FOUND, f"node not found: {request.node_id}")
        self.heartbeat_at.append(time.monotonic())
        self.heartbeats.append(request)
        return control_pb2.HeartbeatResponse(acknowledged=True, drain_node=self.drains)

    def heartbeats_with(self, workload_id: str, state: str) -> list[control_pb2.HeartbeatRequest]:
        return [
            heartbeat
            for heartbeat in self.heartbeats
            for status in heartbeat.workload_statuses
            if (status.workload_id, status.state) == (workload_id, state)
        ]


@pytest.fixture
def scheduler(free_port: int) -> Iterator[FakeScheduler]:
    fake = FakeScheduler(free_port)
    fake.start()
    yield fake
    fake.stop()


def until(holds: Callable[[], object], *, within: float = 15) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.02)


def test_a_node_registers_and_then_sends_heartbeats(
    new_agent: "Callable[..., Agent]", scheduler: FakeScheduler
) -> None:
    agent = new_agent(
        "-insecure",
        PERSYS_SCHEDULER_ADDR=f"127.0.0.1:{scheduler.port}",
        PERSYS_NODE_REGION="north",
        PERSYS_NODE_LABELS="disk=ssd",
        PERSYS_SYSTEM_RESERVE_MEMORY_MB="100",
        PERSYS_VM_ENABLED="false",
    )
    agent.start()

    until(lambda: len(scheduler.heartbeats) >= 2)

    first, second = scheduler.heartbeat_at[:2]
    assert second - first < HEARTBEAT_DEFAULT_SECONDS, "the interval of the scheduler is used"
    (joined,) = scheduler.joined
    assert joined.node_id == agent.node_id
    assert joined.HasField("timestamp")
    assert joined.grpc_endpoint == f"127.0.0.1:{agent.port}"
    assert dict(joined.labels) == {"region": "north", "disk": "ssd"}
    assert list(joined.capabilities.supported_workload_types) == ["container"]
    assert joined.capabilities.reserved_memory_mb == 100
    assert joined.capabilities.cpu_total_millicores >= 1000
    assert joined.capabilities.storage_pools[0].total_gb > 0
    assert "push-status" in joined.features
    assert "privileged" not in joined.features
    assert all(heartbeat.complete for heartbeat in scheduler.heartbeats)
    assert scheduler.heartbeats[0].usage.memory_used_mb > 0
    assert not agent.logged("scheduler.lost")  # missing stream support does not count as a loss


def test_a_refused_registration_is_logged_once_and_retried_with_back_off(
    new_agent: "Callable[..., Agent]", scheduler: FakeScheduler
) -> None:
    scheduler.accepts = False
    agent = new_agent("-insecure", PERSYS_SCHEDULER_ADDR=f"127.0.0.1:{scheduler.port}")
    agent.start()

    until(lambda: len(scheduler.asked_at) >= 5)
    (lost,) = agent.logged("scheduler.lost")
    assert lost["reason"] == "refused: not now"
    assert scheduler.heartbeats == []
    # Jitter takes at most half of a pause, and each pause is twice the one before.
    pauses = [later - earlier for earlier, later in pairwise(scheduler.asked_at)]
    assert pauses[3] > pauses[0]

    scheduler.accepts = True
    until(lambda: scheduler.heartbeats)


def test_a_change_is_reported_before_the_next_full_heartbeat(
    new_agent: "Callable[..., Agent]",
    scheduler: FakeScheduler,
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
) -> None:
    scheduler.interval = 60
    agent = new_agent("-insecure", PERSYS_SCHEDULER_ADDR=f"127.0.0.1:{scheduler.port}")
    agent.start()
    until(lambda: scheduler.heartbeats)

    sleeper.resources.cpu_millicores = 300
    agent.apply(unique_id, sleeper, epoch=9)
    until(lambda: scheduler.heartbeats_with(unique_id, "Running"))
    agent.delete(unique_id, epoch=9)
    until(
        lambda: any(
            unique_id in heartbeat.removed_workload_ids for heartbeat in scheduler.heartbeats
        )
    )

    report = scheduler.heartbeats_with(unique_id, "Running")[0]
    assert not report.complete
    assert (report.workload_statuses[0].revision_id, report.workload_statuses[0].epoch) == ("r1", 9)
    assert report.usage.cpu_allocated_millicores == 300


def test_a_deletion_is_reported_until_it_is_acknowledged_also_after_a_crash(
    new_agent: "Callable[..., Agent]",
    scheduler: FakeScheduler,
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
) -> None:
    agent = new_agent("-insecure", PERSYS_SCHEDULER_ADDR=f"127.0.0.1:{scheduler.port}")
    agent.start()
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)
    scheduler.stop()
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)
    agent.kill()
    scheduler.heartbeats.clear()

    scheduler.start()
    agent.start()
    until(lambda: len(scheduler.heartbeats) >= 3)

    assert [list(heartbeat.removed_workload_ids) for heartbeat in scheduler.heartbeats[:3]] == [
        [unique_id],
        [],
        [],
    ]


def test_losing_the_scheduler_stops_nothing_and_the_node_registers_again(
    new_agent: "Callable[..., Agent]",
    scheduler: FakeScheduler,
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
) -> None:
    agent = new_agent("-insecure", PERSYS_SCHEDULER_ADDR=f"127.0.0.1:{scheduler.port}")
    agent.start()
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)
    until(lambda: scheduler.heartbeats)

    scheduler.stop()
    until(lambda: agent.logged("scheduler.lost"))
    scheduler.heartbeats.clear()
    scheduler.start()
    until(lambda: len(scheduler.joined) == 2)
    until(lambda: scheduler.heartbeats_with(unique_id, "Running"))

    assert len(agent.containers(unique_id, running=True)) == 1
    assert len(agent.logged("scheduler.lost")) == 1
    until(lambda: len(agent.logged("scheduler.connected")) == 2)


def test_a_node_unknown_to_the_scheduler_registers_again(
    new_agent: "Callable[..., Agent]", scheduler: FakeScheduler
) -> None:
    agent = new_agent("-insecure", PERSYS_SCHEDULER_ADDR=f"127.0.0.1:{scheduler.port}")
    agent.start()
    until(lambda: scheduler.heartbeats)

    scheduler.acknowledges = False
    until(lambda: len(scheduler.joined) >= 2)
    scheduler.acknowledges = True
    scheduler.heartbeats.clear()

    until(lambda: scheduler.heartbeats)


def test_the_next_address_is_tried_when_one_does_not_respond(
    new_agent: "Callable[..., Agent]", scheduler: FakeScheduler
) -> None:
    agent = new_agent("-insecure", PERSYS_SCHEDULER_ADDR=f"127.0.0.1:1,127.0.0.1:{scheduler.port}")
    agent.start()

    until(lambda: scheduler.heartbeats)


def test_a_draining_node_accepts_nothing_new_and_stops_nothing(
    new_agent: "Callable[..., Agent]",
    scheduler: FakeScheduler,
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
) -> None:
    agent = new_agent("-insecure", PERSYS_SCHEDULER_ADDR=f"127.0.0.1:{scheduler.port}")
    agent.start()
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)

    scheduler.drains = True
    until(lambda: agent.logged("node.draining"))
    refused = agent.apply(f"{unique_id}-new", sleeper)
    sleeper.env["NEW"] = "revision"
    updated = agent.apply(unique_id, sleeper, revision="r2")

    assert not refused.applied
    assert "draining" in refused.message
    assert updated.applied
    agent.wait_for(unique_id, RUNNING)
