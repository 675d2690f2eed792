"""Placements committed per second at 5,000 nodes, over bare commits of the same store in equal batches.

    python -m bench.committed

The scheduler is a separate process with 64 gRPC clients; one more process simulates all 5,000 agents. The
baseline writes the same kind of records, as many per transaction, without a scheduler. Each kind of rule is
compared with plain placements in the same run on the same store.
"""

import asyncio
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import grpc

from bench.apply_rate import CLIENTS, transactions
from bench.processes import etcd, free_port, process, scheduler
from bench.stored import commit_bare, units
from bench.verdict import Verdict, report
from persys.infra.clock import SystemClock
from persys.store.etcd import EtcdOptions
from persys.store.open import open_store
from persys.wire.gen.agent.v1 import agent_pb2, agent_pb2_grpc
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

NODES = 5_000
ZONES = 5
SECONDS = 4.0
FLOOR_UNITS = 8_000
GROUP_SIZE = 50
KINDS = ("plain", "spread", "anti-affinity")


def main() -> None:
    agents_port = free_port()
    with (
        tempfile.TemporaryDirectory() as directory,
        process([sys.executable, "-m", "bench.committed", str(agents_port)], port=agents_port),
    ):
        verdicts = _judged("sqlite", f"sqlite:{directory}/scheduler.db", agents_port, directory)
        with etcd(Path(directory) / "etcd") as port:
            verdicts += _judged("etcd", "etcd", agents_port, directory, etcd_port=port)
    report(*verdicts)


def _judged(
    name: str, store: str, agents_port: int, directory: str, *, etcd_port: int = 0
) -> list[Verdict]:
    env = {"SCHEDULER_NODE_LEASE": "10m", "ETCD_ENDPOINTS": f"127.0.0.1:{etcd_port}"}
    with scheduler(store, **env) as (port, metrics_port, _):
        asyncio.run(_register(port, agents_port))
        rates = {}
        before, placed = transactions(metrics_port), 0
        for kind in KINDS:
            rates[kind], created = asyncio.run(_drive(port, kind))
            placed += created
        per_transaction = max(1, round(placed / (transactions(metrics_port) - before)))
    floor_store = f"sqlite:{directory}/floor.db" if store != "etcd" else store
    floor = asyncio.run(_floor(floor_store, per_transaction, etcd_port))
    return [
        Verdict(
            f"committed: {name} over the bare store, batches of {per_transaction}",
            rates["plain"] / floor,
        ),
        Verdict(
            f"committed: {name}, spread, cost over plain",
            rates["plain"] / rates["spread"],
            at_most=2,
        ),
        Verdict(
            f"committed: {name}, anti-affinity, cost over plain",
            rates["plain"] / rates["anti-affinity"],
            at_most=2,
        ),
    ]


async def _floor(store: str, per_transaction: int, etcd_port: int) -> float:
    options = EtcdOptions(endpoints=(f"127.0.0.1:{etcd_port}",))
    opened = await open_store(store, etcd=options, monotonic=SystemClock().monotonic)
    try:
        return await commit_bare(opened, units(FLOOR_UNITS, nodes=NODES), per_transaction)
    finally:
        await opened.close()


async def _register(port: int, agents_port: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = control_pb2_grpc.AgentControlStub(channel)
        for first in range(0, NODES, 500):
            responses = await asyncio.gather(
                *(stub.RegisterNode(_node(n, agents_port)) for n in range(first, first + 500))
            )
            assert all(response.accepted for response in responses), responses[0].reason


def _node(number: int, agents_port: int) -> control_pb2.RegisterNodeRequest:
    return control_pb2.RegisterNodeRequest(
        node_id=f"node-{number:05}",
        capabilities=control_pb2.NodeCapabilities(
            cpu_total_millicores=64_000,
            memory_total_mb=256_000,
            supported_workload_types=["container"],
        ),
        labels={"zone": f"z{number % ZONES}"},
        grpc_endpoint=f"127.0.0.1:{agents_port}",
        features=["push-status"],
    )


async def _drive(port: int, kind: str) -> tuple[float, int]:
    """Placements per second after a warm-up, and the total number of placements."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = control_pb2_grpc.AgentControlStub(channel)
        warm, _ = await _load(stub, kind, 1.0, "warm")
        measured, seconds = await _load(stub, kind, SECONDS, "work")
    return measured / seconds, warm + measured


async def _load(
    stub: control_pb2_grpc.AgentControlStub, kind: str, seconds: float, name: str
) -> tuple[int, float]:
    started_at, done = perf_counter(), 0

    async def client(number: int) -> None:
        nonlocal done
        of_client = 0
        while perf_counter() - started_at < seconds:
            of_client += 1
            request = _request(f"{kind}-{name}-{number}-{of_client}", kind, done // GROUP_SIZE)
            response = await stub.ApplyWorkload(request, timeout=30)
            assert response.success, response.error_message
            done += 1

    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(client(number))
    return done, perf_counter() - started_at


def _request(workload_id: str, kind: str, group: int) -> control_pb2.ApplyWorkloadRequest:
    rules = {
        "plain": control_pb2.PlacementRules(),
        "spread": control_pb2.PlacementRules(group=f"s{group}", spread_over=["zone"]),
        "anti-affinity": control_pb2.PlacementRules(group=f"a{group}", anti_affinity="required"),
    }[kind]
    return control_pb2.ApplyWorkloadRequest(
        workload_id=workload_id,
        spec=control_pb2.WorkloadSpec(
            type="container",
            resources=control_pb2.ResourceRequirements(cpu_millicores=100, memory_mb=64),
            container=control_pb2.ContainerSpec(image="registry.example/team/service:1.2.3"),
            placement=rules,
        ),
        desired_state="Running",
    )


class _Agents(agent_pb2_grpc.AgentServiceServicer):
    """Simulates all agents: accepts each order."""

    async def ApplyWorkload(  # noqa: N802  # as gRPC names it
        self,
        request: agent_pb2.ApplyWorkloadRequest,
        context: grpc.aio.ServicerContext[object, object],
    ) -> agent_pb2.ApplyWorkloadResponse:
        return _accepted(request)

    async def ApplyWorkloads(  # noqa: N802
        self,
        request: agent_pb2.ApplyWorkloadsRequest,
        context: grpc.aio.ServicerContext[object, object],
    ) -> agent_pb2.ApplyWorkloadsResponse:
        return agent_pb2.ApplyWorkloadsResponse(
            results=[
                agent_pb2.ApplyResult(id=order.id, response=_accepted(order))
                for order in request.orders
            ]
        )


def _accepted(order: agent_pb2.ApplyWorkloadRequest) -> agent_pb2.ApplyWorkloadResponse:
    status = agent_pb2.WorkloadStatus(
        id=order.id,
        revision_id=order.revision_id,
        epoch=order.epoch,
        actual_state=agent_pb2.ACTUAL_STATE_PENDING,
    )
    return agent_pb2.ApplyWorkloadResponse(applied=True, status=status)


async def _serve_agents(port: int) -> None:
    server = grpc.aio.server()
    agent_pb2_grpc.add_AgentServiceServicer_to_server(_Agents(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(_serve_agents(int(sys.argv[1])))
    else:
        main()
