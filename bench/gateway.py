"""A workload read through the gateway from the scheduler's memory, over the bare server with the same bytes.

    python -m bench.gateway [SECONDS]

200 clients use persistent connections and read first the same workload, then each its own. The baseline is
the gateway's own listener with one handler that returns a constant response. Rounds alternate, so that other
load on the machine affects both.
"""

import asyncio
import statistics
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, cast

import grpc
import uvloop
from aiohttp import web

from bench.processes import BIN, free_port, process
from bench.verdict import Verdict, report
from persys.infra.net.http_server import HttpServer
from persys.infra.net.listener import HttpLimits
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub
from persys.wire.rest.json_codec import to_json

SECONDS = 4.0
ROUNDS = 3
CLIENTS = 200
BARE = "--bare"


class Measured(NamedTuple):
    per_second: float
    p99_seconds: float


class Client(asyncio.Protocol):
    """Sends the next request after each response. Parses only the end of a response."""

    def __init__(self, path: str, ends_at: float) -> None:
        self._request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode()
        self._ends_at = ends_at
        self._buffer = b""
        self._asked_at = 0.0
        self.seconds: list[float] = []
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transport of uvloop has all methods, but not the class.
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(rest) < length:
            return
        assert head.startswith(b"HTTP/1.1 200"), head
        now = perf_counter()
        self.seconds.append(now - self._asked_at)
        self._buffer = b""
        if now < self._ends_at:
            self._ask()
        elif not self.over.done():
            self._transport.close()
            self.over.set_result(None)

    def _ask(self) -> None:
        self._asked_at = perf_counter()
        self._transport.write(self._request)


async def measure(port: int, paths: list[str], seconds: float) -> Measured:
    loop = asyncio.get_running_loop()
    ends_at = perf_counter() + seconds
    started_at = perf_counter()
    clients = []
    for path in paths:
        make = partial(Client, path, ends_at)
        _, client = await loop.create_connection(make, "127.0.0.1", port)
        clients.append(client)
    for client in clients:
        await client.over
    taken = sorted(one for client in clients for one in client.seconds)
    return Measured(len(taken) / (perf_counter() - started_at), taken[int(len(taken) * 0.99)])


async def serve_bare(port: int, body: bytes) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_get("/api/v1/workloads/{workload_id}", handle)
    await HttpServer(app, limits=HttpLimits(), context=None).start("127.0.0.1", port)
    await asyncio.Event().wait()


async def prepare(scheduler: int) -> bytes:
    """Creates workloads and waits until they are stable; returns the response for one of them."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{scheduler}") as channel:
        stub: Any = AgentControlStub(channel)  # its types are the synchronous ones
        for number in range(CLIENTS):
            spec = pb.WorkloadSpec(type="container", container=pb.ContainerSpec(image="nginx"))
            await stub.ApplyWorkload(
                pb.ApplyWorkloadRequest(
                    workload_id=name_of(number), spec=spec, desired_state="Stopped"
                ),
                wait_for_ready=True,
            )
        response = await stub.GetWorkload(pb.GetWorkloadRequest(workload_id=name_of(0)))
    return to_json(response)


def name_of(number: int) -> str:
    return f"workload-{number:04}"


async def compare(bare: int, gateway: int, seconds: float) -> list[Verdict]:
    same = [f"/api/v1/workloads/{name_of(0)}"] * CLIENTS
    own = [f"/api/v1/workloads/{name_of(number)}" for number in range(CLIENTS)]
    rates: dict[str, list[float]] = {"same": [], "own": []}
    tails: dict[str, list[float]] = {"same": [], "own": []}
    await measure(gateway, own, 1.0)  # connections, caches
    for _ in range(ROUNDS):
        floor = await measure(bare, same, seconds)
        for name, paths in (("same", same), ("own", own)):
            found = await measure(gateway, paths, seconds)
            rates[name].append(found.per_second / floor.per_second)
            tails[name].append(found.p99_seconds / floor.p99_seconds)
    middle = statistics.median
    return [
        Verdict(
            "reads of one workload per second, over the bare server", middle(rates["same"]), 0.5
        ),
        Verdict("their p99, over the bare server's", middle(tails["same"])),
        Verdict("reads of 200 workloads per second, over the bare server", middle(rates["own"])),
        Verdict("their p99, over the bare server's", middle(tails["own"])),
    ]


def main() -> None:
    if BARE in sys.argv:
        uvloop.run(serve_bare(int(sys.argv[2]), Path(sys.argv[3]).read_bytes()))
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        run(Path(folder), stack, seconds)


def run(folder: Path, stack: ExitStack, seconds: float) -> None:
    scheduler, metrics, gateway, bare = (free_port() for _ in range(4))
    stack.enter_context(
        process(
            [str(BIN / "persys-scheduler"), "-insecure"],
            env={
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "GRPC_PORT": str(scheduler),
                "METRICS_PORT": str(metrics),
                "PERSYS_STORE": f"sqlite:{folder}/scheduler.db",
                "LOG_LEVEL": "warning",
            },
            port=scheduler,
        )
    )
    file = folder / "answer.json"
    file.write_bytes(uvloop.run(prepare(scheduler)))
    stack.enter_context(
        process(
            [str(BIN / "persys-gateway"), "-insecure"],
            env={
                "PERSYS_GATEWAY_ADDR": "127.0.0.1",
                "PERSYS_GATEWAY_PORT": str(gateway),
                "PERSYS_SCHEDULER_ADDR": f"127.0.0.1:{scheduler}",
                "PERSYS_GATEWAY_REQUESTS_PER_SECOND": "0",
                "PERSYS_GATEWAY_AUDIT_DB": "memory",
                "LOG_LEVEL": "warning",
            },
            port=gateway,
        )
    )
    command = [sys.executable, "-m", "bench.gateway", BARE, str(bare), str(file)]
    stack.enter_context(process(command, env={}, port=bare))
    report(*uvloop.run(compare(bare, gateway, seconds)))


if __name__ == "__main__":
    main()
