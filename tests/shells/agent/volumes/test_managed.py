"""Managed volumes of a real agent with real file systems: sizes, data and mounts."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.agent.v1 import agent_pb2

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

FAILED = agent_pb2.ACTUAL_STATE_FAILED
RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
STOPPED = agent_pb2.ACTUAL_STATE_STOPPED
STOP = agent_pb2.DESIRED_STATE_STOPPED


@pytest.fixture
def agent_to_kill(new_agent: "Callable[..., Agent]") -> "Agent":
    """An agent that the test kills."""
    created = new_agent()
    created.start()
    return created


@pytest.fixture
def holder(sleeper: agent_pb2.ContainerSpec) -> agent_pb2.ContainerSpec:
    """A container with a volume of 1 GB."""
    sleeper.managed_volumes.add(name="data", mount_path="/data", size_gb=1)
    return sleeper


def mounts(root: Path, owner: str) -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [words[4] for line in lines if (words := line.split())[4].startswith(f"{root}/{owner}")]


def loops(root: Path, owner: str) -> list[str]:
    found = subprocess.run(
        ["losetup", "-n", "-O", "BACK-FILE"], capture_output=True, text=True, check=True
    )
    return [line for line in found.stdout.splitlines() if line.startswith(f"{root}/.files/{owner}")]


def left_of(root: Path, owner: str) -> list[Path]:
    return [path for path in root.rglob("*") if owner in path.parts]


def volumes(agent: "Agent", owner: str) -> dict[str, agent_pb2.VolumeView]:
    listed = agent.stub.ListVolumes(agent_pb2.ListVolumesRequest(), timeout=10).volumes
    return {each.name: each for each in listed if each.workload_id == owner}


def delete_volume(agent: "Agent", workload_id: str) -> agent_pb2.DeleteVolumeResponse:
    request = agent_pb2.DeleteVolumeRequest(workload_id=workload_id, name="data")
    response: agent_pb2.DeleteVolumeResponse = agent.stub.DeleteVolume(request, timeout=10)
    return response


def run(agent: "Agent", workload_id: str, spec: agent_pb2.ContainerSpec, revision: str) -> None:
    assert agent.apply(workload_id, spec, revision=revision).applied
    agent.wait_for(workload_id, RUNNING)


def test_a_full_volume_does_not_fill_the_node(
    agent: "Agent", holder: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    run(agent, unique_id, holder, "r1")

    output = agent.inside(
        unique_id,
        "sh",
        "-c",
        "fallocate -l 900000000 /data/much; dd if=/dev/zero of=/data/more bs=1M count=300 2>&1; true",
    )

    assert "No space left on device" in output
    seen = volumes(agent, unique_id)["data"]
    assert seen.size_bytes == 1 << 30
    assert 900_000_000 < seen.used_bytes <= 1 << 30
    assert (seen.driver, seen.state, seen.fs_type) == ("local", "attached", "ext4")


def test_a_volume_grows_with_its_data_and_never_shrinks(
    agent: "Agent", holder: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    run(agent, unique_id, holder, "r1")
    agent.inside(unique_id, "sh", "-c", "echo kept > /data/file")

    holder.managed_volumes[0].size_gb = 2
    run(agent, unique_id, holder, "r2")
    size_kb = agent.inside(unique_id, "df", "-k", "/data").split()[-5]
    assert int(size_kb) > 1_500_000
    assert agent.inside(unique_id, "cat", "/data/file") == "kept"

    holder.managed_volumes[0].size_gb = 1
    response = agent.apply(unique_id, holder, revision="r3")
    assert not response.applied
    assert "managed_volumes[0].size_gb: 1 is less than the 2 of data" in response.message
    assert agent.status(unique_id).actual_state == RUNNING
    assert agent.inside(unique_id, "cat", "/data/file") == "kept"


def test_a_directory_volume_takes_no_size_and_keeps_its_data(
    agent: "Agent", sleeper: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    sleeper.managed_volumes.add(name="data", mount_path="/data")
    run(agent, unique_id, sleeper, "r1")
    agent.inside(unique_id, "sh", "-c", "echo kept > /data/file")

    sleeper.managed_volumes[0].size_gb = 1
    response = agent.apply(unique_id, sleeper, revision="r2")

    assert "managed_volumes[0].size_gb: data already exists as a directory" in response.message
    assert agent.inside(unique_id, "cat", "/data/file") == "kept"


def test_a_deleted_workload_leaves_no_mount_and_no_loop_device(
    agent: "Agent", holder: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    run(agent, unique_id, holder, "r1")
    assert mounts(agent.volumes, unique_id)
    assert loops(agent.volumes, unique_id)

    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)

    assert mounts(agent.volumes, unique_id) == []
    assert loops(agent.volumes, unique_id) == []
    assert left_of(agent.volumes, unique_id) == []
    assert volumes(agent, unique_id) == {}


def test_a_retained_volume_is_reused_by_its_workload(
    agent: "Agent", holder: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    holder.managed_volumes[0].retain_policy = "Retain"
    run(agent, unique_id, holder, "r1")
    agent.inside(unique_id, "sh", "-c", "echo kept > /data/file")
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)

    assert mounts(agent.volumes, unique_id) == []
    assert volumes(agent, unique_id)["data"].state == "retained"

    run(agent, unique_id, holder, "r2")
    assert agent.inside(unique_id, "cat", "/data/file") == "kept"


def test_only_an_unused_volume_is_deleted(
    agent: "Agent", holder: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    holder.managed_volumes[0].retain_policy = "Retain"
    run(agent, unique_id, holder, "r1")
    refused = delete_volume(agent, unique_id)
    assert not refused.success
    assert "delete the workload first" in refused.message

    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)
    assert delete_volume(agent, unique_id).success
    assert volumes(agent, unique_id) == {}
    assert left_of(agent.volumes, unique_id) == []
    assert "volume not found" in delete_volume(agent, unique_id).message


def test_a_stopped_workload_is_unmounted_and_keeps_its_data(
    agent: "Agent", holder: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    run(agent, unique_id, holder, "r1")
    agent.inside(unique_id, "sh", "-c", "echo kept > /data/file")

    agent.apply(unique_id, holder, desired=STOP)
    agent.wait_for(unique_id, STOPPED)
    assert mounts(agent.volumes, unique_id) == []

    run(agent, unique_id, holder, "r1")
    assert agent.inside(unique_id, "cat", "/data/file") == "kept"


def test_an_agent_that_was_killed_finds_its_volumes_mounted(
    agent_to_kill: "Agent", holder: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    run(agent_to_kill, unique_id, holder, "r1")
    before = agent_to_kill.containers(unique_id, running=True)

    agent_to_kill.kill()
    agent_to_kill.start()
    agent_to_kill.wait_for(unique_id, RUNNING)

    assert agent_to_kill.containers(unique_id, running=True) == before
    assert len(mounts(agent_to_kill.volumes, unique_id)) == 1
    agent_to_kill.delete(unique_id)
    agent_to_kill.wait_until_gone(unique_id)
    assert loops(agent_to_kill.volumes, unique_id) == []


def test_after_a_reboot_nothing_starts_before_its_volume_is_mounted(
    agent_to_kill: "Agent",
    holder: agent_pb2.ContainerSpec,
    unique_id: str,
    run_docker: Callable[..., str],
) -> None:
    holder.restart_policy.policy = "always"
    run(agent_to_kill, unique_id, holder, "r1")
    agent_to_kill.inside(unique_id, "sh", "-c", "echo kept > /data/file; sync")
    agent_to_kill.kill()
    (container,) = agent_to_kill.containers(unique_id)
    run_docker("stop", "-t", "1", container)
    for mount in mounts(agent_to_kill.volumes, unique_id):
        subprocess.run(["umount", mount], check=True)

    with pytest.raises(subprocess.CalledProcessError):
        run_docker("start", container)  # as Docker does at boot

    agent_to_kill.start()
    deadline = time.monotonic() + 30
    while not agent_to_kill.containers(unique_id, running=True):
        assert time.monotonic() < deadline, agent_to_kill.status(unique_id)
        time.sleep(0.1)
    assert agent_to_kill.inside(unique_id, "cat", "/data/file") == "kept"
    assert len(mounts(agent_to_kill.volumes, unique_id)) == 1


def test_a_failed_apply_removes_no_volume_that_existed_before(
    agent: "Agent", holder: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    run(agent, unique_id, holder, "r1")
    agent.inside(unique_id, "sh", "-c", "echo kept > /data/file")
    wrong = agent_pb2.ContainerSpec()
    wrong.CopyFrom(holder)
    del wrong.command[:]
    wrong.command.append("/no/such/program")
    wrong.managed_volumes.add(name="huge", mount_path="/huge", size_gb=900_000)

    agent.apply(unique_id, wrong, revision="r2")
    failed = agent.wait_for(unique_id, FAILED)

    assert failed.metadata["failure_reason"] == "STORAGE_ERROR"
    assert "not enough space for 900000 GB" in failed.message
    assert list(volumes(agent, unique_id)) == ["data"]
    run(agent, unique_id, holder, "r3")
    assert agent.inside(unique_id, "cat", "/data/file") == "kept"


def test_unsupported_volume_settings_are_rejected_by_field(
    agent: "Agent", sleeper: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    local = agent_pb2.ManagedVolumeSpec(name="data", mount_path="/data")
    requested = {
        "driver: driver 'nfs' is not available on this node: expected local; "
        "set PERSYS_STORAGE_NFS_SERVER": {"driver": "nfs"},
        "driver: driver 'ceph-rbd' is not available on this node: expected local; "
        "set PERSYS_STORAGE_CEPH_POOL": {"driver": "ceph-rbd"},
        "fs_type: is only valid for a volume with size_gb": {"fs_type": "ext4"},
        "access_mode: 'ReadWriteMany': driver local": {"access_mode": "ReadWriteMany"},
    }
    for words, fields in requested.items():
        spec = agent_pb2.ContainerSpec()
        spec.CopyFrom(sleeper)
        wanted = spec.managed_volumes.add()
        wanted.CopyFrom(local)
        for field, value in fields.items():
            setattr(wanted, field, value)

        response = agent.apply(unique_id, spec)

        assert not response.applied
        assert f"spec.container.managed_volumes[0].{words}" in response.message
        assert response.status.metadata["failure_reason"] == "INVALID_SPEC"
    assert not agent.knows(unique_id)
