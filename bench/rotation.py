"""Certificate rotation every 10 s (lifetime 20 s) under 100 applies per second: none may fail.

    python -m bench.rotation [SECONDS]

persys-ca, a scheduler and an agent are separate processes, the user is this one; each renews its certificate
from persys-ca. Workloads have the desired state stopped: orders reach the agent, and Docker has no work.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import grpc

from bench.processes import BIN, free_port, process
from bench.verdict import Verdict, report
from persys.client.ca.client import AuthoritySource
from persys.infra.atomic_files import CertificateFiles
from persys.infra.clock import SystemClock
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

SECONDS = 120.0
LIFE_SECONDS = 20
APPLIES_PER_SECOND = 100
WORKLOADS = 200
NODE = "rotating"


class Place:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca, self.scheduler, self.agent = free_port(), free_port(), free_port()
        self.pages = {"scheduler": free_port(), "agent": free_port()}
        self.authority = {
            "PERSYS_CA_DIR": str(folder / "ca"),
            "PERSYS_CA_PORT": str(self.ca),
            "PERSYS_CA_LISTEN": "127.0.0.1",
            "PERSYS_CA_CERT_TTL": f"{LIFE_SECONDS}s",
            "PERSYS_LOG_LEVEL": "warn",
        }

    def certificate(self, role: Role, name: str) -> CertificateFiles:
        out = self.folder / role
        subprocess.run(
            [
                *(str(BIN / "persys-ca"), "certificate", "--role", role, "--name", name),
                *("--out", str(out), "--ttl", f"{LIFE_SECONDS}s"),
            ],
            env=self.authority,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=60,
        )
        return CertificateFiles(out / f"{role}.crt", out / f"{role}.key", out / "ca.crt")

    def environ(self, files: CertificateFiles) -> dict[str, str]:
        return {
            "PERSYS_TLS_CA": str(files.roots),
            "PERSYS_TLS_CERT": str(files.certificate),
            "PERSYS_TLS_KEY": str(files.key),
            "PERSYS_CA_ADDR": f"127.0.0.1:{self.ca}",
        }

    def start(self, stack: ExitStack) -> Tls:
        """Start all processes; returns the client of the user."""
        stack.enter_context(process([str(BIN / "persys-ca")], env=self.authority, port=self.ca))
        settings = {
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "GRPC_PORT": str(self.scheduler),
            "METRICS_PORT": str(self.pages["scheduler"]),
            "PERSYS_STORE": f"sqlite:{self.folder}/scheduler.db",
            "LOG_LEVEL": "warning",
            **self.environ(self.certificate(Role.SCHEDULER, "s1")),
        }
        arguments = [str(BIN / "persys-scheduler")]
        stack.enter_context(process(arguments, env=settings, port=self.scheduler))
        settings = {
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "PERSYS_GRPC_PORT": str(self.agent),
            "PERSYS_METRICS_PORT": str(self.pages["agent"]),
            "PERSYS_NODE_ID": NODE,
            "PERSYS_SCHEDULER_ADDR": f"127.0.0.1:{self.scheduler}",
            "PERSYS_STATE_PATH": str(self.folder / "agent.db"),
            "PERSYS_STORAGE_LOCAL_ROOT": str(self.folder / "volumes"),
            "PERSYS_COMPOSE_ENABLED": "false",
            "PERSYS_LOG_LEVEL": "warn",
            **self.environ(self.certificate(Role.AGENT, NODE)),
        }
        stack.enter_context(process([str(BIN / "persys-agent")], env=settings, port=self.agent))
        files = self.certificate(Role.ADMIN, "me")
        source = AuthoritySource(lambda: [f"127.0.0.1:{self.ca}"], files)
        return Tls(files, SystemClock(), source=source)


class Watch:
    """Checks twice a second the certificate of each server, and whether the agent is connected."""

    def __init__(self, place: Place, tls: Tls) -> None:
        self._place = place
        self._tls = tls
        self.serials: dict[str, set[str]] = defaultdict(set)
        self.alone = 0

    async def run(self) -> None:
        while True:
            self.serials["user"].add(self._tls.in_use().claims.serial)
            for who, port in self._place.pages.items():
                health = await asyncio.to_thread(_health, port)
                self.serials[who].add(health["certificate"]["serial"])
                self.alone += health.get("scheduler") == "not connected"
            await asyncio.sleep(0.5)


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = Place(Path(folder))
        asyncio.run(_measure(place, place.start(stack), seconds))


async def _measure(place: Place, tls: Tls, seconds: float) -> None:
    watch, codes = Watch(place, tls), Counter[str]()
    async with tls.channel(f"127.0.0.1:{place.scheduler}", Role.SCHEDULER) as channel:
        stub = control_pb2_grpc.AgentControlStub(channel)
        async with asyncio.TaskGroup() as group:
            long_lived = [group.create_task(tls.run())]
            await _until_ready(stub)
            long_lived.append(group.create_task(watch.run()))
            before = monotonic()
            await _drive(stub, codes, seconds)
            rate = codes.total() / (monotonic() - before)
            behind = await _until_settled(stub)
            for task in long_lived:
                task.cancel()
    failed = {code: count for code, count in codes.items() if code != "OK"}
    rotations = min(len(serials) - 1 for serials in watch.serials.values())
    print(f"{codes.total()} applies at {rate:.0f}/s; failed: {failed or 'none'}")
    print({who: len(serials) - 1 for who, serials in watch.serials.items()}, "rotations")
    report(
        Verdict("rotation: applies that failed", codes.total() - codes["OK"], at_most=0),
        Verdict("rotation: workloads whose last order was lost", behind, at_most=0),
        Verdict("rotation: checks in which the agent was disconnected", watch.alone, at_most=0),
        Verdict(
            "rotation: rotations over the expected number", rotations / (seconds / 10), at_least=0.8
        ),
        Verdict(
            "rotation: applies over the planned number", rate / APPLIES_PER_SECOND, at_least=0.9
        ),
    )


async def _drive(
    stub: control_pb2_grpc.AgentControlStub, codes: "Counter[str]", seconds: float
) -> None:
    started_at = monotonic()
    async with asyncio.TaskGroup() as group:
        for number in range(round(seconds * APPLIES_PER_SECOND)):
            group.create_task(_apply(stub, number, codes))
            due = started_at + (number + 1) / APPLIES_PER_SECOND
            await asyncio.sleep(max(0.0, due - monotonic()))


async def _apply(
    stub: control_pb2_grpc.AgentControlStub, number: int, codes: "Counter[str]"
) -> None:
    request = control_pb2.ApplyWorkloadRequest(
        workload_id=f"w{number % WORKLOADS}",
        revision_id=f"r{number // WORKLOADS}",
        desired_state="Stopped",
        spec=control_pb2.WorkloadSpec(
            type="container",
            resources=control_pb2.ResourceRequirements(cpu_millicores=1, memory_mb=1),
            container=control_pb2.ContainerSpec(image="none", env={"n": str(number)}),
        ),
    )
    try:
        response = await stub.ApplyWorkload(request, timeout=10)
        codes["OK" if response.success else "REFUSED"] += 1
    except grpc.aio.AioRpcError as err:
        codes[f"{err.code().name}: {err.details()}"] += 1


async def _until_ready(stub: control_pb2_grpc.AgentControlStub) -> None:
    async with asyncio.timeout(30):
        while True:
            request = control_pb2.ListNodesRequest(status="Ready")
            if (await stub.ListNodes(request, timeout=10, wait_for_ready=True)).nodes:
                return
            await asyncio.sleep(0.1)


async def _until_settled(stub: control_pb2_grpc.AgentControlStub) -> int:
    """The number of workloads that have not converged within the deadline."""
    left = WORKLOADS
    for _ in range(120):
        response = await stub.ListWorkloads(control_pb2.ListWorkloadsRequest(), timeout=10)
        left = sum(view.status != "Stopped" for view in response.workloads)
        if not left:
            break
        await asyncio.sleep(0.5)
    return left


def _health(port: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as response:
        reported: dict[str, Any] = json.load(response)
    return reported


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else SECONDS)
