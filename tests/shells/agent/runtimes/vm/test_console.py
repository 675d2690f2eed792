"""Image, log, console and usage of a VM on the real libvirtd. All tests share one guest."""

import asyncio
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from e2e.vms import BOOT_SECONDS, TINY, vm_directory
from persys.agent.runtimes.vm.console import Console, VmAccess
from persys.agent.runtimes.vm.libvirt import Libvirt
from persys.errors import RefusedError, RuntimeUnavailableError
from persys.infra.aio.path_calls import ThreadPathCalls
from persys.infra.aio.task_group import task_group
from persys.wire.gen.agent.v1 import agent_pb2 as pb
from shells.agent.conftest import RUNNING, Agent, eventually
from shells.agent.runtimes.vm.test_runtime import Node
from socket_proxy import LIBVIRT_SOCKET, Proxy

NAME = "guest"
PART_BYTES = 256 * 1024
PROMPT = "guest# "
SHELL_SECONDS = 60  # for an emulated VM to respond


def add_image(agent: Agent, name: str, path: Path) -> pb.ImageView:
    started = threading.Event()

    def requests() -> Iterator[pb.AddImageRequest]:
        size = path.stat().st_size
        yield pb.AddImageRequest(start=pb.AddImageStart(name=name, size_bytes=size))
        started.wait()
        with path.open("rb") as file:
            while data := file.read(PART_BYTES):
                yield pb.AddImageRequest(data=data)

    responses: list[pb.ImageProgress] = []
    for response in agent.stub.AddImage(requests(), timeout=60):
        started.set()
        responses.append(response)
    return responses[-1].image


class Session:
    """A console session of a user."""

    def __init__(self, agent: Agent, name: str = NAME, *, force: bool = False) -> None:
        self._inputs: queue.SimpleQueue[pb.ExecInput | None] = queue.SimpleQueue()
        start = pb.ExecStart(workload_id=name, console=True, force=force)
        self._inputs.put(pb.ExecInput(start=start))
        self._call: Any = agent.stub.Exec(iter(self._inputs.get, None), timeout=BOOT_SECONDS)
        self.seen = ""

    def opened(self) -> "Session":
        assert next(self._call) == pb.ExecOutput()
        return self

    def send(self, line: str) -> None:
        self._inputs.put(pb.ExecInput(stdin=f"{line}\r".encode()))

    def read_until(self, text: str) -> None:
        while text not in self.seen:
            self.seen += next(self._call).stdout.decode(errors="replace")

    def close(self) -> int:
        self._inputs.put(None)
        return self.end()

    def end(self) -> int:
        """The exit code. Raises the error of the call."""
        code = -1
        for output in self._call:
            code = output.exit.code if output.HasField("exit") else code
        return code

    def refusal(self) -> str:
        with pytest.raises(grpc.RpcError) as refused:
            self.end()
        return str(refused.value.details())


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with vm_directory() as (_, settings):
        settings |= {f"PERSYS_ADMISSION_{what}_PERCENT": "100" for what in ("CPU", "MEMORY")}
        agent = Agent(tmp_path_factory.mktemp("node"), **settings)
        agent.start()
        yield agent
        agent.close()


@pytest.fixture(scope="module")
def guest(node: Agent) -> Iterator[Agent]:
    """A node with a running VM."""
    assert add_image(node, "tiny", TINY).format == "qcow2"
    vm = pb.VMSpec(
        vcpus=1,
        memory_mb=160,
        disks=[pb.DiskConfig(device="vda", format="qcow2", type="disk")],
        metadata={"persys.os_image": "tiny"},
        stop_grace_seconds=1,
    )
    response = node.stub.ApplyWorkload(
        pb.ApplyWorkloadRequest(
            id=NAME,
            type=pb.WORKLOAD_TYPE_VM,
            revision_id="r1",
            desired_state=pb.DESIRED_STATE_RUNNING,
            spec=pb.WorkloadSpec(vm=vm),
        ),
        timeout=20,
    )
    assert response.applied, response.message
    following = node.stub.StreamLogs(
        pb.LogsRequest(workload_id=NAME, follow=True), timeout=BOOT_SECONDS
    )
    seen = ""
    for chunk in following:
        seen += chunk.data.decode()
        if PROMPT in seen:  # the last boot message
            break
    following.cancel()
    node.wait_for(NAME, RUNNING, within=BOOT_SECONDS)
    yield node
    node.delete(NAME)
    eventually(lambda: not node.knows(NAME), "it is removed", within=60)


def log(agent: Agent, **options: Any) -> str:
    chunks = agent.stub.StreamLogs(pb.LogsRequest(workload_id=NAME, **options), timeout=30)
    return b"".join(chunk.data for chunk in chunks).decode()


