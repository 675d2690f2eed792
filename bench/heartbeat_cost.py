"""CPU time of a heartbeat by the number of workloads on its node, over that of an empty node.

    python -m bench.heartbeat_cost

The agent's side is building the message from the journal and serialising it. The scheduler's side is all
work of its process for a heartbeat on a stream, including gRPC. Workloads are unchanged since the last
heartbeat, the usual case; the last figure is for a node where everything changes each time. CPU time is
counted, not elapsed time, so that other load on the machine does not matter.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import count as numbers
from pathlib import Path
from time import process_time

import grpc
from prometheus_client import CollectorRegistry

from bench.processes import cpu_seconds, scheduler
from bench.simulated_agents import running
from bench.stored import (
    AT,
    FEATURES,
    REVISION,
    commit_bare,
    marker_unit,
    node_name,
    node_units,
    units,
    workload_names,
)
from bench.verdict import Verdict, report
from persys.agent.journal.records import Entry, ReportedStatus
from persys.agent.journal.store import Journal
from persys.agent.node.usage import UtilizationSampler, WorkloadUsageSampler
from persys.agent.settings import AgentSettings
from persys.agent.uplink.heartbeat import ReportBuilder
from persys.agent.workloads.node_policy import policy_of
from persys.infra.aio.path_calls import DirectPathCalls
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import SystemClock
from persys.model import feature
from persys.model.action import Action, ActionKind, ActionState
from persys.model.ids import ActionId, NodeId, Revision, WorkloadId
from persys.model.spec import ContainerSpec, WorkloadType
from persys.model.status import Actual
from persys.model.workload import Desired, Order
from persys.store.sqlite import SqliteStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1 import control_pb2_grpc

COUNTS = (10, 100, 1_000)
NODE = NodeId(node_name(0))
WARM_UP = 20
# Number of statuses, and minimum number of heartbeats, for each figure.
STATUSES = 100_000
HEARTBEATS_MIN = 300
EMPTY_TIMES = 10_000


def main() -> None:
    making = {count: asyncio.run(_making(count)) for count in (0, *COUNTS)}
    taking = {count: asyncio.run(_taking(count)) for count in (0, *COUNTS)}
    pending_reports = asyncio.run(_taking(COUNTS[-1], pending_reports=True))
    report(
        *(
            Verdict(f"heartbeat: {side} of {count:,} workloads over an empty one", ratio)
            for side, costs in (("agent's CPU", making), ("scheduler's CPU", taking))
            for count in COUNTS
            for ratio in (costs[count] / costs[0],)
        ),
        Verdict(
            "heartbeat: scheduler's CPU of 1,000 changed statuses", pending_reports / taking[0]
        ),
    )


async def _making(count: int) -> float:
    """Seconds of CPU per heartbeat."""
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as directory:
        journal = Journal(Path(directory) / "agent.db", cluster_id="bench", node_id=NODE)
        for name in workload_names(0, nodes=1, each=count):
            journal.update(*_running(WorkloadId(name)))
        host_sampler = UtilizationSampler(journal, Path(directory), DirectPathCalls())
        supervisor = Supervisor("agent", clock, CollectorRegistry())
        policy = policy_of(AgentSettings())
        usage_sampler = WorkloadUsageSampler({}, journal, clock, supervisor)
        reports = ReportBuilder(
            NODE,
            journal,
            host_sampler,
            usage_sampler,
            clock,
            supervisor,
            unavailable=tuple,
            runtime_problem=str,
            policy=policy,
        )
        times = _times(count)
        started_at = process_time()
        for _ in range(times):
            created = reports.heartbeat(journal.entries, deleted=(), complete=True)
            created.SerializeToString()
        seconds = process_time() - started_at
        journal.close()
    return seconds / times


def _running(workload_id: WorkloadId) -> tuple[Entry, Action]:
    spec = ContainerSpec("registry.example/team/service:1.2.3")
    order = Order(workload_id, WorkloadType.CONTAINER, Revision(REVISION), 1, Desired.RUNNING, spec)
    metadata = {"container.id": "5f2b1a90c3d4", "container.image": "service:1.2.3"}
    status = ReportedStatus(Actual.RUNNING, AT, metadata=metadata)
    action = Action(
        ActionId(f"a-{workload_id}"), workload_id, ActionKind.APPLY, ActionState.COMPLETED, AT
    )
    return Entry(order, 1, action.id, AT, AT, status), action


async def _taking(count: int, *, pending_reports: bool = False) -> float:
    """The same for the scheduler process. `pending_reports`: every status differs from the last one."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "scheduler.db"
        await _fill(path, count)
        with scheduler(f"sqlite:{path}") as (port, _, control):
            async with (
                grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
                aclosing(_answers(channel, count, pending_reports=pending_reports)) as responses,
            ):
                for _ in range(WARM_UP):
                    await anext(responses)
                times = _times(count)
                began = cpu_seconds(control.pid)
                for _ in range(times):
                    await anext(responses)
                seconds = cpu_seconds(control.pid) - began
    return seconds / times


def _times(count: int) -> int:
    return max(STATUSES // max(count, 1), HEARTBEATS_MIN) if count else EMPTY_TIMES


async def _fill(path: Path, count: int) -> None:
    store = await SqliteStore.open(path, monotonic=SystemClock().monotonic)
    await commit_bare(store, [marker_unit(), *node_units(1), *units(count, nodes=1)], 500)
    await store.close()


async def _answers(
    channel: grpc.aio.Channel, count: int, *, pending_reports: bool
) -> AsyncGenerator[pb.ControlMessage, None]:
    """CPU time of a scheduler that gets the next heartbeat after each response."""
    call = control_pb2_grpc.AgentControlStub(channel).ControlStream()
    await call.write(pb.ControlMessage(register=_registration()))
    assert (await call.read()).registered.accepted
    heartbeat = pb.ControlMessage(heartbeat=_heartbeat(count))
    for number in numbers():
        if pending_reports:
            for status in heartbeat.heartbeat.workload_statuses:
                status.metadata["container.restarts"] = str(number)
        await call.write(heartbeat)
        yield await call.read()


def _registration() -> pb.RegisterNodeRequest:
    return pb.RegisterNodeRequest(
        node_id=NODE,
        features=[*FEATURES, feature.CONTROL_STREAM],
        capabilities=pb.NodeCapabilities(
            cpu_total_millicores=64_000,
            memory_total_mb=256_000,
            supported_workload_types=["container"],
        ),
    )


def _heartbeat(count: int) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(
        node_id=NODE,
        usage=pb.NodeUsage(cpu_used_millicores=12_000, memory_used_mb=64_000),
        workload_statuses=[
            running(name, REVISION, 1) for name in workload_names(0, nodes=1, each=count)
        ],
        complete=True,
    )


if __name__ == "__main__":
    main()
