"""Parses the domain XML of libvirt. Pure; missing values are empty."""

from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from persys.agent.runtimes.machine_form import AGENT_CHANNEL, NAMESPACE


@dataclass(frozen=True, slots=True)
class Described:
    name: str
    accel: str  # as in model: kvm or tcg
    labels: Mapping[str, str]  # owner labels; empty if Persys did not create it
    mac_addresses: tuple[str, ...]
    sources: Mapping[str, str]  # paths of files and block devices by device name
    formats: Mapping[str, str]
    console: str  # the log file of its serial console
    guest_agent: bool  # connected
    vnc: str


def described(xml: str) -> Described:
    domain = ET.fromstring(xml)  # noqa: S314  # libvirt wrote it
    disks = {
        target.get("dev", ""): disk
        for disk in domain.iterfind("./devices/disk")
        if (target := disk.find("target")) is not None
    }
    vnc = domain.find("./devices/graphics[@type='vnc']/listen[@type='socket']")
    log = domain.find("./devices/serial/log")
    channel = domain.find(f"./devices/channel/target[@name='{AGENT_CHANNEL}']")
    return Described(
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
