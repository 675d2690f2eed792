"""Heartbeats: the maximum rate of a scheduler, and the cost of ten thousand agents.

    python -m bench.heartbeats

Calls per second from 64 clients, over a bare grpc.aio echo of the same message, which lists ten workloads.
Then 10,000 agents on streams, each with ten workloads and a heartbeat every 10 s: the scheduler's share of a
core, its memory, and how much longer an ApplyWorkload takes than without heartbeats.

Clients and agents are separate processes on the same cores. The best p99 of a few windows counts, so that
other load on the machine is not attributed to the scheduler; each window is long enough for the periodic
work of the scheduler.
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Thread
from time import perf_counter, sleep

import grpc

from bench.processes import (
    bare_resident_pages,
    cpu_seconds,
    free_port,
    process,
    resident_pages,
    scheduler,
)
from bench.stored import (
    REVISION,
    commit_bare,
    marker_unit,
    node_name,
    node_units,
    units,
    workload_names,
)
from bench.verdict import Verdict, report
from persys.infra.clock import SystemClock
from persys.store.sqlite import SqliteStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1 import control_pb2_grpc

CLIENTS = 64
RATE_SECONDS = 4.0
RATE_NODES = 64
WORKLOADS_EACH = 10
NODES = 10_000
PER_TRANSACTION = 500
SHARE_SECONDS = 20.0
WINDOWS = 3
WINDOW_SECONDS = 10.0
APPLY_CLIENTS = 8
APPLY_PAUSE_SECONDS = 0.05


def main() -> None:
    verdicts = [_rate()]
    for verdict in verdicts:
        print(verdict, flush=True)
    report(*_crowd())
    if not all(verdict.holds for verdict in verdicts):
        sys.exit(1)


def _rate() -> Verdict:
    port = free_port()
    with process([sys.executable, "-m", "bench.heartbeats", "echo", str(port)], port=port):
        echo = asyncio.run(_drive(port, echo=True))
    with filled(RATE_NODES) as store, scheduler(store) as (own_port, _, _):
        rate = asyncio.run(_drive(own_port))
    return Verdict("heartbeats: per second over bare echo, 10 workloads", rate / echo, at_least=0.6)


def _crowd() -> list[Verdict]:
    with (
        filled(NODES) as store,
        scheduler(store, SCHEDULER_NODE_LEASE="10m") as (port, _, control),
        simulated(port, NODES) as agents,
    ):
        until_quiet(control.pid)
        without = _best_p99(port, "before")
        until_quiet(control.pid)
        agents.begin()
        sleep(12)  # a whole interval, in which the first of each is news
        replied, started_at, used = agents.answered, perf_counter(), cpu_seconds(control.pid)
        sleep(SHARE_SECONDS)
        seconds = perf_counter() - started_at
        share = (cpu_seconds(control.pid) - used) / seconds
        per_second = (agents.answered - replied) / seconds
        beside = _best_p99(port, "beside")
        memory = resident_pages(control.pid) / bare_resident_pages()
    return [
        Verdict("heartbeats: acknowledged per second, of 1,000 sent", per_second, at_least=900),
        Verdict("heartbeats: 10,000 agents, share of one core", share, at_most=1),
        Verdict("heartbeats: 100,000 workloads, memory over bare Python", memory),
        Verdict(
            "heartbeats: p99 of apply over the p99 without heartbeats", beside / without, at_most=3
        ),
    ]


@contextmanager
def filled(nodes: int) -> Iterator[str]:
    async def fill(path: Path) -> None:
        store = await SqliteStore.open(path, monotonic=SystemClock().monotonic)
        stored = [*node_units(nodes), *units(nodes * WORKLOADS_EACH, nodes=nodes)]
        await commit_bare(store, [marker_unit(), *stored], PER_TRANSACTION)
        await store.close()

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "scheduler.db"
        asyncio.run(fill(path))
        yield f"sqlite:{path}"


class Agents:
    """The simulated agents, and the last reported number of acknowledged heartbeats."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process
        self.answered = 0

    def listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.answered = int(line)

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()


@contextmanager
def simulated(port: int, nodes: int, *more: float) -> Iterator[Agents]:
    """Registered agents that send no heartbeats yet. `more`: interval, first node and number of nodes."""
    arguments = [sys.executable, "-m", "bench.simulated_agents", str(port)]
    arguments += [str(nodes), str(WORKLOADS_EACH), *map(str, more)]
    with Popen(arguments, stdin=PIPE, stdout=PIPE, text=True) as started:
        agents = Agents(started)
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "joined\n"
            Thread(target=agents.listen, daemon=True).start()
            yield agents
        finally:
            started.kill()


