"""Interfaces of VMs on libvirt networks or on bridges of the host, by name.

A static address on a libvirt network is also reserved in its DHCP, so that guests with DHCP get it and others
do not. An inactive network is started only if it has autostart: an operator stopped any other on purpose. On
a bridge an address without a prefix length gets the usual one of its family.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Interface, IPv6Interface, ip_interface
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from persys.agent.runtimes.vm.domain_xml import InterfacePart
from persys.agent.runtimes.vm.libvirt import Libvirt, LibvirtError, VmError, failure_of, load
from persys.agent.runtimes.vm.state_dir import Reservation, VmStateDir
from persys.core.agent.cloud_init import Link
from persys.infra.aio.path_calls import PathCalls
from persys.model.spec import Network, VMSpec
from persys.model.status import Failure, FailureReason

DEFAULT = "default"
USUAL_PREFIX = {4: 24, 6: 64}
_CARDS = Path("/sys/class/net")


@dataclass(frozen=True, slots=True)
class AttachedInterface:
    """One interface: for the domain XML, for cloud-init, and its DHCP reservation."""

    interface: InterfacePart
    link: Link
    reservation: Reservation | None = None


class VmNetworks:
    def __init__(self, libvirt: Libvirt, paths: PathCalls) -> None:
        self._libvirt = libvirt
        self._paths = paths

    async def attach(self, spec: VMSpec) -> list[AttachedInterface]:
        """Resolve the interfaces. Networks with autostart are started. Raises VmError."""
        return await self._libvirt.call(lambda connection: _attach(connection, spec))

    async def reserve(
        self, state_dir: VmStateDir, wanted: Iterable[AttachedInterface]
    ) -> Failure | None:
        """Reserve these addresses in DHCP and release previous ones."""
        reservations = tuple(each.reservation for each in wanted if each.reservation)
        before = await self._paths.run(state_dir.root, state_dir.read_reservations)
        if reservations or before:
            # Both are recorded until the old reservations are released.
            both = (*before, *(one for one in reservations if one not in before))
            await self._paths.run(state_dir.root, partial(state_dir.write_reservations, both))
            old = [reservation for reservation in before if reservation not in reservations]
            try:
                await self._libvirt.call(lambda connection: _reserve(connection, old, reservations))
            except LibvirtError as err:
                return failure_of(err, FailureReason.NETWORK_ERROR)
            await self._paths.run(
                state_dir.root, partial(state_dir.write_reservations, reservations)
            )
        return None

    async def release(self, state_dir: VmStateDir) -> Failure | None:
        return await self.reserve(state_dir, ())


def _attach(connection: Any, spec: VMSpec) -> list[AttachedInterface]:
    if not spec.networks:
        return []
    networks = {network.name(): network for network in connection.listAllNetworks()}
    return [_attached(networks, network) for network in spec.networks]


def _attached(networks: dict[str, Any], network: Network) -> AttachedInterface:
    name = network.name or DEFAULT
    found = networks.get(name)
    if found is None:
        if not (_CARDS / name / "bridge").is_dir():
            raise VmError(FailureReason.NETWORK_ERROR, _unknown(name, networks))
        return _with_address(InterfacePart("bridge", name, network.mac_address), network, None)
    if not found.isActive():
        if not found.autostart():
            problem = f"network {name} is not active; start it with `virsh net-start {name}`"
            raise VmError(FailureReason.NETWORK_ERROR, problem)
        found.create()
    return _with_address(
        InterfacePart("network", name, network.mac_address), network, found.XMLDesc()
    )


def _unknown(name: str, networks: Iterable[str]) -> str:
    bridges = (path.parent.name for path in _CARDS.glob("*/bridge"))
    known = ", ".join(sorted({*networks, *bridges})) or "none"
    return f"invalid network {name!r}: expected a libvirt network or bridge of this node ({known})"


def _with_address(interface: InterfacePart, network: Network, xml: str | None) -> AttachedInterface:
    if not network.ip_address:
        link = Link(interface.mac_address, nameservers=network.nameservers)
        return AttachedInterface(interface, link)
    address = ip_interface(network.ip_address)
    own = _own_address(xml, address.version) if xml is not None else None
    sized = "/" in network.ip_address
    if own is None:
        prefix = address.network.prefixlen if sized else USUAL_PREFIX[address.version]
        link = _static(interface, network, f"{address.ip}/{prefix}", network.gateway, ())
        return AttachedInterface(interface, link)
    if address.ip not in own.network:
        problem = f"invalid address {address.ip}: expected one in network {interface.source}, {own.network}"
        raise VmError(FailureReason.INVALID_SPEC, problem)
    prefix = address.network.prefixlen if sized else own.network.prefixlen
    gateway = network.gateway or str(own.ip)
    link = _static(interface, network, f"{address.ip}/{prefix}", gateway, (str(own.ip),))
    assert xml is not None
    if not _has_dhcp(xml, address.version):
        return AttachedInterface(interface, link)
    if network.dhcp:  # DHCP returns the reserved address
        link = Link(interface.mac_address, nameservers=network.nameservers)
    return AttachedInterface(
        interface, link, Reservation(interface.source, interface.mac_address, str(address.ip))
    )


def _static(
    interface: InterfacePart, network: Network, address: str, gateway: str, servers: tuple[str, ...]
) -> Link:
    return Link(
        interface.mac_address,
        dhcp=network.dhcp,
        address=address,
        gateway=gateway,
        nameservers=network.nameservers or servers,
    )


def _ip_elements(xml: str, version: int) -> Iterable[ET.Element]:
    family = {4: ("", "ipv4"), 6: ("ipv6",)}[version]
    root = ET.fromstring(xml)  # noqa: S314  # libvirt wrote it
    return (ip for ip in root.iterfind("ip") if ip.get("family", "") in family)


def _own_address(xml: str, version: int) -> IPv4Interface | IPv6Interface | None:
    """The host's address in a libvirt network, or None."""
    for ip in _ip_elements(xml, version):
        size = ip.get("prefix") or ip.get("netmask")
        if size:
            return ip_interface(f"{ip.get('address')}/{size}")
    return None


