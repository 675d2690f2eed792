"""The VM spec of the agent contract, converted to and from the model.

The agent contract has no fields for the pool of a disk, DHCP of an interface or the base image. They are
encoded as metadata with reserved keys and decoded into the fields of the model.
"""

from base64 import b64encode

from google.protobuf import json_format

from persys.errors import InvalidError
from persys.model.spec import Disk, Network, RestartPolicy, VMSpec
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.spec import checks, fields, health, login, vm_rules

OS_IMAGE_KEY = "persys.os_image"


def from_base64(text: str, where: str) -> VMSpec:
    """The VM spec from base64 of its JSON in the agent contract."""
    plain = checks.base64_text(text)
    if plain is None:
        raise InvalidError(where, "invalid encoding: expected base64 of a JSON text")
    try:
        message = json_format.Parse(plain, agent_pb2.VMSpec(), max_recursion_depth=16)
    except (json_format.ParseError, RecursionError) as err:
        raise InvalidError(where, f"invalid VM spec in the agent's form: {err}") from err
    return vm(message, where)


def to_base64(spec: VMSpec) -> str:
    text = json_format.MessageToJson(
        vm_message(spec), preserving_proto_field_name=True, indent=None, sort_keys=True
    )
    return b64encode(text.encode()).decode()


def vm(message: agent_pb2.VMSpec, where: str = "spec.vm") -> VMSpec:
    metadata = dict(message.metadata)
    disks = tuple(
        Disk(
            pool_name=metadata.pop(_pool_key(index, disk.device), ""),
            size_gb=disk.size_gb,
            device=disk.device,
            path=disk.path,
            format=disk.format,
            type=disk.type,
            boot=disk.boot,
        )
        for index, disk in enumerate(message.disks)
    )
    networks = tuple(
        Network(
            name=network.network,
            dhcp=metadata.pop(_dhcp_key(index), "") == "true",
            ip_address=network.ip_address,
            mac_address=network.mac_address,
            gateway=network.gateway,
            nameservers=tuple(network.nameservers),
        )
        for index, network in enumerate(message.networks)
    )
    spec = VMSpec(
        vcpus=message.vcpus,
        memory_mb=message.memory_mb,
        disks=disks,
        networks=networks,
        cloud_init=fields.cloud_init(message.cloud_init_config),
        cloud_init_base64=message.cloud_init,
        os_image=metadata.pop(OS_IMAGE_KEY, ""),
        managed_volumes=fields.managed_volumes(
            message.managed_volumes, f"{where}.managed_volumes", set(), mounted=False
        ),
        name=message.name,
        metadata=metadata,
        restart=_restart(message, f"{where}.restart_policy"),
        stop_grace_seconds=message.stop_grace_seconds,
        login=login.login(message.login, f"{where}.login"),
        health=health.health_check(message.health_check, f"{where}.health_check", health.VM_TYPES),
    )
    vm_rules.cloud_init(spec.cloud_init, spec.cloud_init_base64, where, field="cloud_init_config")
    return vm_rules.checked(spec, where, device_field="device", address_field="ip_address")


def vm_message(spec: VMSpec) -> agent_pb2.VMSpec:
    return agent_pb2.VMSpec(
        name=spec.name,
        vcpus=spec.vcpus,
        memory_mb=spec.memory_mb,
        disks=[
            agent_pb2.DiskConfig(
                path=disk.path,
                device=disk.device,
                format=disk.format,
                size_gb=disk.size_gb,
                type=disk.type,
                boot=disk.boot,
            )
            for disk in spec.disks
        ],
        networks=[
            agent_pb2.NetworkConfig(
                network=network.name,
                mac_address=network.mac_address,
                ip_address=network.ip_address,
                gateway=network.gateway,
                nameservers=network.nameservers,
            )
            for network in spec.networks
        ],
        cloud_init=spec.cloud_init_base64,
        metadata=_metadata(spec),
        cloud_init_config=fields.cloud_init_message(spec.cloud_init, agent_pb2.CloudInitConfig),
        managed_volumes=fields.volume_messages(spec.managed_volumes, agent_pb2.ManagedVolumeSpec),
        restart_policy=_restart_message(spec.restart),
        stop_grace_seconds=spec.stop_grace_seconds,
        login=login.login_message(spec.login, agent_pb2.VMLogin),
        health_check=health.health_message(spec.health, agent_pb2.HealthCheck),
    )


def _restart(message: agent_pb2.VMSpec, path: str) -> RestartPolicy:
    policy = message.restart_policy
    retries_max = checks.number(
        policy.max_retry_count, f"{path}.max_retry_count", most=checks.RETRIES_MAX
    )
    return checks.restart_policy(policy.policy, f"{path}.policy", retries_max=retries_max)


def _restart_message(restart: RestartPolicy) -> agent_pb2.RestartPolicy | None:
    """The message, or None for the default: messages of VMs without a policy do not change."""
    if restart == RestartPolicy():
        return None
    return agent_pb2.RestartPolicy(policy=restart.name, max_retry_count=restart.retries_max)


def _metadata(spec: VMSpec) -> dict[str, str]:
    metadata = dict(spec.metadata)
    if spec.os_image:
        metadata[OS_IMAGE_KEY] = spec.os_image
    for index, disk in enumerate(spec.disks):
        if disk.pool_name:
            metadata[_pool_key(index, disk.device)] = disk.pool_name
    for index, network in enumerate(spec.networks):
        if network.dhcp:
            metadata[_dhcp_key(index)] = "true"
    return metadata


def _pool_key(index: int, device: str) -> str:
    return f"persys.disk.{device or index}.pool"


def _dhcp_key(index: int) -> str:
    return f"persys.network.{index}.dhcp"
