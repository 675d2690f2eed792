"""Changes of statuses are reported at once, and many of them in one heartbeat."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from msgspec import structs

from persys.agent.uplink.link import Link
from persys.core.agent.report import RESTART_COUNT
from persys.model.ids import WorkloadId
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits.table import ORDERS_MAX
from shells.agent.in_memory import MemoryRuntime, Node, RunningAgent, a_context, a_running_agent


class RecordingLink(Link):
    """A scheduler that accepts everything, and records the heartbeats with a part of the workloads."""

    leaving = False

    def __init__(self) -> None:
        self.is_registered = False
        self.reports: list[control_pb2.HeartbeatRequest] = []

    @property
    def over(self) -> bool:
        return False

    @property
    def is_stale(self) -> bool:
        return False

    async def register(
        self, _request: control_pb2.RegisterNodeRequest
    ) -> control_pb2.RegisterNodeResponse:
        self.is_registered = True
        return control_pb2.RegisterNodeResponse(accepted=True, heartbeat_interval_seconds=300)

    async def heartbeat(
        self, request: control_pb2.HeartbeatRequest
    ) -> control_pb2.HeartbeatResponse:
        if not request.complete:
            self.reports.append(request)
        return control_pb2.HeartbeatResponse(acknowledged=True)

    def states(self) -> dict[str, str]:
        """The last reported state of each workload."""
        return {
            status.workload_id: status.state
            for report in self.reports
            for status in report.workload_statuses
        }

    def last(self, name: str, key: str) -> str:
        """The last reported value in the metadata of a workload."""
        values = [
            status.metadata.get(key, "")
            for report in self.reports
            for status in report.workload_statuses
            if status.workload_id == name
        ]
        return values[-1] if values else ""


def an_order(name: str) -> agent_pb2.ApplyWorkloadRequest:
    return agent_pb2.ApplyWorkloadRequest(
        id=name,
        type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
        revision_id="r1",
        spec=agent_pb2.WorkloadSpec(container=agent_pb2.ContainerSpec(image="app:1")),
    )


@asynccontextmanager
async def a_connected_agent(
    directory: Path, link: RecordingLink, runtime: MemoryRuntime
) -> AsyncIterator[RunningAgent]:
    @asynccontextmanager
    async def connect(_address: str) -> AsyncIterator[Link]:
        yield link

    node = Node(directory, connect=connect, runtime=runtime)
    node.settings = replace(node.settings, standalone=False, scheduler_addr=("127.0.0.1:1",))
    async with a_running_agent(node) as running:
        await running.until(lambda: link.is_registered, "the node is registered")
        yield running


async def test_the_statuses_of_a_batch_of_orders_are_reported_together(tmp_path: Path) -> None:
    link = RecordingLink()
    names = [f"web-{number}" for number in range(ORDERS_MAX)]
    async with a_connected_agent(tmp_path, link, MemoryRuntime()) as running:
        request = agent_pb2.ApplyWorkloadsRequest(orders=[an_order(name) for name in names])

        await running.call(running.api.ApplyWorkloads(request, a_context()))

        everywhere = dict.fromkeys(names, "Running")
        await running.until(lambda: link.states() == everywhere, "all are reported as running")
        first = {status.workload_id for status in link.reports[0].workload_statuses}
        assert first == {*names}
        assert len(link.reports) < ORDERS_MAX / 2


async def test_a_restart_of_a_running_container_is_reported_at_once(tmp_path: Path) -> None:
    link, runtime, web = RecordingLink(), MemoryRuntime(), WorkloadId("web")
    async with a_connected_agent(tmp_path, link, runtime) as running:
        await running.apply("web")
        await running.until(lambda: link.states() == {"web": "Running"}, "web is running")
        assert link.last("web", RESTART_COUNT) == "0"
        seen = runtime.artefacts[web]
        assert seen.started_at is not None

        again = seen.started_at + timedelta(seconds=9)
        runtime.artefacts[web] = structs.replace(seen, restart_count=2, started_at=again)

        await running.until(lambda: link.last("web", RESTART_COUNT) == "2", "both are reported")
