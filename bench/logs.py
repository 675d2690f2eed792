"""Latency of `persysctl logs -f` and of status changes, over the same with Docker itself.

    python -m bench.logs

Rounds of both sides alternate, so that other load on the machine affects both.
"""

import asyncio
import json
import subprocess
import tempfile
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter

import aiohttp
import grpc

from bench.containers import agent, until_gone
from bench.docker_socket import SOCKET
from bench.processes import BIN, scheduler
from bench.verdict import Verdict, report
from persys.cli.framework.live import LineProgress
from persys.cli.local.demo import IMAGE, ensure_image
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

LINES = 300_000
WRITER = f"yes $(head -c 99 /dev/zero | tr '\\0' x) | head -n {LINES}"
ROUNDS = 5
CHANGES = 40


def main() -> None:
    ensure_image(LineProgress())
    with (
        tempfile.TemporaryDirectory() as directory,
        scheduler(f"sqlite:{directory}/s.db") as (port, _, _),
        agent(Path(directory), port),
    ):
        asyncio.run(_apply(port, "writer", WRITER, "Stopped"))
        throughput = _throughput(port)
        docker, ours = asyncio.run(_changes(port))
        asyncio.run(_end(port, "writer"))
    report(
        Verdict(f"logs: {LINES} lines followed, over docker logs -f", throughput),
        Verdict("change: visible in GetWorkload, over docker's event (p50)", ours[0] / docker[0]),
        Verdict("change: visible in GetWorkload, over docker's event (p99)", ours[1] / docker[1]),
    )


def _throughput(port: int) -> float:
    ours, bare = [], []
    (container,) = _container_ids("writer")
    for _ in range(ROUNDS):
        bare.append(_seconds("docker", "logs", "-f", container))
        target = f"127.0.0.1:{port}"
        ours.append(_seconds(str(BIN / "persysctl"), "--scheduler", target, "logs", "-f", "writer"))
    return median(ours) / median(bare)


def _seconds(*command: str) -> float:
    started_at = perf_counter()
    with tempfile.TemporaryFile() as output:
        subprocess.run(command, stdout=output, check=True, timeout=120)
        seconds = perf_counter() - started_at
        assert output.tell() == LINES * 100, f"{command[0]}: {output.tell()} bytes"
    return seconds


def _container_ids(name: str) -> list[str]:
    ask = ["docker", "ps", "-aq", "--no-trunc", "--filter", f"label=persys.workload_id={name}"]
    return subprocess.run(ask, check=True, capture_output=True, text=True).stdout.split()


async def _changes(port: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """p50 and p99 of the seconds from a kill to Docker's event, and to another status in GetWorkload."""
    docker, ours = [], []
    connector = aiohttp.UnixConnector(path=SOCKET, limit=0)
    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        stub = control_pb2_grpc.AgentControlStub(channel)
        for number in range(CHANGES):
            name = f"change-{number}"
            await _apply(port, name, "sleep 3600", "Running")
            (container,) = _container_ids(name)
            received = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(_receive_exit(session, container, received))
                await received.wait()
                started_at = perf_counter()
                async with session.post(f"http://docker/containers/{container}/kill"):
                    pass
                while (await _status(stub, name)) == "Running":
                    assert not listening.done() or perf_counter() - started_at < 60, (
                        "the change is not visible"
                    )
                    await asyncio.sleep(0.001)
                ours.append(perf_counter() - started_at)
            docker.append(listening.result() - started_at)
            await until_gone(stub, [name])
    return _percentiles(docker), _percentiles(ours)


async def _receive_exit(
    session: aiohttp.ClientSession, container: str, ready: asyncio.Event
) -> float:
    filters = json.dumps({"container": [container], "event": ["die"]})
    async with session.get("http://docker/events", params={"filters": filters}) as response:
        ready.set()
        await response.content.readline()
        return perf_counter()


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    return median(seconds), quantiles(seconds, n=100)[98]


async def _status(stub: control_pb2_grpc.AgentControlStub, name: str) -> str:
    request = control_pb2.GetWorkloadRequest(workload_id=name)
    status: str = (await stub.GetWorkload(request, timeout=30)).workload.status
    return status


async def _apply(port: int, name: str, line: str, until: str) -> None:
    container = control_pb2.ContainerSpec(
        image=IMAGE,
        command=["sh", "-c", f"exec {line}" if line.startswith("sleep") else line],
        restart_policy="no",
    )
    spec = control_pb2.WorkloadSpec(
        type="container",
        resources=control_pb2.ResourceRequirements(memory_mb=32),
        container=container,
    )
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = control_pb2_grpc.AgentControlStub(channel)
        request = control_pb2.ApplyWorkloadRequest(workload_id=name, spec=spec)
        response = await stub.ApplyWorkload(request, timeout=30)
        assert response.success, response.error_message
        async with asyncio.timeout(60):
            while (status := await _status(stub, name)) != until:
                assert status in ("Pending", "Running"), f"{name} is {status}"
                await asyncio.sleep(0.01)


async def _end(port: int, name: str) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await until_gone(control_pb2_grpc.AgentControlStub(channel), [name])


if __name__ == "__main__":
    main()
