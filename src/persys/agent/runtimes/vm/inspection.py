"""Inspects one VM: state, description and addresses from libvirt and the guest agent, in one call.

Addresses come from libvirt's DHCP leases and from the guest agent if it responds, which is the only source
for bridges. If neither has an address, the static address of the spec is used.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from persys.agent.runtimes.vm.domain_xml import (
    ADDRESSES_LABEL,
    CLOUD_INIT_LABEL,
    Described,
    described,
)
from persys.agent.runtimes.vm.libvirt_import import load

AGENT_SECONDS = 2  # timeout of the guest agent
_LEASE, _AGENT = 0, 1  # VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_*


@dataclass(frozen=True, slots=True)
class Sight:
    uuid: str
    number: int  # libvirt's id of this run; -1 if it is not running
    state: int  # VIR_DOMAIN_*
    reason: int
    described: Described
    addresses: tuple[str, ...] = ()
    full_disks: tuple[str, ...] = ()  # devices without space
    broken_disks: tuple[str, ...] = ()


def look(connection: Any, uuid: str) -> Sight | None:
    """None if there is no such domain."""
    libvirt = load()
    try:
        domain = connection.lookupByUUIDString(uuid)
        state, reason = domain.state()
        found = described(domain.XMLDesc())
        number = domain.ID()
    except libvirt.libvirtError as err:
        if err.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise
    if number < 0:
        return Sight(uuid, number, state, reason, found)
    errors: dict[str, int] = {}
    if state == libvirt.VIR_DOMAIN_PAUSED:
        with suppress(libvirt.libvirtError):  # it may have stopped; the next inspection shows it
            errors = domain.diskErrors() or {}
    no_room = libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE
    return Sight(
        uuid,
        number,
        state,
        reason,
        found,
        addresses=_addresses(domain, found),
        full_disks=tuple(sorted(device for device, what in errors.items() if what == no_room)),
        broken_disks=tuple(sorted(device for device, what in errors.items() if what != no_room)),
    )


def facts(sight: Sight) -> dict[str, str]:
    """Status metadata, most of it in the names that peers expect."""
    found = sight.described
    runs = sight.number >= 0
    return {
        "vm.domain_state": state_word(sight.state),
        "vm.ip_addresses": ",".join(sight.addresses),
        "vm.primary_ip": primary(sight.addresses),
        "vm.mac_addresses": ",".join(found.mac_addresses),
        "vm.accel": found.accel,
        "vm.guest_agent": ("connected" if found.guest_agent else "disconnected") if runs else "",
        "vm.cloud_init_sha256": found.labels.get(CLOUD_INIT_LABEL, ""),
        "vm.vnc": found.vnc if runs else "",
    }


def state_word(state: int) -> str:
    libvirt = load()
    words = {
        libvirt.VIR_DOMAIN_RUNNING: "running",
        libvirt.VIR_DOMAIN_BLOCKED: "blocked",
        libvirt.VIR_DOMAIN_PAUSED: "paused",
        libvirt.VIR_DOMAIN_SHUTDOWN: "shutdown",
        libvirt.VIR_DOMAIN_SHUTOFF: "shutoff",
        libvirt.VIR_DOMAIN_CRASHED: "crashed",
        libvirt.VIR_DOMAIN_PMSUSPENDED: "pmsuspended",
    }
    return words.get(state, "unknown")


def primary(addresses: Iterable[str]) -> str:
    """The first IPv4 address, otherwise the first address."""
    found = list(addresses)
    return next((one for one in found if ":" not in one), found[0] if found else "")


def _addresses(domain: Any, found: Described) -> tuple[str, ...]:
    libvirt = load()
    addresses: list[str] = []
    with suppress(libvirt.libvirtError):  # no interface on a libvirt network
        addresses += _plain(domain.interfaceAddresses(_LEASE, 0), found)
    if found.guest_agent:
        with suppress(libvirt.libvirtError):  # the guest agent hangs or has just stopped
            domain.agentSetResponseTimeout(AGENT_SECONDS, 0)
            addresses += _plain(domain.interfaceAddresses(_AGENT, 0), found)
    given = [one for one in found.labels.get(ADDRESSES_LABEL, "").split(",") if one]
    return tuple(dict.fromkeys(addresses or given))


def _plain(interfaces: dict[str, dict[str, Any]], found: Described) -> list[str]:
    """Addresses of the VM's own interfaces. Internal interfaces of the guest are not reachable."""
    own = [
        (interface, found.mac_addresses.index(mac))
        for interface in interfaces.values()
        if (mac := (interface.get("hwaddr") or "").lower()) in found.mac_addresses
    ]
    return [
        address["addr"]
        for interface, _ in sorted(own, key=lambda pair: pair[1])
        for address in interface.get("addrs") or ()
        if not ip_address(address["addr"].partition("%")[0]).is_link_local
    ]
