"""Durable ApplyWorkload per second from 64 clients, over a bare grpc.aio echo of the same message.

    python -m bench.apply_rate

Both sides use the same client process. The measurement of the scheduler ends with an acknowledged, stored
intent: no node is registered, so placement runs but nothing is dispatched.
"""

import asyncio
import sys
import tempfile
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter

import grpc

from bench.processes import etcd, free_port, process, scheduler
from bench.verdict import Verdict, report
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

CLIENTS = 64
SECONDS = 4.0


def main() -> None:
    echo = _echo_rate()
    with tempfile.TemporaryDirectory() as directory:
        verdicts = [*_judged("sqlite", f"sqlite:{directory}/scheduler.db", echo)]
        with etcd(Path(directory) / "etcd") as port:
            verdicts += _judged("etcd", "etcd", echo, ETCD_ENDPOINTS=f"127.0.0.1:{port}")
    report(*verdicts)


def _judged(name: str, store: str, echo: float, **env: str) -> list[Verdict]:
    with scheduler(store, **env) as (port, metrics_port, _):
        before = transactions(metrics_port)
        rate, applied = asyncio.run(_drive(port))
        committed = transactions(metrics_port) - before
    return [
        Verdict(f"apply rate: {name} over bare echo", rate / echo, at_least=0.4),
        Verdict(f"apply rate: {name} transactions per apply", committed / applied, at_most=0.2),
    ]


def _echo_rate() -> float:
    port = free_port()
    with process([sys.executable, "-m", "bench.apply_rate", "echo", str(port)], port=port):
        rate, _ = asyncio.run(_drive(port, echo=True))
    return rate


async def _drive(port: int, *, echo: bool = False) -> tuple[float, int]:
    """Calls per second after a warm-up, and the total number of calls."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = _echo_call(channel) if echo else _apply_call(channel)
        warm, _ = await _load(call, 1.0, "warm")
        measured, seconds = await _load(call, SECONDS, "work")
    return measured / seconds, warm + measured


Call = Callable[[control_pb2.ApplyWorkloadRequest], Awaitable[None]]


def _apply_call(channel: grpc.aio.Channel) -> Call:
    stub = control_pb2_grpc.AgentControlStub(channel)

    async def call(request: control_pb2.ApplyWorkloadRequest) -> None:
        response = await stub.ApplyWorkload(request, timeout=30)
        assert response.success, response.error_message

    return call


def _echo_call(channel: grpc.aio.Channel) -> Call:
    method = channel.unary_unary(
        "/bench.Echo/Echo",
        request_serializer=control_pb2.ApplyWorkloadRequest.SerializeToString,
        response_deserializer=control_pb2.ApplyWorkloadRequest.FromString,
    )

    async def call(request: control_pb2.ApplyWorkloadRequest) -> None:
        response = await method(request, timeout=30)
        assert response.workload_id == request.workload_id

    return call


async def _load(call: Call, seconds: float, name: str) -> tuple[int, float]:
    started_at = perf_counter()
    done = 0

    async def client(number: int) -> None:
        nonlocal done
        count = 0
        while perf_counter() - started_at < seconds:
            count += 1
            await call(_request(f"{name}-{number}-{count}"))
            done += 1

    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(client(number))
    return done, perf_counter() - started_at


def _request(workload_id: str) -> control_pb2.ApplyWorkloadRequest:
    return control_pb2.ApplyWorkloadRequest(
        workload_id=workload_id,
        spec=control_pb2.WorkloadSpec(
            type="container",
            resources=control_pb2.ResourceRequirements(cpu_millicores=100, memory_mb=64),
            container=control_pb2.ContainerSpec(
                image="registry.example/team/service:1.2.3",
                command=["serve", "--port", "8080"],
                env={"LOG_LEVEL": "info", "REGION": "north"},
            ),
        ),
        desired_state="Running",
    )


def transactions(metrics_port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as response:
        for line in response.read().decode().splitlines():
            if line.startswith("persys_scheduler_store_transactions_total "):
                return float(line.split()[1])
    raise LookupError("the scheduler exports no count of store transactions")


async def _serve_echo(port: int) -> None:
    async def echo(
        request: control_pb2.ApplyWorkloadRequest, context: object
    ) -> control_pb2.ApplyWorkloadRequest:
        return request

    method = grpc.unary_unary_rpc_method_handler(
        echo,
        request_deserializer=control_pb2.ApplyWorkloadRequest.FromString,
        response_serializer=control_pb2.ApplyWorkloadRequest.SerializeToString,
    )
    handlers = grpc.method_handlers_generic_handler("bench.Echo", {"Echo": method})
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handlers,))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    if sys.argv[1:2] == ["echo"]:
        asyncio.run(_serve_echo(int(sys.argv[2])))
    else:
        main()
