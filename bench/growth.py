"""The cost of placements, heartbeats and events by the size of the cluster, and the loss of a rack.

    python -m bench.growth [full]

From 10 nodes with 100 workloads, each step ten times as large: to 1,000 nodes, or with `full` to 10,000 nodes
with 100,000 workloads. Costs are CPU time of the scheduler, so that other load on the machine counts little.
All agents are on streams. The heartbeats of all agents together come at the same rate at every size.

A rack is a tenth of the nodes: 1,000 workloads, or 10,000 with `full`. Its agents are killed; the time counts
from the moment at which the nodes are lost until everything runs elsewhere, over writing the same number of
placements to the bare store. Reads are served meanwhile.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

import grpc

from bench.heartbeats import WORKLOADS_EACH, Agents, an_apply, filled, simulated, until_quiet
from bench.processes import cpu_seconds, scheduler
from bench.stored import commit_bare, node_name, units
from bench.verdict import Verdict, report
from persys.infra.clock import SystemClock
from persys.store.sqlite import SqliteStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1 import control_pb2_grpc

SMALLEST = 10
APPLIES = 400
CLIENTS = 8
HEARTBEATS_PER_SECOND = 200.0
HEARTBEAT_SECONDS = 10.0
WATCHERS = 100
LEASE_SECONDS, GRACE_SECONDS = 15.0, 5.0
RACK_INTERVAL_SECONDS = 3.0
RACK_DEADLINE_SECONDS = 600.0
PER_TRANSACTION = 100


@dataclass(frozen=True, slots=True)
class Costs:
    """CPU seconds of the scheduler."""

    placement: float
    watched: float  # a placement with a hundred watchers
    heartbeat: float


def main(largest: int) -> None:
    costs = {}
    nodes = SMALLEST
    while nodes <= largest:
        costs[nodes] = _costs(nodes)
        print(
            f"growth: {nodes} nodes, {nodes * WORKLOADS_EACH} workloads: "
            f"placement {1e3 * costs[nodes].placement:.2f} ms, "
            f"with {WATCHERS} watchers {1e3 * costs[nodes].watched:.2f} ms, "
            f"heartbeat {1e3 * costs[nodes].heartbeat:.3f} ms of CPU time",
            flush=True,
        )
        nodes *= 10
    small, large = costs[SMALLEST], costs[largest]
    per_event = [max(1e-9, one.watched - one.placement) for one in (small, large)]
    size = f"{largest} nodes over {SMALLEST}"
    report(
        Verdict(f"growth: placement, {size}", large.placement / small.placement, at_most=2),
        Verdict(f"growth: heartbeat, {size}", large.heartbeat / small.heartbeat, at_most=2),
        Verdict(f"growth: events to {WATCHERS} watchers, {size}", per_event[1] / per_event[0]),
        *_rack(largest),
    )


def _costs(nodes: int) -> Costs:
    interval = nodes / HEARTBEATS_PER_SECOND
    with (
        filled(nodes) as store,
        scheduler(store, SCHEDULER_NODE_LEASE="10m") as (port, _, control),
        simulated(port, nodes, interval) as agents,
    ):
        until_quiet(control.pid)
        asyncio.run(_apply_many(port, control.pid, "warm"))
        placement = asyncio.run(_apply_many(port, control.pid, "plain"))
        watched = asyncio.run(_apply_many(port, control.pid, "watched", watchers=WATCHERS))
        until_quiet(control.pid)
        heartbeat = _heartbeat_seconds(agents, control, interval)
    return Costs(placement, watched, heartbeat)


def _heartbeat_seconds(agents: Agents, control: "Popen[bytes]", interval: float) -> float:
    agents.begin()
    sleep(interval + 2)  # the first heartbeat of each agent is new to the scheduler
    answered, used = agents.answered, cpu_seconds(control.pid)
    sleep(max(HEARTBEAT_SECONDS, interval))
    return (cpu_seconds(control.pid) - used) / max(1, agents.answered - answered)


async def _apply_many(port: int, pid: int, mark: str, *, watchers: int = 0) -> float:
    async with _stub(port) as stub, asyncio.TaskGroup() as group:
        watching = [group.create_task(_watch(stub)) for _ in range(watchers)]
        await asyncio.sleep(1)
        names = iter([f"{mark}-{number}" for number in range(APPLIES)])

        async def client() -> None:
            for name in names:
                response = await stub.ApplyWorkload(an_apply(name), timeout=120)
                assert response.success, response.error_message

        used = cpu_seconds(pid)
        async with asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(client())
        await asyncio.sleep(1)  # what follows the responses counts too
        used = cpu_seconds(pid) - used
        for watch in watching:
            watch.cancel()
    return used / APPLIES


async def _watch(stub: control_pb2_grpc.AgentControlStub) -> None:
    async for _ in stub.WatchEvents(pb.WatchEventsRequest()):
        pass


def _rack(nodes: int) -> list[Verdict]:
    rack = nodes // 10
    lost = rack * WORKLOADS_EACH
    environ = {
        "SCHEDULER_NODE_LEASE": f"{LEASE_SECONDS:g}s",
        "SCHEDULER_NODE_UNAVAILABLE_GRACE": f"{GRACE_SECONDS:g}s",
    }
    with (
        filled(nodes) as store,
        scheduler(store, **environ) as (port, _, _),
        simulated(port, nodes, RACK_INTERVAL_SECONDS, 0, rack) as lost_agents,
        simulated(port, nodes, RACK_INTERVAL_SECONDS, rack, nodes - rack) as agents,
    ):
        lost_agents.begin()
        agents.begin()
        sleep(2 * RACK_INTERVAL_SECONDS)
        seconds, p99, quiet_p99 = asyncio.run(
            _replaced(port, lost_agents, nodes * WORKLOADS_EACH, rack)
        )
    floor = asyncio.run(_bare_seconds(lost))
    return [
        Verdict(f"growth: {lost} workloads of a lost rack, over the bare store", seconds / floor),
        Verdict("growth: p99 of a read during the loss, over before", p99 / quiet_p99),
    ]


async def _replaced(
    port: int, rack_agents: Agents, workloads: int, rack: int
) -> tuple[float, float, float]:
    """Seconds until everything runs again, and the p99 of reads during it and before."""
    async with _stub(port) as stub:
        before: list[float] = []
        for _ in range(100):
            await _read(stub, before)
        rack_agents.kill()
        killed_at = perf_counter()
        during: list[float] = []
        while True:
            summary = await _read(stub, during)
            if summary.not_ready_nodes >= rack and summary.running_workloads == workloads:
                left = [await _assigned(stub, number) for number in range(rack)]
                if not any(left):
                    break
            assert perf_counter() - killed_at < RACK_DEADLINE_SECONDS, (
                f"not placed again: {summary}"
            )
        seconds = perf_counter() - killed_at - LEASE_SECONDS - GRACE_SECONDS
    return seconds, _p99(during), _p99(before)


async def _assigned(stub: control_pb2_grpc.AgentControlStub, number: int) -> bool:
    """Whether workloads are still assigned to the node."""
    request = pb.ListWorkloadsRequest(node_id=node_name(number))
    return bool((await stub.ListWorkloads(request, timeout=60)).workloads)


async def _read(
    stub: control_pb2_grpc.AgentControlStub, taken: list[float]
) -> pb.GetClusterSummaryResponse:
    await asyncio.sleep(0.05)
    began = perf_counter()
    summary: pb.GetClusterSummaryResponse = await stub.GetClusterSummary(
        pb.GetClusterSummaryRequest(), timeout=60
    )
    taken.append(perf_counter() - began)
    return summary


async def _bare_seconds(count: int) -> float:
    with TemporaryDirectory() as directory:
        store = await SqliteStore.open(
            Path(directory) / "floor.db", monotonic=SystemClock().monotonic
        )
        try:
            return count / await commit_bare(store, units(count, nodes=100), PER_TRANSACTION)
        finally:
            await store.close()


def _p99(taken: list[float]) -> float:
    return sorted(taken)[int(len(taken) * 0.99)]


@asynccontextmanager
async def _stub(port: int) -> AsyncIterator[control_pb2_grpc.AgentControlStub]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield control_pb2_grpc.AgentControlStub(channel)


if __name__ == "__main__":
    main(10_000 if sys.argv[1:] == ["full"] else 1_000)