def until_quiet(pid: int) -> None:
    """Wait until the effects of the last step are processed."""
    while True:
        before = cpu_seconds(pid)
        sleep(2)
        if cpu_seconds(pid) - before < 0.2:
            return


def _best_p99(port: int, mark: str) -> float:
    return min(asyncio.run(_apply_p99(port, f"{mark}-{window}")) for window in range(WINDOWS))


async def _apply_p99(port: int, mark: str) -> float:
    taken: list[float] = []
    started_at = perf_counter()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = control_pb2_grpc.AgentControlStub(channel)

        async def client(number: int) -> None:
            count = 0
            while perf_counter() - started_at < WINDOW_SECONDS:
                count += 1
                asked_at = perf_counter()
                response = await stub.ApplyWorkload(
                    an_apply(f"{mark}-{number}-{count}"), timeout=120
                )
                taken.append(perf_counter() - asked_at)
                assert response.success, response.error_message
                await asyncio.sleep(APPLY_PAUSE_SECONDS)

        async with asyncio.TaskGroup() as group:
            for number in range(APPLY_CLIENTS):
                group.create_task(client(number))
    return sorted(taken)[int(len(taken) * 0.99)]


def an_apply(name: str) -> pb.ApplyWorkloadRequest:
    return pb.ApplyWorkloadRequest(
        workload_id=name,
        spec=pb.WorkloadSpec(
            type="container",
            resources=pb.ResourceRequirements(cpu_millicores=10, memory_mb=1),
            container=pb.ContainerSpec(image="registry.example/team/service:1.2.3"),
        ),
    )


Call = Callable[[pb.HeartbeatRequest], Awaitable[None]]


async def _drive(port: int, *, echo: bool = False) -> float:
    """Heartbeats per second."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = _echo_call(channel) if echo else _heartbeat_call(channel)
        await _load(call, 1.0)
        return await _load(call, RATE_SECONDS)


async def _load(call: Call, seconds: float) -> float:
    started_at = perf_counter()
    done = 0

    async def client(number: int) -> None:
        nonlocal done
        heartbeat = _heartbeat(number)
        while perf_counter() - started_at < seconds:
            await call(heartbeat)
            done += 1

    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(client(number))
    return done / (perf_counter() - started_at)


def _heartbeat(number: int) -> pb.HeartbeatRequest:
    return pb.HeartbeatRequest(
        node_id=node_name(number),
        usage=pb.NodeUsage(cpu_used_millicores=12_000, memory_used_mb=64_000),
        workload_statuses=[
            pb.WorkloadStatus(
                workload_id=name,
                state="Running",
                revision_id=REVISION,
                epoch=1,
                metadata={"container.id": "5f2b1a90c3d4", "container.image": "service:1.2.3"},
            )
            for name in workload_names(number, nodes=RATE_NODES, each=WORKLOADS_EACH)
        ],
        complete=True,
    )


def _heartbeat_call(channel: grpc.aio.Channel) -> Call:
    stub = control_pb2_grpc.AgentControlStub(channel)

    async def call(request: pb.HeartbeatRequest) -> None:
        response = await stub.Heartbeat(request, timeout=30)
        assert response.acknowledged

    return call


def _echo_call(channel: grpc.aio.Channel) -> Call:
    method = channel.unary_unary(
        "/bench.Echo/Echo",
        request_serializer=pb.HeartbeatRequest.SerializeToString,
        response_deserializer=pb.HeartbeatRequest.FromString,
    )

    async def call(request: pb.HeartbeatRequest) -> None:
        response = await method(request, timeout=30)
        assert response.node_id == request.node_id

    return call


async def _echo_server(port: int) -> None:
    async def echo(request: pb.HeartbeatRequest, context: object) -> pb.HeartbeatRequest:
        return request

    handler = grpc.unary_unary_rpc_method_handler(
        echo,
        request_deserializer=pb.HeartbeatRequest.FromString,
        response_serializer=pb.HeartbeatRequest.SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("bench.Echo", {"Echo": handler}),)
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    if sys.argv[1:2] == ["echo"]:
        asyncio.run(_echo_server(int(sys.argv[2])))
    else:
        main()
