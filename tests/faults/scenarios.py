"""The specs of the workloads that run while calls fail: one kind of workload per scenario."""

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

from persys.wire.gen.agent.v1 import agent_pb2 as pb

Request = pb.ApplyWorkloadRequest
INLINE = """
services:
  app: {image: app:1, volumes: ["data:/data"]}
volumes: {data: {}}
"""


def container(name: str, directory: Path, revision: str) -> Request:
    spec = pb.ContainerSpec(image=f"{name}:{revision}", env={"REVISION": revision})
    spec.volumes.add(
        host_path=str(directory / "binds" / name), container_path="/bind", read_only=True
    )
    spec.managed_volumes.add(
        name="plain", driver="local", mount_path="/plain", retain_policy="Delete"
    )
    size_gb = 1 if revision == "r1" else 2
    spec.managed_volumes.add(
        name="sized", driver="local", mount_path="/sized", size_gb=size_gb, retain_policy="Delete"
    )
    spec.managed_volumes.add(
        name="shared", driver="nfs", mount_path="/shared", retain_policy="Delete"
    )
    spec.resources.memory_bytes = 64 * 1024 * 1024
    spec.resources.disk_gb = 1
    spec.files.add(path="/etc/app", content=b"x")
    spec.image_credential = "registry"
    spec.restart_policy.policy = "no"
    return _request(name, pb.WORKLOAD_TYPE_CONTAINER, pb.WorkloadSpec(container=spec), revision)


def block(name: str, directory: Path, revision: str) -> Request:
    """A container with a volume of Ceph."""
    del directory
    spec = pb.ContainerSpec(image=f"{name}:{revision}", env={"REVISION": revision})
    size_gb = 1 if revision == "r1" else 2
    spec.managed_volumes.add(
        name="block", driver="ceph-rbd", mount_path="/b", size_gb=size_gb, retain_policy="Delete"
    )
    spec.restart_policy.policy = "no"
    return _request(name, pb.WORKLOAD_TYPE_CONTAINER, pb.WorkloadSpec(container=spec), revision)


def stack(name: str, directory: Path, revision: str) -> Request:
    del directory
    spec = pb.ComposeSpec(
        compose_yaml=b64encode(INLINE.replace("app:1", f"{name}:{revision}").encode()).decode(),
        env={"REVISION": revision},
        delete_volumes=True,
    )
    return _request(name, pb.WORKLOAD_TYPE_COMPOSE, pb.WorkloadSpec(compose=spec), revision)


def repository(name: str, directory: Path, revision: str) -> Request:
    is_local = revision != "r1"
    local = f"file://{directory}/binds/{name}/repository"
    spec = pb.ComposeSpec(
        git_repo=local if is_local else f"https://git.example/{name}.git",
        git_ref="main",
        git_credential="" if is_local else "registry",
        image_credential="registry",
        delete_volumes=True,
        env={"REVISION": revision},
    )
    return _request(name, pb.WORKLOAD_TYPE_COMPOSE, pb.WorkloadSpec(compose=spec), revision)


def machine(name: str, directory: Path, revision: str) -> Request:
    size_gb = 1 if revision == "r1" else 2
    spec = pb.VMSpec(name=name, vcpus=1, memory_mb=64, cloud_init="#cloud-config\n{}")
    spec.disks.add(device="vda", format="qcow2", size_gb=size_gb, type="disk", boot=True)
    path = str(directory / "binds" / name / "disk.qcow2")
    spec.disks.add(device="vdb", format="qcow2", size_gb=size_gb, type="disk", path=path)
    spec.networks.add(network="default", ip_address="192.168.122.7")
    spec.managed_volumes.add(name="sized", driver="local", size_gb=size_gb, retain_policy="Delete")
    spec.restart_policy.policy = "no"
    spec.metadata["persys.os_image"] = "disk"
    spec.health_check.type = "guest-agent"
    return _request(name, pb.WORKLOAD_TYPE_VM, pb.WorkloadSpec(vm=spec), revision)


SCENARIOS: dict[str, Callable[[str, Path, str], Request]] = {
    "container": container,
    "block": block,
    "stack": stack,
    "repository": repository,
    "machine": machine,
}


def _request(name: str, kind: pb.WorkloadType, spec: pb.WorkloadSpec, revision: str) -> Request:
    return Request(
        id=name,
        type=kind,
        revision_id=revision,
        desired_state=pb.DESIRED_STATE_RUNNING,
        spec=spec,
    )
