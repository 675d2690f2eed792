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
from persys.core.agent.progress import Step
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
        image: str = "",
        check: pb.HealthCheck | None = None,
        script: str = "",
        run_once: bool = False,
    ) -> None:
        """`image`: of a further disk, which becomes the first one."""
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
            metadata={"persys.os_image": image} if image else {},
            health_check=check,
            cloud_init=script,
        )
        if image:
            vm.disks.insert(0, pb.DiskConfig(device="vdb", format="qcow2", type="disk", size_gb=1))
        request = pb.ApplyWorkloadRequest(
            id=self.name,
            type=pb.WORKLOAD_TYPE_VM,
            revision_id=revision,
            desired_state=desired,
            spec=pb.WorkloadSpec(vm=vm),
            run_once=run_once,
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


def test_the_old_vm_runs_on_if_the_image_of_its_new_revision_cannot_be_fetched(host: Host) -> None:
    host.agent.start()
    host.apply()
    host.wait_for(RUNNING)
    domain_id = host.domain_id()

    host.apply(revision="r2", memory_mb=96, image="http://127.0.0.1:9/none.qcow2")

    status = host.wait_for(FAILED)
    assert status.revision_id == "r2"
    assert status.metadata["failure_reason"] == "IMAGE_PULL_FAILED"
    assert host.domain_id() == domain_id


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


# Answers every command of libvirt to the guest agent. The port is at its end until libvirt connects.
GUEST_AGENT = r"""#!/bin/sh
(
  exec 3<>$(ls /dev/vport*p1 | head -n 1)
  while true; do
    read -r line <&3 || { sleep 1; continue; }
    id=$(echo "$line" | sed -n 's/.*"id": *\([0-9]*\).*/\1/p')
    case $line in
      *guest-sync-delimited*) printf '\377{"return": %s}\n' "$id" >&3 ;;
      *guest-sync*) printf '{"return": %s}\n' "$id" >&3 ;;
      *) echo '{"return": []}' >&3 ;;
    esac
  done
) &
"""


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        (pb.HealthCheck(type="http", port=80, path="/hostname"), "port 80"),
        (pb.HealthCheck(type="tcp", port=80), "port 80"),
        (pb.HealthCheck(type="guest-agent"), "guest agent: "),
    ],
    ids=["http", "tcp", "guest-agent"],
)
def test_a_vm_is_healthy_when_its_check_passes(
    host: Host, check: pb.HealthCheck, problem: str
) -> None:
    disk = shutil.copy(TINY, host.directory)
    check.interval_seconds, check.retries, check.start_period_seconds = 1, 2, 1
    host.agent.start()
    host.apply(memory_mb=160, disk=str(disk), network="default", check=check, script=GUEST_AGENT)
    booting = host.wait_for(RUNNING)
    eventually(
        lambda: host.agent.status(host.name).metadata["container.health"] == "unhealthy",
        "its check fails while it boots",
        within=PATIENCE_SECONDS,
    )
    status = host.agent.status(host.name)
    assert problem in status.message
    assert status.metadata["reason_code"] == "Unhealthy"

    eventually(
        lambda: host.agent.status(host.name).metadata["container.health"] == "healthy",
        "its check passes",
        within=BOOT_SECONDS,
    )

    assert host.agent.status(host.name).actual_state == RUNNING
    assert booting.metadata["container.restart_count"] == "0"


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
    assert host.wait_for(RUNNING).metadata["container.restart_count"] == "0"
    domain_id = host.domain_id()

    virsh("destroy", host.name)

    eventually(
        lambda: host.domain_id() not in (domain_id, "-"), "it runs again", within=PATIENCE_SECONDS
    )
    eventually(
        lambda: host.wait_for(RUNNING).metadata["container.restart_count"] == "1",
        "the restart is counted",
        within=PATIENCE_SECONDS,
    )


def test_a_vm_that_runs_once_is_not_started_again_after_it_was_powered_off(host: Host) -> None:
    host.agent.start()
    host.apply(run_once=True)
    host.wait_for(RUNNING)
    host.agent.kill()
    virsh("destroy", host.name)
    host.agent.start()

    status = host.wait_for(FAILED)

    assert "the VM was powered off" in status.message
    host.apply(run_once=True)  # a repeated order
    assert host.wait_for(FAILED).message == status.message
    assert virsh("domstate", host.name) == "shut off"


def test_a_vm_without_restart_reports_how_it_stopped(host: Host) -> None:
    host.agent.start()
    host.apply(restart="no")
    host.wait_for(RUNNING)

    virsh("destroy", host.name)

    status = host.wait_for(FAILED)
    assert status.metadata["container.exit_code"] == "137"
    assert "the VM was powered off" in status.message
    assert virsh("domstate", host.name) == "shut off"