def test_the_log_shows_the_console_from_the_start_or_its_tail(guest: Agent) -> None:
    complete = log(guest)

    assert "guest: up" in complete
    assert "\x1b" not in complete
    assert complete.endswith(log(guest, tail=2))
    assert len(log(guest, tail=2).splitlines()) == 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"previous": True}, "its console log contains all runs"),
        ({"since_unix_nanos": 1}, "has no timestamps"),
        ({"timestamps": True}, "has no timestamps"),
        ({"service": "db"}, "a VM has no services"),
    ],
)
def test_log_options_that_a_console_does_not_support_are_rejected(
    guest: Agent, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        log(guest, **options)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert reason in str(refused.value.details())


def test_a_console_is_a_terminal_of_the_guest(guest: Agent) -> None:
    session = Session(guest).opened()

    session.send("")
    session.read_until("guest# ")
    session.send("echo sum=$((40+2))")
    session.read_until("sum=42")

    assert session.close() == 0
    eventually(lambda: "sum=42" in log(guest, tail=5), "it is in the log too")


def test_a_second_console_is_rejected_or_takes_over_with_force(guest: Agent) -> None:
    first = Session(guest).opened()

    assert "--force disconnects the current session" in Session(guest).refusal()
    second = Session(guest, force=True).opened()
    assert first.refusal() == "another session has taken over the console"
    second.send("echo mine=$((1+1))")
    second.read_until("mine=2")
    assert second.close() == 0
    assert Session(guest).opened().close() == 0


def test_exec_is_for_containers_and_consoles_are_for_vms(
    guest: Agent, sleeper: pb.ContainerSpec
) -> None:
    start = pb.ExecInput(start=pb.ExecStart(workload_id=NAME, command=["ls"]))
    with pytest.raises(grpc.RpcError) as refused:
        list(guest.stub.Exec(iter([start]), timeout=10))
    guest.apply("box", sleeper)
    guest.wait_for("box", RUNNING)
    of_a_container = Session(guest, "box").refusal()
    guest.delete("box")
    guest.wait_until_gone("box")

    assert f"use persysctl console {NAME}" in str(refused.value.details())
    assert "use persysctl exec" in of_a_container


def test_an_image_in_use_by_a_vm_is_kept_also_after_a_crash(guest: Agent) -> None:
    guest.kill()
    guest.start()

    (image,) = guest.stub.ListImages(pb.ListImagesRequest(), timeout=10).images
    kept = guest.stub.RemoveImage(pb.RemoveImageRequest(name="tiny"), timeout=10)

    assert (image.name, list(image.used_by)) == ("tiny", [NAME])
    assert (kept.success, kept.message) == (
        False,
        f"image tiny is in use by {NAME}; delete these workloads first",
    )


def test_vm_usage_comes_from_libvirt(guest: Agent) -> None:
    def usage() -> pb.WorkloadUsageSnapshot:
        return guest.status(NAME).usage

    eventually(lambda: bool(usage().source), "there are two samples", within=30)

    assert usage().source == "libvirt"
    assert usage().memory_bytes > 50_000_000
    assert usage().disk_read_bytes > 1_000_000
    eventually(lambda: usage().cpu_percent > 0, "it uses CPU time", within=30)


def test_a_stopped_vm_ends_its_console_and_log_followers(guest: Agent) -> None:
    session = Session(guest).opened()
    following = guest.stub.StreamLogs(
        pb.LogsRequest(workload_id=NAME, follow=True, tail=1), timeout=BOOT_SECONDS
    )
    guest.delete(NAME)

    assert session.end() == 0
    deadline = time.monotonic() + SHELL_SECONDS
    for _ in following:
        assert time.monotonic() < deadline


async def cut_off(console: Console, proxy: Proxy) -> None:
    """Raises the error that the console session gets."""
    async with asyncio.timeout(SHELL_SECONDS), task_group() as group:
        group.create_task(console.watch())
        await console.write(b"into the void")
        proxy.cut()


async def test_a_console_ends_with_libvirt_and_can_be_opened_again(tmp_path: Path) -> None:
    proxy = Proxy(tmp_path / "libvirt.sock", socket=LIBVIRT_SOCKET)
    proxy.restore()
    libvirt = Libvirt(f"qemu+unix:///system?socket={proxy.path}")
    with vm_directory() as (directory, _):
        node = Node(directory, libvirt)
        order = node.order()
        access = VmAccess(libvirt, node.owner, ThreadPathCalls(), node.root)
        assert await node.create(order) is None
        with pytest.raises(RefusedError, match="is not running"):
            async with access.console(order.workload_id, force=False):
                pass
        assert await node.start(order) is None

        async with access.console(order.workload_id, force=False) as console:
            with pytest.raises(RuntimeUnavailableError):
                await cut_off(console, proxy)
        proxy.restore()

        async with access.console(order.workload_id, force=True) as console:
            await console.write(b"again")
        await libvirt.close()
    proxy.close()