def _has_dhcp(xml: str, version: int) -> bool:
    # An IPv6 reservation needs a DUID, which the guest generates.
    return version == 4 and any(ip.find("dhcp") is not None for ip in _ip_elements(xml, version))


def _reserve(connection: Any, old: Iterable[Reservation], wanted: Iterable[Reservation]) -> None:
    libvirt = load()
    for reservation in old:
        try:
            network = connection.networkLookupByName(reservation.network)
        except libvirt.libvirtError as err:
            if err.get_error_code() == libvirt.VIR_ERR_NO_NETWORK:
                continue
            raise
        if reservation in _reserved(network):
            _change(network, libvirt.VIR_NETWORK_UPDATE_COMMAND_DELETE, reservation)
    for reservation in wanted:
        network = connection.networkLookupByName(reservation.network)
        if reservation not in _reserved(network):
            _change(network, libvirt.VIR_NETWORK_UPDATE_COMMAND_ADD_LAST, reservation)


def _reserved(network: Any) -> set[Reservation]:
    root = ET.fromstring(network.XMLDesc())  # noqa: S314  # libvirt wrote it
    return {
        Reservation(network.name(), host.get("mac", "").lower(), host.get("ip", ""))
        for host in root.iterfind("./ip/dhcp/host")
    }


def _change(network: Any, command: int, reservation: Reservation) -> None:
    libvirt = load()
    host = ET.Element("host", mac=reservation.mac_address, ip=reservation.address)
    flags = libvirt.VIR_NETWORK_UPDATE_AFFECT_CURRENT
    if network.isPersistent():
        flags = libvirt.VIR_NETWORK_UPDATE_AFFECT_CONFIG
        flags |= libvirt.VIR_NETWORK_UPDATE_AFFECT_LIVE if network.isActive() else 0
    section = libvirt.VIR_NETWORK_SECTION_IP_DHCP_HOST
    network.update(command, section, -1, ET.tostring(host, encoding="unicode"), flags)
