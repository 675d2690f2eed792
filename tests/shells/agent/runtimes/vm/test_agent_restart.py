"""An agent with VMs: automatic actions, and state after kill -9."""

import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from secrets import token_bytes
from typing import Any

import grpc
import pytest

from e2e.vms import BOOT_SECONDS, TINY, domains, page, virsh, vm_directory, volumes
from persys.agent.workloads import failpoints
from persys.core.agent.next_step import Step
from persys.wire.gen.agent.v1 import agent_pb2 as pb

RUNNING, STOPPED, FAILED = (
    pb.ACTUAL_STATE_RUNNING,
    pb.ACTUAL_STATE_STOPPED,
    pb.ACTUAL_STATE_FAILED,
)
# A libvirtd that many tests share is slow.
PATIENCE_SECONDS = 60.0
MAC = f"52:54:00:{token_bytes(3).hex(':')}"  # libvirt remembers the last address
ON_THE_WAY = (
    failpoints.AFTER_STEP[Step.CREATE],
    failpoints.LAUNCHING,
    # The others run with containers too.
    pytest.param(failpoints.ACCEPTED, marks=pytest.mark.full),
    pytest.param(failpoints.AFTER_STEP[Step.PULL], marks=pytest.mark.full),
    pytest.param(failpoints.AFTER_STEP[Step.START], marks=pytest.mark.full),
    pytest.param(failpoints.SETTLED, marks=pytest.mark.full),
)


class Host:
    """An agent for VMs only, with its own directories."""

    def __init__(self, agent: Any, directory: Any) -> None:
        self.agent = agent
        self.directory = directory
        self.name = f"web-{uuid.uuid4().hex[:8]}"

    def apply(
        self,
        *,
        revision: str = "r1",
        memory_mb: int = 64,
        restart: str = "unless-stopped",
        desired: pb.DesiredState = pb.DESIRED_STATE_RUNNING,
        disk: str = "",
        network: str = "",
    ) -> None:
        vm = pb.VMSpec(
            name=self.name,
            vcpus=1,
            memory_mb=memory_mb,
            disks=[
                pb.DiskConfig(
                    device="vda", format="qcow2", type="disk", path=disk, size_gb=0 if disk else 1
                )
            ],
            networks=[pb.NetworkConfig(network=network, mac_address=MAC)] if network else [],
            stop_grace_seconds=1,
            restart_policy=pb.RestartPolicy(policy=restart),
        )
        request = pb.ApplyWorkloadRequest(
            id=self.name,
            type=pb.WORKLOAD_TYPE_VM,
            revision_id=revision,
            desired_state=desired,
            spec=pb.WorkloadSpec(vm=vm),
        )
        self.agent.stub.ApplyWorkload(request, timeout=10)

    def wait_for(self, actual: pb.ActualState) -> pb.WorkloadStatus:
        status: pb.WorkloadStatus = self.agent.wait_for(self.name, actual, within=PATIENCE_SECONDS)
        return status

    def domain_id(self) -> str:
        """libvirt's id of the running domain."""
        return virsh("domid", self.name)


def eventually(holds: Callable[[], bool], what: str, *, within: float) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(0.1)


@pytest.fixture
def host(new_agent: Callable[..., Any]) -> Iterator[Host]:
    with vm_directory() as (directory, settings):
        agent = new_agent(
            PERSYS_DOCKER_ENABLED="false",
            PERSYS_RECONCILE_INTERVAL="1h",
            PERSYS_ADMISSION_CPU_PERCENT="100",
            **settings,
        )
        yield Host(agent, directory)
        if not agent.is_dead:
            agent.kill()


def test_a_vm_survives_a_killed_agent_and_follows_every_order(host: Host) -> None:
    host.agent.start()
    host.apply()
    words = host.wait_for(RUNNING).metadata
    domain_id = host.domain_id()

    host.agent.kill()
    host.agent.start()
    host.wait_for(RUNNING)

    assert host.domain_id() == domain_id
    assert words["vm.domain_state"] == "running"
    assert words["vm.accel"] == "tcg"
    assert words["vm.vnc"].startswith("unix:/")

    disk = host.directory / "disks" / f"{host.name}-vda.qcow2"
    inode = disk.stat().st_ino
    host.apply(revision="r2", memory_mb=96)
    larger = f"{96 * 1024} KiB"
    eventually(
        lambda: larger in virsh("dominfo", host.name, check=False),
        "larger",
        within=PATIENCE_SECONDS,
    )
    host.wait_for(RUNNING)

    assert disk.stat().st_ino == inode

    host.apply(revision="r2", memory_mb=96, desired=pb.DESIRED_STATE_STOPPED)
    host.wait_for(STOPPED)
    assert virsh("domstate", host.name) == "shut off"

    host.agent.delete(host.name)
    host.agent.wait_until_gone(host.name)
    assert domains(host.directory) == []
    assert volumes(host.directory) == []
    assert not (host.directory / "vms" / host.name).exists()


def test_the_address_of_a_guest_is_reported_as_soon_as_it_has_one(host: Host) -> None:
    disk = shutil.copy(TINY, host.directory)
    host.agent.start()
    host.apply(memory_mb=160, disk=str(disk), network="default")
    status = host.wait_for(RUNNING)
    assert status.metadata["vm.mac_addresses"] == MAC

    eventually(
        lambda: "vm.primary_ip" in host.agent.status(host.name).metadata,
        "an address",
        within=BOOT_SECONDS,
    )

    address = host.agent.status(host.name).metadata["vm.primary_ip"]
    eventually(
        lambda: page(address, "hostname") == "guest",
        "it is reachable at that address",
        within=BOOT_SECONDS,
    )


@pytest.mark.parametrize("point", ON_THE_WAY)
def test_an_agent_killed_during_an_apply_ends_with_one_vm(host: Host, point: str) -> None:
    host.agent.start(failpoint=point)
    with suppress(grpc.RpcError):  # it may be killed before it responds
        host.apply()
    host.agent.wait_until_dead()
    host.agent.start()
    if not host.agent.knows(host.name):
        host.apply()

    host.wait_for(RUNNING)

    assert domains(host.directory) == [host.name]
    assert volumes(host.directory) == [f"{host.name}-vda.qcow2"]


def test_a_manually_powered_off_vm_is_started_again(host: Host) -> None:
    host.agent.start()
    host.apply()
    host.wait_for(RUNNING)
    domain_id = host.domain_id()

    virsh("destroy", host.name)

    eventually(
        lambda: host.domain_id() not in (domain_id, "-"), "it runs again", within=PATIENCE_SECONDS
    )
    host.wait_for(RUNNING)


def test_a_vm_without_restart_reports_how_it_stopped(host: Host) -> None:
    host.agent.start()
    host.apply(restart="no")
    host.wait_for(RUNNING)

    virsh("destroy", host.name)

    status = host.wait_for(FAILED)
    assert status.metadata["container.exit_code"] == "137"
    assert "the VM was powered off" in status.message
    assert virsh("domstate", host.name) == "shut off"
