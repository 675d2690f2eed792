"""The spec in the control contract, encoded from the model: the reverse of `spec_decode`.

A VM is encoded as `persys.vm_spec_b64` only when field 12 cannot represent all of it. The limits of a
container spec are left out: this contract has them as resources.
"""

from collections.abc import Mapping
from typing import assert_never

from persys.model.placement import NO_RULES, Resources, Rules
from persys.model.spec import (
    ComposeSpec,
    ContainerSpec,
    RestartPolicy,
    Spec,
    VMSpec,
    type_of,
)
from persys.model.workload import Desired, Workload
from persys.wire.agent import vm as agent_vm
from persys.wire.control import placement
from persys.wire.control.spec_decode import VM_SPEC_KEY, vm
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec import fields, files, health, login


def apply_message(workload: Workload) -> control_pb2.ApplyWorkloadRequest:
    """The order for an agent that supports only the control contract."""
    return control_pb2.ApplyWorkloadRequest(
        workload_id=workload.id,
        spec=spec_message(
            workload.spec, workload.resources, workload.metadata, networks=workload.networks
        ),
        revision_id=workload.revision,
        desired_state="Stopped" if workload.desired is Desired.STOPPED else "Running",
    )


def spec_message(
    spec: Spec,
    resources: Resources,
    metadata: Mapping[str, str],
    *,
    rules: Rules = NO_RULES,
    stop_after_seconds: int = 0,
    networks: tuple[str, ...] = (),
) -> control_pb2.WorkloadSpec:
    """The message that `workload_spec` and `workload_rules` decode to equal values."""
    message = control_pb2.WorkloadSpec(
        type=type_of(spec),
        resources=control_pb2.ResourceRequirements(
            cpu_millicores=resources.cpu_millicores,
            memory_mb=resources.memory_mb,
            disk_gb=resources.disk_gb,
        ),
        metadata=metadata,
        stop_after_seconds=stop_after_seconds,
        networks=networks,
    )
    if rules != NO_RULES:
        message.placement.CopyFrom(placement.rules_message(rules))
    match spec:
        case ContainerSpec():
            message.container.CopyFrom(_container_message(spec))
        case ComposeSpec():
            message.compose.CopyFrom(_compose_message(spec))
        case VMSpec():
            plain = _vm_message(spec)
            if vm(plain) == spec:
                message.vm.CopyFrom(plain)
            else:
                message.metadata[VM_SPEC_KEY] = agent_vm.to_base64(spec)
        case unreachable:
            assert_never(unreachable)
    return message


def _container_message(spec: ContainerSpec) -> control_pb2.ContainerSpec:
    return control_pb2.ContainerSpec(
        image=spec.image,
        command=spec.command,
        args=spec.args,
        env=spec.env,
        volumes=fields.mount_messages(spec.volumes, control_pb2.VolumeMount),
        managed_volumes=fields.volume_messages(spec.managed_volumes, control_pb2.ManagedVolumeSpec),
        ports=fields.port_messages(spec.ports, control_pb2.Port),
        restart_policy=_restart_word(spec.restart),
        privileged=spec.privileged,
        image_pull_policy=spec.pull_policy,
        pids_max=spec.pids_max,
        stop_grace_seconds=spec.stop_grace_seconds,
        init=spec.init,
        labels=spec.labels,
        image_credential=spec.image_credential,
        health_check=health.health_message(spec.health, control_pb2.HealthCheck),
        files=files.user_messages(spec.files),
    )


def _restart_word(restart: RestartPolicy) -> str:
    return f"{restart.name}:{restart.retries_max}" if restart.retries_max else restart.name


def _compose_message(spec: ComposeSpec) -> control_pb2.ComposeSpec:
    return control_pb2.ComposeSpec(
        source_type=spec.source_type,
        inline_yaml=spec.yaml,
        git_repo=spec.git_repo,
        git_ref=spec.git_ref,
        env=spec.env,
        git_path=spec.git_path,
        git_credential=spec.git_credential,
        image_credential=spec.image_credential,
        volume_policy="Delete" if spec.delete_volumes else "",
        project_name=spec.project_name,
    )


def _vm_message(spec: VMSpec) -> control_pb2.VMSpec:
    return control_pb2.VMSpec(
        vcpus=spec.vcpus,
        memory_mb=spec.memory_mb,
        disks=[
            control_pb2.DiskConfig(
                pool_name=disk.pool_name, size_gb=disk.size_gb, mount_point=disk.device
            )
            for disk in spec.disks
        ],
        networks=[
            control_pb2.NetworkConfig(
                bridge=network.name,
                dhcp=network.dhcp,
                static_ip=network.ip_address,
                mac_address=network.mac_address,
                gateway=network.gateway,
                nameservers=network.nameservers,
            )
            for network in spec.networks
        ],
        cloud_init=fields.cloud_init_message(spec.cloud_init, control_pb2.CloudInitConfig),
        os_image=spec.os_image,
        managed_volumes=fields.volume_messages(spec.managed_volumes, control_pb2.ManagedVolumeSpec),
        restart_policy="" if spec.restart == RestartPolicy() else _restart_word(spec.restart),
        stop_grace_seconds=spec.stop_grace_seconds,
        login=login.login_message(spec.login, control_pb2.VMLogin),
        health_check=health.health_message(spec.health, control_pb2.HealthCheck),
    )
