"""The spec in the agent contract, decoded into the model and encoded from it.

The agent applies the same checks as our scheduler, because third-party schedulers do not validate specs.

`with_derived_fields` sets what third-party agents need: limits, names, devices, MAC addresses. Each depends
on the workload only: the same workload gives the same message on every dispatch by every scheduler.
"""

from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from string import ascii_lowercase

from msgspec.structs import replace

from persys.core.secrets import Resolved
from persys.errors import InvalidError
from persys.model.ids import WorkloadId
from persys.model.placement import Resources
from persys.model.spec import (
    ComposeSpec,
    ContainerSpec,
    Disk,
    Network,
    RestartPolicy,
    Spec,
    VMSpec,
    local_gb,
)
from persys.model.workload import Workload
from persys.wire.agent import vm
from persys.wire.compose import source as compose_source
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.spec import checks, fields, files, health
from persys.wire.spec.checks import CPU_SHARES_MAX

CPU_SHARES_LEAST = 2
# Twice the limit for users: base64 and derived fields make a spec larger.
AGENT_SPEC_BYTES_MAX = 2 * checks.SPEC_BYTES_MAX


def spec(message: agent_pb2.WorkloadSpec) -> Spec:
    checks.size(message.ByteSize(), most=AGENT_SPEC_BYTES_MAX)
    match message.WhichOneof("spec"):
        case "container":
            return _container(message.container)
        case "compose":
            return _compose(message.compose)
        case "vm":
            return vm.vm(message.vm)
        case _:
            raise InvalidError("spec", "is empty; expected one of container, compose and vm")


def spec_message(written: Spec) -> agent_pb2.WorkloadSpec:
    """The message that `spec` decodes to an equal spec."""
    match written:
        case ContainerSpec():
            return agent_pb2.WorkloadSpec(container=_container_message(written))
        case ComposeSpec():
            return agent_pb2.WorkloadSpec(compose=_compose_message(written))
        case VMSpec():
            return agent_pb2.WorkloadSpec(vm=vm.vm_message(written))


def _container(message: agent_pb2.ContainerSpec) -> ContainerSpec:
    taken: set[str] = set()
    where = "spec.container"
    limits = message.resources
    return ContainerSpec(
        image=checks.image(message.image, f"{where}.image"),
        command=checks.texts(message.command, f"{where}.command"),
        args=checks.texts(message.args, f"{where}.args"),
        env=checks.env(message.env, f"{where}.env"),
        volumes=fields.mounts(message.volumes, f"{where}.volumes", taken),
        managed_volumes=fields.managed_volumes(
            message.managed_volumes, f"{where}.managed_volumes", taken, mounted=True
        ),
        ports=fields.ports(message.ports, f"{where}.ports"),
        restart=_restart(message.restart_policy, f"{where}.restart_policy"),
        privileged=message.privileged,
        pull_policy=checks.pull_policy(message.image_pull_policy, f"{where}.image_pull_policy"),
        pids_max=checks.number(
            limits.pids_max, f"{where}.resources.pids_max", most=checks.PIDS_MAX
        ),
        stop_grace_seconds=checks.number(
            message.stop_grace_seconds,
            f"{where}.stop_grace_seconds",
            most=checks.STOP_GRACE_SECONDS_MAX,
        ),
        init=message.init,
        labels=checks.labels(message.labels, f"{where}.labels"),
        image_credential=checks.credential(message.image_credential, f"{where}.image_credential"),
        health=health.health_check(message.health_check, f"{where}.health_check"),
        files=files.of_agent(message.files, f"{where}.files", taken),
        disk_gb=checks.number(
            limits.disk_gb, f"{where}.resources.disk_gb", most=checks.DISK_GB_MAX
        ),
        cpu_millicores=checks.number(
            limits.cpu_millicores,
            f"{where}.resources.cpu_millicores",
            most=checks.CPU_MILLICORES_MAX,
        ),
        cpu_shares=checks.number(
            limits.cpu_shares, f"{where}.resources.cpu_shares", most=checks.CPU_SHARES_MAX
        ),
        memory_bytes=checks.number(
            limits.memory_bytes, f"{where}.resources.memory_bytes", most=checks.MEMORY_BYTES_MAX
        ),
        # -1 means unlimited swap in Docker.
        memory_swap_bytes=checks.number(
            limits.memory_swap_bytes,
            f"{where}.resources.memory_swap_bytes",
            least=-1,
            most=checks.MEMORY_BYTES_MAX,
        ),
    )


def _restart(message: agent_pb2.RestartPolicy, path: str) -> RestartPolicy:
    retries_max = checks.number(
        message.max_retry_count, f"{path}.max_retry_count", most=checks.RETRIES_MAX
    )
    return checks.restart_policy(message.policy, f"{path}.policy", retries_max=retries_max)


