"""Parts of a spec that are equal in both contracts: resources, ports, mounts, volumes, cloud-init."""

import re
from collections.abc import Sequence
from typing import TypeVar

from persys.errors import InvalidError
from persys.model.ids import workload_id
from persys.model.placement import Resources
from persys.model.spec import CloudInit, ManagedVolume, Port, VolumeMount
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec import checks

AnyAmounts = control_pb2.ResourceRequirements | agent_pb2.ComposeSpec
AnyPort = control_pb2.Port | agent_pb2.PortMapping
AnyMount = control_pb2.VolumeMount | agent_pb2.VolumeMount
AnyVolume = control_pb2.ManagedVolumeSpec | agent_pb2.ManagedVolumeSpec
AnyCloudInit = control_pb2.CloudInitConfig | agent_pb2.CloudInitConfig

PortMessage = TypeVar("PortMessage", control_pb2.Port, agent_pb2.PortMapping)
MountMessage = TypeVar("MountMessage", control_pb2.VolumeMount, agent_pb2.VolumeMount)
VolumeMessage = TypeVar("VolumeMessage", control_pb2.ManagedVolumeSpec, agent_pb2.ManagedVolumeSpec)
CloudInitMessage = TypeVar(
    "CloudInitMessage", control_pb2.CloudInitConfig, agent_pb2.CloudInitConfig
)

_PROTOCOLS = {"": "tcp", "tcp": "tcp", "udp": "udp"}
_DRIVERS = {"": "local", "local": "local", "nfs": "nfs", "ceph-rbd": "ceph-rbd"}
_RETAINS = {"": False, "delete": False, "retain": True}
# Becomes part of a command name (mkfs.<type>).
_FS_TYPE = re.compile(r"[a-z0-9]{0,16}")


def resources(message: AnyAmounts, path: str) -> Resources:
    return Resources(
        checks.number(
            message.cpu_millicores, f"{path}.cpu_millicores", most=checks.CPU_MILLICORES_MAX
        ),
        checks.number(message.memory_mb, f"{path}.memory_mb", most=checks.MEMORY_MB_MAX),
        checks.number(message.disk_gb, f"{path}.disk_gb", most=checks.DISK_GB_MAX),
    )


def ports(messages: Sequence[AnyPort], path: str) -> tuple[Port, ...]:
    if not messages:
        return ()
    taken: set[tuple[int, str]] = set()
    found = []
    for index, message in enumerate(messages):
        port = _port(message, f"{path}[{index}]")
        if port.host_port:
            if (port.host_port, port.protocol) in taken:
                problem = f"{port.host_port}/{port.protocol} is used twice"
                raise InvalidError(f"{path}[{index}].host_port", problem)
            taken.add((port.host_port, port.protocol))
        found.append(port)
    return tuple(found)


def _port(message: AnyPort, path: str) -> Port:
    host_port, container_port = message.host_port, message.container_port
    if not 0 <= host_port <= checks.PORT_MAX:
        raise InvalidError(f"{path}.host_port", f"is {host_port}; expected 0 to 65535")
    if not 1 <= container_port <= checks.PORT_MAX:
        raise InvalidError(f"{path}.container_port", f"is {container_port}; expected 1 to 65535")
    protocol = _PROTOCOLS.get(message.protocol)
    if protocol is None:
        protocol = checks.word(message.protocol, _PROTOCOLS, f"{path}.protocol", "tcp or udp")
    return Port(container_port, host_port, protocol)


def mounts(messages: Sequence[AnyMount], path: str, taken: set[str]) -> tuple[VolumeMount, ...]:
    """The mounts. Their container paths are added to `taken`, the mount points used so far."""
    return tuple(
        VolumeMount(
            checks.absolute_path(message.host_path, f"{path}[{index}].host_path"),
            checks.mount_point(message.container_path, f"{path}[{index}].container_path", taken),
            message.read_only,
        )
        for index, message in enumerate(messages)
    )


def managed_volumes(
    messages: Sequence[AnyVolume], path: str, taken: set[str], *, mounted: bool
) -> tuple[ManagedVolume, ...]:
    """The volumes. `mounted`: a mount path is required. For a VM it is optional: a volume is a disk."""
    return tuple(
        _managed_volume(message, f"{path}[{index}]", taken, mounted=mounted)
        for index, message in enumerate(messages)
    )


def _managed_volume(
    message: AnyVolume, path: str, taken: set[str], *, mounted: bool
) -> ManagedVolume:
    workload_id(message.name, field=f"{path}.name")
    if mounted or message.mount_path:
        checks.mount_point(message.mount_path, f"{path}.mount_path", taken)
    if not _FS_TYPE.fullmatch(message.fs_type):
        problem = (
            f"invalid file system {checks.quoted(message.fs_type)}: expected, for example, ext4"
        )
        raise InvalidError(f"{path}.fs_type", problem)
    return ManagedVolume(
        name=message.name,
        mount_path=message.mount_path,
        driver=checks.word(message.driver, _DRIVERS, f"{path}.driver", "local, nfs or ceph-rbd"),
        size_gb=checks.number(message.size_gb, f"{path}.size_gb", most=checks.DISK_GB_MAX),
        access_mode=message.access_mode,
        fs_type=message.fs_type,
        read_only=message.read_only,
        retain=checks.word(
            message.retain_policy, _RETAINS, f"{path}.retain_policy", "Delete or Retain"
        ),
    )


def mount_messages(mounts: Sequence[VolumeMount], kind: type[MountMessage]) -> list[MountMessage]:
    return [
        kind(
            host_path=mount.host_path,
            container_path=mount.container_path,
            read_only=mount.read_only,
        )
        for mount in mounts
    ]


def port_messages(ports: Sequence[Port], kind: type[PortMessage]) -> list[PortMessage]:
    return [
        kind(host_port=port.host_port, container_port=port.container_port, protocol=port.protocol)
        for port in ports
    ]


def volume_messages(
    volumes: Sequence[ManagedVolume], kind: type[VolumeMessage]
) -> list[VolumeMessage]:
    return [
        kind(
            name=volume.name,
            driver=volume.driver,
            size_gb=volume.size_gb,
            access_mode=volume.access_mode,
            fs_type=volume.fs_type,
            mount_path=volume.mount_path,
            read_only=volume.read_only,
            retain_policy="Retain" if volume.retain else "Delete",
        )
        for volume in volumes
    ]


def cloud_init(message: AnyCloudInit) -> CloudInit:
    return CloudInit(
        message.user_data, message.meta_data, message.network_config, message.vendor_data
    )


def cloud_init_message(config: CloudInit, kind: type[CloudInitMessage]) -> CloudInitMessage:
    return kind(
        user_data=config.user_data,
        meta_data=config.meta_data,
        network_config=config.network_config,
        vendor_data=config.vendor_data,
    )
