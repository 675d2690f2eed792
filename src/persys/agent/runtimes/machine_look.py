"""Looking at one machine: all that libvirt and the guest tell of it, in one call.

Addresses come from the leases of libvirt's own DHCP and, where an agent in the guest answers, from the guest
itself, which alone knows those of a bridge. An address that was given in the spec is told when nobody knows
better: it is what the guest was told to have.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from persys.agent.runtimes.libvirt_module import load
from persys.agent.runtimes.machine_form import ADDRESSES_LABEL, CLOUD_INIT_LABEL
from persys.agent.runtimes.machine_reading import Described, described

AGENT_SECONDS = 2  # for the guest to answer
_LEASED, _TOLD = 0, 1  # VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_*


@dataclass(frozen=True, slots=True)
class Sight:
    uuid: str
    number: int  # of this life of it; -1: it does not run
    state: int  # VIR_DOMAIN_*
    reason: int
    described: Described
    addresses: tuple[str, ...] = ()
    full_disks: tuple[str, ...] = ()  # devices without room
    broken_disks: tuple[str, ...] = ()


def look(connection: Any, uuid: str) -> Sight | None:
    """None: there is no such domain."""
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
        with suppress(libvirt.libvirtError):  # it may have ended meanwhile: the next look tells
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
    """In the words that peers know, and some of ours."""
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
    """The first of IPv4, else the first."""
    found = list(addresses)
    return next((one for one in found if ":" not in one), found[0] if found else "")


def _addresses(domain: Any, found: Described) -> tuple[str, ...]:
    libvirt = load()
    addresses: list[str] = []
    with suppress(libvirt.libvirtError):  # no interface on a network of libvirt
        addresses += _plain(domain.interfaceAddresses(_LEASED, 0), found)
    if found.guest_agent:
        with suppress(libvirt.libvirtError):  # it hangs, or has just gone
            domain.agentSetResponseTimeout(AGENT_SECONDS, 0)
            addresses += _plain(domain.interfaceAddresses(_TOLD, 0), found)
    given = [one for one in found.labels.get(ADDRESSES_LABEL, "").split(",") if one]
    return tuple(dict.fromkeys(addresses or given))


def _plain(interfaces: dict[str, dict[str, Any]], found: Described) -> list[str]:
    """Of the machine's own interfaces; what the guest made up for itself, nobody can reach."""
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