def _container_message(written: ContainerSpec) -> agent_pb2.ContainerSpec:
    return agent_pb2.ContainerSpec(
        image=written.image,
        command=written.command,
        args=written.args,
        env=written.env,
        volumes=fields.mount_messages(written.volumes, agent_pb2.VolumeMount),
        ports=fields.port_messages(written.ports, agent_pb2.PortMapping),
        resources=agent_pb2.ResourceLimits(
            cpu_shares=written.cpu_shares,
            memory_bytes=written.memory_bytes,
            memory_swap_bytes=written.memory_swap_bytes,
            cpu_millicores=written.cpu_millicores,
            pids_max=written.pids_max,
            disk_gb=written.disk_gb,
        ),
        restart_policy=agent_pb2.RestartPolicy(
            policy=written.restart.name, max_retry_count=written.restart.retries_max
        ),
        labels=written.labels,
        managed_volumes=fields.volume_messages(
            written.managed_volumes, agent_pb2.ManagedVolumeSpec
        ),
        privileged=written.privileged,
        image_pull_policy=written.pull_policy,
        stop_grace_seconds=written.stop_grace_seconds,
        init=written.init,
        image_credential=written.image_credential,
        health_check=health.health_message(written.health, agent_pb2.HealthCheck),
        files=files.agent_messages(written.files),
    )


def _compose(message: agent_pb2.ComposeSpec) -> ComposeSpec:
    return compose_source.compose(
        source_type="",
        text=message.compose_yaml,
        text_field="compose_yaml",
        git_repo=message.git_repo,
        git_ref=message.git_ref,
        env=message.env,
        project_name=message.project_name,
        project_derived=message.project_name_derived,
        git_path=message.git_path,
        git_credential=message.git_credential,
        image_credential=message.image_credential,
        delete_volumes=message.delete_volumes,
        reserved=fields.resources(message, "spec.compose"),
    )


def _compose_message(written: ComposeSpec) -> agent_pb2.ComposeSpec:
    return agent_pb2.ComposeSpec(
        project_name=written.project_name,
        compose_yaml=b64encode(written.yaml.encode()).decode(),
        env=written.env,
        git_repo=written.git_repo,
        git_ref=written.git_ref,
        git_path=written.git_path,
        git_credential=written.git_credential,
        image_credential=written.image_credential,
        delete_volumes=written.delete_volumes,
        cpu_millicores=written.reserved.cpu_millicores,
        memory_mb=written.reserved.memory_mb,
        disk_gb=written.reserved.disk_gb,
        project_name_derived=written.project_derived,
    )


def with_derived_fields(workload: Workload, resolved: Resolved | None = None) -> Spec:
    """The workload's spec with every derived field set."""
    match workload.spec if resolved is None else resolved.spec:
        case ContainerSpec() as container:
            return _limited(container, workload.resources)
        case ComposeSpec() as compose:
            return replace(
                compose,
                project_name=compose.project_name or f"persys-{workload.id}",
                project_derived=compose.project_derived or not compose.project_name,
                reserved=workload.resources,
            )
        case VMSpec() as vm:
            return replace(
                vm,
                name=vm.name or workload.id,
                disks=tuple(_disks(_with_root(vm))),
                networks=tuple(
                    _network(network, workload.id, index)
                    for index, network in enumerate(vm.networks)
                ),
            )


def _limited(spec: ContainerSpec, resources: Resources) -> ContainerSpec:
    """Resources that are not requested are not limited: 0 is Docker's default for each limit."""
    return replace(
        spec,
        cpu_millicores=resources.cpu_millicores or spec.cpu_millicores,
        cpu_shares=_shares(resources.cpu_millicores) or spec.cpu_shares,
        memory_bytes=resources.memory_mb << 20 or spec.memory_bytes,
        # A stated disk size covers the volumes, which have limits of their own.
        disk_gb=max(0, resources.disk_gb - local_gb(spec.managed_volumes)) or spec.disk_gb,
    )


def _shares(cpu_millicores: int) -> int:
    if not cpu_millicores:
        return 0
    return min(max(CPU_SHARES_LEAST, cpu_millicores * 1024 // 1000), CPU_SHARES_MAX)


def _with_root(vm: VMSpec) -> tuple[Disk, ...]:
    """An image needs a disk to boot from. A disk that is added here has the size of the image."""
    if vm.os_image and all(disk.type == "cdrom" for disk in vm.disks):
        return (Disk(), *vm.disks)
    return vm.disks


def _disks(disks: tuple[Disk, ...]) -> Iterator[Disk]:
    taken = {disk.device for disk in disks}
    for disk in disks:
        kind = disk.type or "disk"
        device = disk.device
        if not device:
            # A CD-ROM drive cannot be on the virtio bus.
            device = _free_device("sd" if kind == "cdrom" else "vd", taken)
            taken.add(device)
        image_format = disk.format or ("iso" if kind == "cdrom" else "qcow2")
        yield replace(disk, device=device, type=kind, format=image_format)


def _free_device(prefix: str, taken: set[str]) -> str:
    return next(name for name in _device_names(prefix) if name not in taken)


def _device_names(prefix: str) -> Iterator[str]:
    for letter in ascii_lowercase:
        yield prefix + letter
    for first in ascii_lowercase:
        for second in ascii_lowercase:
            yield prefix + first + second


def _network(network: Network, workload_id: WorkloadId, index: int) -> Network:
    if network.mac_address:
        return network
    return replace(network, mac_address=derived_mac(workload_id, index))


def derived_mac(workload_id: WorkloadId, index: int) -> str:
    """In QEMU's locally administered range. The rest is derived from the id and never changes."""
    tail = sha256(f"{workload_id}/{index}".encode()).digest()[:3]
    return f"52:54:00:{tail.hex(':')}"
