"""CPU and memory of an agent with idle containers, and their growth.

python -m bench.agent_idle
"""

import asyncio
import tempfile
from pathlib import Path
from time import monotonic, sleep

import grpc

from bench.containers import agent, until_gone, until_running
from bench.processes import bare_resident_pages, cpu_seconds, resident_pages, scheduler
from bench.verdict import Verdict, report
from persys.cli.framework.live import LineProgress
from persys.cli.local.demo import ensure_image
from persys.wire.gen.control.v1 import control_pb2_grpc

COUNT = 200
SECONDS = 60.0
BATCH = 50


def main() -> None:
    ensure_image(LineProgress())
    names = [f"agent-idle-{number}" for number in range(COUNT)]
    with (
        tempfile.TemporaryDirectory() as directory,
        scheduler(f"sqlite:{directory}/s.db") as (port, _, _),
        agent(Path(directory), port) as agent_process,
    ):
        alone = _share(agent_process.pid)
        asyncio.run(_start(port, names))
        sleep(15)  # past what still belongs to the start
        crowded = _share(agent_process.pid)
        memory = resident_pages(agent_process.pid) / bare_resident_pages()
        asyncio.run(_end(port, names))
    report(
        Verdict("agent: idle, share of one core", alone),
        Verdict(f"agent: {COUNT} idle containers, share of one core", crowded, at_most=0.05),
        Verdict("agent: growth with 100 more idle containers", (crowded - alone) * 100 / COUNT),
        Verdict(f"agent: {COUNT} idle containers, memory over bare Python with gRPC", memory),
    )


def _share(pid: int) -> float:
    before, started_at = cpu_seconds(pid), monotonic()
    sleep(SECONDS)
    return (cpu_seconds(pid) - before) / (monotonic() - started_at)


async def _start(port: int, names: list[str]) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = control_pb2_grpc.AgentControlStub(channel)
        for first in range(0, len(names), BATCH):
            await until_running(stub, names[first : first + BATCH])


async def _end(port: int, names: list[str]) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await until_gone(control_pb2_grpc.AgentControlStub(channel), names)


if __name__ == "__main__":
    main()
