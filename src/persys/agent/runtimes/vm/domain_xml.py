"""Builds and parses the domain XML of a VM. Pure.

The cloud-init ISO is a virtio disk, because cloud kernels have no drivers for other buses, and the last disk,
so that it does not change the names of the others. When the host's disk is full the VM pauses; an I/O error
in the guest would make its file systems read-only. VNC has no password and listens on a UNIX socket in
libvirt's own directory, which other users of the host cannot access.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from string import ascii_lowercase
from xml.etree import ElementTree as ET

from persys.agent.runtimes.docker.mapping import REVISION_LABEL, WORKLOAD_LABEL, OwnerLabels
from persys.agent.runtimes.vm.kvm import Accel
from persys.model.ids import WorkloadId
from persys.model.spec import VMSpec
from persys.model.workload import Order

NAMESPACE = "urn:persys:machine:1"
CLOUD_INIT_LABEL = "persys.cloud_init_sha256"
ADDRESSES_LABEL = "persys.addresses"
AGENT_CHANNEL = "org.qemu.guest_agent.0"
SERIAL_LENGTH_MAX = 20  # limit of virtio disks
BALLOON_SECONDS = 10

_UUIDS = uuid.UUID("5f0c1a52-3d5c-4c0e-9f39-0a4b6f7d2a11")
_BUSES = {"vd": "virtio", "sd": "scsi", "hd": "ide"}

ET.register_namespace("persys", NAMESPACE)


@dataclass(frozen=True, slots=True)
class DiskPart:
    """A disk of the domain. `source` depends on the kind: file, dev, or pool and volume."""

    device: str
    format: str
    source: Mapping[str, str]
    kind: str = "file"
    cdrom: bool = False
    read_only: bool = False
    boot: int = 0
    serial: str = ""


@dataclass(frozen=True, slots=True)
class InterfacePart:
    """An interface on a libvirt network or on a bridge of the host."""

    kind: str  # network, bridge
    source: str
    mac_address: str


@dataclass(frozen=True, slots=True)
class DomainParts:
    disks: tuple[DiskPart, ...] = ()
    interfaces: tuple[InterfacePart, ...] = ()
    seed: Path | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def vm_spec(order: Order) -> VMSpec:
    assert isinstance(order.spec, VMSpec), "this runtime gets VMs only"
    return order.spec


def domain_uuid(owner: OwnerLabels, workload_id: WorkloadId) -> str:
    """The UUID of the domain, derived from the workload id and independent of the name."""
    return str(uuid.uuid5(_UUIDS, f"{owner.cluster_id}/{owner.node_id}/{workload_id}"))


def bus_of(device: str, *, cdrom: bool = False) -> str | None:
    """The bus of a device name, or None if it is invalid."""
    bus = _BUSES.get(device[:2])
    return "sata" if cdrom and bus == "scsi" else bus


def domain_xml(
    order: Order, owner: OwnerLabels, parts: DomainParts, *, accel: Accel, console: Path
) -> str:
    spec = vm_spec(order)
    domain = ET.Element("domain", type="kvm" if accel is Accel.KVM else "qemu")
    _add(domain, "name", text=spec.name or order.workload_id)
    _add(domain, "uuid", text=domain_uuid(owner, order.workload_id))
    labels = {
        **owner.labels,
        WORKLOAD_LABEL: order.workload_id,
        REVISION_LABEL: order.revision,
        "persys.epoch": str(order.epoch),
        **parts.labels,
    }
    domain.append(_metadata(labels))
    _add(domain, "memory", text=str(spec.memory_mb), unit="MiB")
    _add(domain, "vcpu", text=str(spec.vcpus))
    old = any(bus_of(disk.device, cdrom=disk.cdrom) == "ide" for disk in parts.disks)
    _add(_add(domain, "os"), "type", text="hvm", machine="pc" if old else "q35")
    features = _add(domain, "features")
    _add(features, "acpi")
    _add(features, "apic")
    # Emulation offers all features; with KVM the guest sees the CPU of the host.
    cpu = _add(domain, "cpu", mode="host-passthrough" if accel is Accel.KVM else "maximum")
    if accel is not Accel.KVM:
        _add(cpu, "feature", policy="disable", name="la57")  # 5-level paging, slow to emulate
    _add(domain, "clock", offset="utc")
    _add(domain, "on_poweroff", text="destroy")
    _add(domain, "on_reboot", text="restart")
    _add(domain, "on_crash", text="destroy")
    _add_devices(_add(domain, "devices"), parts, console)
    return ET.tostring(domain, encoding="unicode")


def _metadata(labels: Mapping[str, str]) -> ET.Element:
    metadata = ET.Element("metadata")
    mark = _add(metadata, f"{{{NAMESPACE}}}machine")
    for name, value in labels.items():
        _add(mark, f"{{{NAMESPACE}}}label", name=name, value=value)
    return metadata


def _add_devices(devices: ET.Element, parts: DomainParts, console: Path) -> None:
    for disk in parts.disks:
        _add_disk(devices, disk)
    if parts.seed is not None:
        device = free_device(disk.device for disk in parts.disks)
        source = {"file": str(parts.seed)}
        _add_disk(devices, DiskPart(device, "raw", source, read_only=True))
    if any(bus_of(disk.device, cdrom=disk.cdrom) == "scsi" for disk in parts.disks):
        _add(devices, "controller", type="scsi", model="virtio-scsi")
    for interface in parts.interfaces:
        element = _add(devices, "interface", type=interface.kind)
        _add(element, "mac", address=interface.mac_address)
        _add(element, "source", **{interface.kind: interface.source})
        _add(element, "model", type="virtio")
    serial = _add(devices, "serial", type="pty")
    _add(serial, "log", file=str(console), append="on")
    _add(serial, "target", port="0")
    _add(_add(devices, "console", type="pty"), "target", type="serial", port="0")
    _add(_add(devices, "channel", type="unix"), "target", type="virtio", name=AGENT_CHANNEL)
    _add(_add(devices, "graphics", type="vnc"), "listen", type="socket")
    _add(_add(devices, "video"), "model", type="vga")
    rng = _add(devices, "rng", model="virtio")
    _add(rng, "backend", text="/dev/urandom", model="random")
    _add(_add(devices, "memballoon", model="virtio"), "stats", period=str(BALLOON_SECONDS))
    _add(devices, "panic", model="isa")


def _add_disk(devices: ET.Element, disk: DiskPart) -> None:
    element = _add(devices, "disk", type=disk.kind, device="cdrom" if disk.cdrom else "disk")
    driver = {"name": "qemu", "type": disk.format}
    if not disk.read_only:
        driver |= {"error_policy": "enospace", "discard": "unmap"}
    _add(element, "driver", **driver)
    _add(element, "source", **dict(disk.source))
    _add(element, "target", dev=disk.device, bus=bus_of(disk.device, cdrom=disk.cdrom) or "virtio")
    if disk.read_only:
        _add(element, "readonly")
    if disk.serial:
        _add(element, "serial", text=disk.serial[:SERIAL_LENGTH_MAX])
    if disk.boot:
        _add(element, "boot", order=str(disk.boot))


def free_device(taken: Iterable[str]) -> str:
    """The next virtio disk name after the last one in use."""
    used = set(taken)
    pairs = (first + second for first in ascii_lowercase for second in ascii_lowercase)
    names = [f"vd{letters}" for letters in chain(ascii_lowercase, pairs)]
    last = max((names.index(name) for name in used if name in names), default=-1)
    return names[last + 1]


def _add(parent: ET.Element, tag: str, *, text: str | None = None, **attributes: str) -> ET.Element:
    element = ET.SubElement(parent, tag, attributes)
    element.text = text
    return element


@dataclass(frozen=True, slots=True)
class DomainDescription:
    name: str
    accel: str  # as in model: kvm or tcg
    labels: Mapping[str, str]  # owner labels; empty if Persys did not create it
    mac_addresses: tuple[str, ...]
    sources: Mapping[str, str]  # paths of files and block devices by device name
    formats: Mapping[str, str]
    console: str  # the log file of its serial console
    guest_agent: bool  # connected
    vnc: str


def parse_domain(xml: str) -> DomainDescription:
    domain = ET.fromstring(xml)  # noqa: S314  # libvirt wrote it
    disks = {
        target.get("dev", ""): disk
        for disk in domain.iterfind("./devices/disk")
        if (target := disk.find("target")) is not None
    }
    vnc = domain.find("./devices/graphics[@type='vnc']/listen[@type='socket']")
    log = domain.find("./devices/serial/log")
    channel = domain.find(f"./devices/channel/target[@name='{AGENT_CHANNEL}']")
    return DomainDescription(
        name=domain.findtext("name", ""),
        accel="kvm" if domain.get("type") == "kvm" else "tcg",
        labels=_labels(domain),
        mac_addresses=tuple(
            mac.get("address", "") for mac in domain.iterfind("./devices/interface/mac")
        ),
        sources={device: path for device, disk in disks.items() if (path := _path(disk))},
        formats={
            device: driver.get("type", "")
            for device, disk in disks.items()
            if (driver := disk.find("driver")) is not None
        },
        console=log.get("file", "") if log is not None else "",
        guest_agent=channel is not None and channel.get("state") == "connected",
        vnc=f"unix:{vnc.get('socket')}" if vnc is not None and vnc.get("socket") else "",
    )


def _labels(domain: ET.Element) -> dict[str, str]:
    labels = domain.iterfind(f"./metadata/{{{NAMESPACE}}}machine/{{{NAMESPACE}}}label")
    return {label.get("name", ""): label.get("value", "") for label in labels}


def _path(disk: ET.Element) -> str:
    source = disk.find("source")
    if source is None:
        return ""
    return source.get("file") or source.get("dev") or ""
