"""From apply of a virtual machine to Running, over a bare `virsh create` of the same domain.

    python -m bench.machines

The domain of each round is the one that the agent has just created: its XML is saved, its disk is created
again, and libvirt gets both. Rounds of both sides alternate, so that other load on the machine affects both.
Running is detected from watched events: polling would slow down what is measured.
"""

import asyncio
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from xml.etree import ElementTree as ET

import grpc

from bench.containers import agent, until_gone
from bench.processes import BIN, scheduler
from bench.verdict import Verdict, report
from persys.model.event import EventKind
from persys.wire.gen.control.v1 import control_pb2, control_pb2_grpc

GUEST = Path(__file__).resolve().parent.parent / ".cache" / "guest" / "tiny.qcow2"
MACHINE = control_pb2.WorkloadSpec(
    type="vm",
    vm=control_pb2.VMSpec(
        vcpus=1,
        memory_mb=128,
        os_image="tiny",
        networks=[control_pb2.NetworkConfig(bridge="default", dhcp=True)],
        cloud_init=control_pb2.CloudInitConfig(user_data="#!/bin/sh\n"),
        stop_grace_seconds=1,
    ),
)
ROUNDS = 16
CALM_SECONDS = 1.0  # libvirt cleans up for some time after a VM has stopped


def main() -> None:
    # QEMU runs as another user, without access to private directories.
    directory = Path(tempfile.mkdtemp(prefix="bench-machines-", dir="/var/tmp"))
    directory.chmod(0o755)
    settings = {
        "PERSYS_VM_POOL": directory.name,
        "PERSYS_VM_IMAGES_DIR": str(directory / "images"),
        "PERSYS_VM_DISKS_DIR": str(directory / "disks"),
        "PERSYS_VM_DIR": str(directory / "vms"),
    }
    try:
        with (
            scheduler(f"sqlite:{directory}/s.db") as (port, _, _),
            agent(directory, port, **settings),
        ):
            persysctl = [str(BIN / "persysctl"), "--scheduler", f"127.0.0.1:{port}"]
            _run(*persysctl, "image", "add", "tiny", str(GUEST))
            report(asyncio.run(_measure(port)))
    finally:
        for verb in ("pool-destroy", "pool-undefine"):
            subprocess.run(["virsh", "-q", verb, directory.name], capture_output=True, check=False)
        shutil.rmtree(directory)


async def _measure(port: int) -> Verdict:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = control_pb2_grpc.AgentControlStub(channel)
        ours, bare = [], []
        for number in range(ROUNDS):
            name = f"bench-machine-{number}"
            await asyncio.sleep(CALM_SECONDS)
            ours.append(await _seconds_to_run(stub, name))
            same = Same(name)
            await until_gone(stub, [name])
            await asyncio.sleep(CALM_SECONDS)
            bare.append(same.create())
            same.remove()
    return Verdict(
        "VMs: 1 applied, over bare virsh create", median(ours) / median(bare), at_most=1.2
    )


async def _seconds_to_run(stub: control_pb2_grpc.AgentControlStub, name: str) -> float:
    since = await stub.ListEvents(control_pb2.ListEventsRequest(limit=1))
    watch = control_pb2.WatchEventsRequest(
        workload_id=name,
        kinds=[EventKind.WORKLOAD_RUNNING, EventKind.WORKLOAD_FAILED],
        after_sequence=since.last_sequence,
    )
    events = stub.WatchEvents(watch, timeout=120)
    started_at = perf_counter()
    apply = control_pb2.ApplyWorkloadRequest(workload_id=name, spec=MACHINE)
    applied = await stub.ApplyWorkload(apply, timeout=30)
    assert applied.success, applied.error_message
    event = await anext(aiter(events))
    seconds = perf_counter() - started_at
    events.cancel()
    assert event.kind == EventKind.WORKLOAD_RUNNING, f"{name}: {event.kind} {event.message}"
    return seconds


class Same:
    """A domain created by the agent, to be created again."""

    def __init__(self, name: str) -> None:
        self._name = name
        domain = ET.fromstring(_run("virsh", "dumpxml", "--inactive", name))
        for tag in ("uuid", "metadata"):
            if (found := domain.find(tag)) is not None:
                domain.remove(found)
        sources = [str(one.get("file")) for one in domain.iterfind("./devices/disk/source")]
        self._disks = [path for path in sources if not path.endswith(".iso")]
        self._seeds = [path for path in sources if path.endswith(".iso")]
        self._backing = {path: _backing(path) for path in self._disks}
        self._kept = {path: Path(path).read_bytes() for path in self._seeds}
        self._xml = ET.tostring(domain, encoding="unicode")

    def create(self) -> float:
        for path, backing in self._backing.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            _run("qemu-img", "create", "-q", "-f", "qcow2", "-b", backing, "-F", "qcow2", path)
        for path, content in self._kept.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(content)
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(self._xml)
            file.flush()
            started_at = perf_counter()
            _run("virsh", "create", file.name)
            return perf_counter() - started_at

    def remove(self) -> None:
        _run("virsh", "destroy", self._name)
        for path in (*self._disks, *self._seeds):
            Path(path).unlink()


def _backing(path: str) -> str:
    result = _run("qemu-img", "info", "-U", path)
    found = re.search(r"^backing file: (\S+)", result, re.MULTILINE)
    assert found is not None, result
    return found[1]


def _run(*command: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, f"{' '.join(command)}: {result.stderr}"
    return result.stdout


if __name__ == "__main__":
    main()
