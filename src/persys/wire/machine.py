"""A virtual machine in the agent's form, and what both contracts ask of one.

The agent's form has no place for a disk's pool, an interface's DHCP or the image to start from: those go
in its metadata under names of ours, and come out of it into the model's fields.
"""

import re
from base64 import b64encode

from google.protobuf import json_format
from msgspec.structs import replace

from persys.errors import InvalidError
from persys.model.spec import Disk, Network, VMSpec
from persys.wire import checks, parts
from persys.wire.gen.agent.v1 import agent_pb2

OS_IMAGE_KEY = "persys.os_image"
VCPUS_MAX = checks.CPU_MILLICORES_MAX // 1000
DEVICES_MAX = 64  # disks, and as many interfaces; a machine has room for fewer

_FORMATS = {"": "", "qcow2": "qcow2", "raw": "raw", "iso": "iso"}
_TYPES = {"": "", "disk": "disk", "cdrom": "cdrom"}
_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,62}")


def from_base64(text: str, where: str) -> VMSpec:
    """The machine in a base64 JSON text of the agent's form."""
    plain = checks.base64_text(text)
    if plain is None:
        raise InvalidError(where, "is not base64 of a JSON text")
    try:
        message = json_format.Parse(plain, agent_pb2.VMSpec(), max_recursion_depth=16)
    except (json_format.ParseError, RecursionError) as err:
        raise InvalidError(where, f"is no machine in the agent's form: {err}") from err
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
        )
        for index, network in enumerate(message.networks)
    )
    spec = VMSpec(
        vcpus=message.vcpus,
        memory_mb=message.memory_mb,
        disks=disks,
        networks=networks,
        cloud_init=parts.cloud_init(message.cloud_init_config),
        cloud_init_base64=message.cloud_init,
        os_image=metadata.pop(OS_IMAGE_KEY, ""),
        managed_volumes=parts.managed_volumes(
            message.managed_volumes, f"{where}.managed_volumes", set(), mounted=False
        ),
        name=message.name,
        metadata=metadata,
    )
    return checked(spec, where, device_field="device", address_field="ip_address")


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
            )
            for network in spec.networks
        ],
        cloud_init=spec.cloud_init_base64,
        metadata=_metadata(spec),
        cloud_init_config=agent_pb2.CloudInitConfig(
            user_data=spec.cloud_init.user_data,
            meta_data=spec.cloud_init.meta_data,
            network_config=spec.cloud_init.network_config,
            vendor_data=spec.cloud_init.vendor_data,
        ),
        managed_volumes=[parts.agent_volume(volume) for volume in spec.managed_volumes],
    )


def checked(spec: VMSpec, where: str, *, device_field: str, address_field: str) -> VMSpec:
    """The machine with its words made plain. The fields are what this contract calls them."""
    if spec.name and not _NAME.fullmatch(spec.name):
        raise InvalidError(f"{where}.name", f"{checks.shown(spec.name)} is no machine name")
    checks.number(spec.vcpus, f"{where}.vcpus", least=1, most=VCPUS_MAX)
    checks.number(spec.memory_mb, f"{where}.memory_mb", least=1, most=checks.MEMORY_MB_MAX)
    for field, count in (("disks", len(spec.disks)), ("networks", len(spec.networks))):
        if count > DEVICES_MAX:
            problem = f"has {count} entries; expected at most {DEVICES_MAX}"
            raise InvalidError(f"{where}.{field}", problem)
    taken: set[str] = set()
    disks = tuple(
        _checked_disk(disk, f"{where}.disks[{index}]", device_field, taken)
        for index, disk in enumerate(spec.disks)
    )
    networks = tuple(
        _checked_network(network, f"{where}.networks[{index}]", address_field)
        for index, network in enumerate(spec.networks)
    )
    return replace(spec, disks=disks, networks=networks)


def _checked_disk(disk: Disk, where: str, device_field: str, taken: set[str]) -> Disk:
    checks.device(disk.device, f"{where}.{device_field}")
    if disk.device and disk.device in taken:
        raise InvalidError(f"{where}.{device_field}", f"{disk.device} is asked for twice")
    taken.add(disk.device)
    checks.number(disk.size_gb, f"{where}.size_gb", most=checks.DISK_GB_MAX)
    if disk.path:
        checks.absolute_path(disk.path, f"{where}.path")
    return replace(
        disk,
        format=checks.word(disk.format, _FORMATS, f"{where}.format", "qcow2, raw or iso"),
        type=checks.word(disk.type, _TYPES, f"{where}.type", "disk or cdrom"),
    )


def _checked_network(network: Network, where: str, address_field: str) -> Network:
    checks.ip_address(network.ip_address, f"{where}.{address_field}")
    return replace(
        network, mac_address=checks.mac_address(network.mac_address, f"{where}.mac_address")
    )


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
