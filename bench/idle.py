"""An idle cluster with 100 running containers: store commits, and CPU and memory of the processes.

python -m bench.idle
"""

import asyncio
import subprocess
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from time import monotonic, sleep

import grpc

from bench.apply_rate import transactions
from bench.containers import agent, until_gone, until_running
from bench.processes import bare_resident_pages, cpu_seconds, resident_pages, scheduler
from bench.verdict import Verdict, report
from persys.cli.framework.live import LineProgress
from persys.cli.local.demo import ensure_image
from persys.wire.gen.control.v1 import control_pb2_grpc

WORKLOADS = [f"idle-{number}" for number in range(100)]
SECONDS = 60.0


def main() -> None:
    ensure_image(LineProgress())
    with (
        tempfile.TemporaryDirectory() as directory,
        scheduler(f"sqlite:{directory}/s.db") as (port, metrics_port, control),
        agent(Path(directory), port) as agent_process,
    ):
        asyncio.run(_all(port, until_running))
        sleep(12)  # past the next heartbeat, which still belongs to the start
        before, started_at = transactions(metrics_port), monotonic()
        cpu = {name: -cpu_seconds(pid) for name, pid in _pids(control, agent_process)}
        sleep(SECONDS)
        commits = transactions(metrics_port) - before
        elapsed = monotonic() - started_at
        floor = bare_resident_pages()
        verdicts = [Verdict("idle: store commits in 60 s, 100 running", commits, at_most=0)]
        for name, pid in _pids(control, agent_process):
            share = (cpu[name] + cpu_seconds(pid)) / elapsed
            verdicts.append(Verdict(f"idle: {name}, share of one core", share))
            verdicts.append(
                Verdict(
                    f"idle: {name}, memory over bare Python with gRPC", resident_pages(pid) / floor
                )
            )
        asyncio.run(_all(port, until_gone))
    report(*verdicts)


Permission = Callable[[control_pb2_grpc.AgentControlStub, list[str]], Coroutine[None, None, None]]


async def _all(port: int, deed: Permission) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        await deed(control_pb2_grpc.AgentControlStub(channel), WORKLOADS)


def _pids(
    control: subprocess.Popen[bytes], hands: subprocess.Popen[bytes]
) -> list[tuple[str, int]]:
    return [("scheduler", control.pid), ("agent", hands.pid)]


if __name__ == "__main__":
    main()
