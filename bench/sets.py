"""Members of a set that are placed and committed per second, over single applies of 64 clients.

    python -m bench.sets

The scheduler is a separate process; one more process simulates the agents of all nodes. Both ways place the
same container on the same nodes, and both end with stored assignments.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import grpc

from bench.apply_rate import CLIENTS, transactions
from bench.processes import etcd, free_port, process, scheduler
from bench.verdict import Verdict, report
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

NODES = 1_000
REPLICAS = 10_000
SECONDS = 6.0
DEADLINE_SECONDS = 300.0

Driven = tuple[int, float]  # placements, and the seconds that they took


def main() -> None:
    agents_port = free_port()
    with (
        tempfile.TemporaryDirectory() as directory,
        process([sys.executable, "-m", "bench.committed", str(agents_port)], port=agents_port),
    ):
        verdicts = []
        for name in ("sqlite", "etcd"):
            single = _measured(name, Path(directory) / f"{name}-single", agents_port, _applied)
            scaled = _measured(name, Path(directory) / f"{name}-set", agents_port, _scaled)
            verdicts += [
                Verdict(
                    f"sets: {name}, members per second over single applies",
                    scaled.rate / single.rate,
                    at_least=3,
                ),
                Verdict(
                    f"sets: {name}, CPU of the scheduler per single apply over a member",
                    single.cpu_seconds / scaled.cpu_seconds,
                ),
                Verdict(
                    f"sets: {name}, transactions per member",
                    scaled.transactions,
                    at_most=0.05,
                ),
            ]
    report(*verdicts)


class Measured(NamedTuple):
    """Placements per second; CPU time of the scheduler and transactions for each of them."""

    rate: float
    cpu_seconds: float
    transactions: float


def _measured(
    name: str, directory: Path, agents_port: int, drive: Callable[[int], Awaitable[Driven]]
) -> Measured:
    directory.mkdir()
    with _cluster(name, directory, agents_port) as (port, metrics_port, process_id):
        before, cpu_before = transactions(metrics_port), _cpu_seconds(process_id)
        driven = asyncio.run(_awaited(drive, port))
        written = transactions(metrics_port) - before
        cpu = _cpu_seconds(process_id) - cpu_before
    count, seconds = driven
    print(f"{directory.name}: {count / seconds:.0f}/s, {1e6 * cpu / count:.0f} us of CPU each")
    return Measured(count / seconds, cpu / count, written / count)


async def _awaited(drive: Callable[[int], Awaitable[Driven]], port: int) -> Driven:
    return await drive(port)


@contextmanager
def _cluster(name: str, directory: Path, agents_port: int) -> Iterator[tuple[int, int, int]]:
    """A scheduler with registered nodes: its gRPC port, its metrics port and its process id."""
    with ExitStack() as stack:
        env = {"SCHEDULER_NODE_LEASE": "10m"}
        store = f"sqlite:{directory}/scheduler.db"
        if name == "etcd":
            store = name
            env["ETCD_ENDPOINTS"] = f"127.0.0.1:{stack.enter_context(etcd(directory))}"
        port, metrics_port, started = stack.enter_context(scheduler(store, **env))
        asyncio.run(_register(port, agents_port))
        yield port, metrics_port, started.pid


async def _register(port: int, agents_port: int) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = control_pb2_grpc.AgentControlStub(channel)
        for number in range(NODES):
            response = await stub.RegisterNode(_node(number, agents_port), timeout=30)
            assert response.accepted, response.reason


def _node(number: int, agents_port: int) -> control_pb2.RegisterNodeRequest:
    return control_pb2.RegisterNodeRequest(
        node_id=f"node-{number:05}",
        capabilities=control_pb2.NodeCapabilities(
            cpu_total_millicores=64_000,
            memory_total_mb=256_000,
            supported_workload_types=["container"],
        ),
        grpc_endpoint=f"127.0.0.1:{agents_port}",
        features=["push-status", "order-batches"],
    )


async def _applied(port: int) -> Driven:
    """Single applies."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        return await _load(control_pb2_grpc.AgentControlStub(channel))


async def _load(stub: control_pb2_grpc.AgentControlStub) -> Driven:
    started_at, done = perf_counter(), 0

    async def client(number: int) -> None:
        nonlocal done
        count = 0
        while perf_counter() - started_at < SECONDS:
            count += 1
            request = control_pb2.ApplyWorkloadRequest(
                workload_id=f"work-{number}-{count}", spec=_spec()
            )
            response = await stub.ApplyWorkload(request, timeout=30)
            assert response.success, response.error_message
            done += 1

    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(client(number))
    return done, perf_counter() - started_at


async def _scaled(port: int) -> Driven:
    """Members of a set, from the request until all are stored with their assignments."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = control_pb2_grpc.AgentControlStub(channel)
        spec = control_pb2.SetSpec(set_id="web", replicas=0, template=_spec())
        applied = await stub.ApplySet(control_pb2.ApplySetRequest(set=spec), timeout=30)
        assert applied.accepted, applied.reason
        request = control_pb2.ScaleSetRequest(set_id="web", replicas=REPLICAS)
        started_at = perf_counter()
        scaled = await stub.ScaleSet(request, timeout=60)
        assert scaled.accepted, scaled.reason
        while await _count(stub) < REPLICAS:
            assert perf_counter() - started_at < DEADLINE_SECONDS, "the members were not created"
            await asyncio.sleep(0.2)
        return REPLICAS, perf_counter() - started_at


async def _count(stub: control_pb2_grpc.AgentControlStub) -> int:
    request = control_pb2.GetClusterSummaryRequest()
    count: int = (await stub.GetClusterSummary(request, timeout=60)).total_workloads
    return count


def _spec() -> control_pb2.WorkloadSpec:
    return control_pb2.WorkloadSpec(
        type="container",
        resources=control_pb2.ResourceRequirements(cpu_millicores=100, memory_mb=64),
        container=control_pb2.ContainerSpec(
            image="registry.example/team/service:1.2.3",
            env={"LOG_LEVEL": "info", "REGION": "north"},
        ),
    )


def _cpu_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


if __name__ == "__main__":
    main()
