"""From apply to Running through a federation, over the remote cluster's own time for the same container.

    python -m bench.federation

Two schedulers, an agent on the real Docker in the remote cluster, and persys-federation between them. Rounds
of both sides alternate, so that other load on the machine affects both.
"""

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import grpc

from bench.containers import COMMAND, agent, until_gone, until_running
from bench.processes import BIN, free_port, process, scheduler
from bench.verdict import Verdict, report
from persys.cli.framework.live import LineProgress
from persys.cli.local.demo import IMAGE, ensure_image
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub

ROUNDS = 15
READY_SECONDS = 30.0


def a_container(offload: str) -> pb.WorkloadSpec:
    return pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(memory_mb=32),
        container=pb.ContainerSpec(image=IMAGE, command=COMMAND, init=True, pids_max=64),
        placement=pb.PlacementRules(offload=offload),
    )


def main() -> None:
    ensure_image(LineProgress())
    with (
        tempfile.TemporaryDirectory() as directory,
        scheduler(f"sqlite:{directory}/of-home.db", PERSYS_CLUSTER_ID="home") as (home, _, _),
        scheduler(f"sqlite:{directory}/remote.db", PERSYS_CLUSTER_ID="remote") as (remote, _, _),
        agent(
            Path(directory),
            remote,
            PERSYS_CLUSTER_ID="remote",
            PERSYS_COMPOSE_ENABLED="false",
            PERSYS_VM_ENABLED="false",
        ),
    ):
        asyncio.run(_until_ready(remote))
        port = free_port()
        settings = {
            "PERSYS_FEDERATION_REMOTE": f"127.0.0.1:{remote}",
            "PERSYS_SCHEDULER_ADDR": f"127.0.0.1:{home}",
            "PERSYS_CLUSTER_ID": "home",
            "PERSYS_NODE_ID": "federated",
            "PERSYS_GRPC_PORT": str(port),
            "PERSYS_METRICS_PORT": str(free_port()),
            "PERSYS_STATE_PATH": f"{directory}/federation.db",
            "PERSYS_LOG_LEVEL": "warn",
        }
        with process([str(BIN / "persys-federation"), "-insecure"], env=settings, port=port):
            asyncio.run(_until_ready(home))
            report(asyncio.run(_measure(home, remote)))


async def _until_ready(port: int) -> None:
    async with (
        asyncio.timeout(READY_SECONDS),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        stub = AgentControlStub(channel)
        while True:
            nodes = (await stub.ListNodes(pb.ListNodesRequest(), timeout=10)).nodes
            if any(node.status == "Ready" and not node.problems for node in nodes):
                return
            await asyncio.sleep(0.05)


async def _measure(home: int, remote: int) -> Verdict:
    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{home}") as to_home,
        grpc.aio.insecure_channel(f"127.0.0.1:{remote}") as to_remote,
    ):
        offloaded, direct = list[float](), list[float]()
        for number in range(ROUNDS):
            direct.append(await _one(AgentControlStub(to_remote), f"direct-{number}", ""))
            offloaded.append(await _one(AgentControlStub(to_home), f"bench-{number}", "prefer"))
    return Verdict(
        "federation: 1 applied and running, over the remote cluster's own time",
        median(offloaded) / median(direct),
        at_most=1.5,
    )


async def _one(stub: AgentControlStub, name: str, offload: str) -> float:
    started_at = perf_counter()
    await until_running(stub, [name], a_container(offload))
    seconds = perf_counter() - started_at
    await until_gone(stub, [name])
    return seconds


if __name__ == "__main__":
    main()
