"""Inspects VMs: state, addresses and runs of one VM, its guest agent, and the list of all VMs for garbage
collection.

Addresses come from libvirt's DHCP leases and from the guest agent if it responds, which is the only source
for bridges. If neither has an address, the static address of the spec is used. Starts and stops are tracked
here, because libvirt does not store them.

All VMs are found by the labels of cluster and node, so VMs of others are never listed. Garbage collection
keeps data: only the domain is undefined, and disks are not listed.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from ipaddress import ip_address
from math import ceil
from shutil import disk_usage
from typing import Any

from msgspec.structs import replace

from persys.agent.journal.records import Image
from persys.agent.runtimes.docker.mapping import REVISION_LABEL, WORKLOAD_LABEL, OwnerLabels
from persys.agent.runtimes.vm import power
from persys.agent.runtimes.vm.domain_xml import (
    ADDRESSES_LABEL,
    CLOUD_INIT_LABEL,
    DomainDescription,
    parse_domain,
)
from persys.agent.runtimes.vm.libvirt import Libvirt, LibvirtError, is_code, load
from persys.agent.runtimes.vm.state_dir import Run
from persys.core.agent.garbage import ImageUse, Item, Kind
from persys.core.agent.next_step import SWITCHED_OFF
from persys.core.agent.progress import Artefact, Condition
from persys.core.agent.report import PRIMARY_IP
from persys.core.agent.run_limits import UNKNOWN_EXIT_CODE
from persys.model.ids import Revision, WorkloadId
from persys.model.status import Failure, FailureReason

AGENT_SECONDS = 2  # timeout of the guest agent
PING_MARGIN_SECONDS = 5.0  # for libvirt, beyond the timeout of the guest agent
_LEASE, _AGENT = 0, 1  # VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_*
RESUME_FREE_BYTES = (
    64 * 1024 * 1024
)  # free space at which a VM that is paused for lack of space may resume
ADDRESS_AWAITED = timedelta(minutes=3)
ADDRESS_POLL_AFTER = timedelta(seconds=1)
CRASHED = 1


@dataclass(frozen=True, slots=True)
class DomainView:
    uuid: str
    number: int  # libvirt's id of this run; -1 if it is not running
    state: int  # VIR_DOMAIN_*
    reason: int
    description: DomainDescription
    addresses: tuple[str, ...] = ()
    full_disks: tuple[str, ...] = ()  # devices without space
    broken_disks: tuple[str, ...] = ()


def inspect_domain(connection: Any, uuid: str) -> DomainView | None:
    """None if there is no such domain."""
    libvirt = load()
    try:
        domain = connection.lookupByUUIDString(uuid)
        state, reason = domain.state()
        found = parse_domain(domain.XMLDesc())
        number = domain.ID()
    except libvirt.libvirtError as err:
        if err.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return None
        raise
    if number < 0:
        return DomainView(uuid, number, state, reason, found)
    errors: dict[str, int] = {}
    if state == libvirt.VIR_DOMAIN_PAUSED:
        with suppress(libvirt.libvirtError):  # it may have stopped; the next inspection shows it
            errors = domain.diskErrors() or {}
    no_space = libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE
    return DomainView(
        uuid,
        number,
        state,
        reason,
        found,
        addresses=_addresses(domain, found),
        full_disks=tuple(sorted(device for device, what in errors.items() if what == no_space)),
        broken_disks=tuple(sorted(device for device, what in errors.items() if what != no_space)),
    )


def status_metadata(view: DomainView) -> dict[str, str]:
    """Status metadata, most of it in the names that peers expect."""
    found = view.description
    runs = view.number >= 0
    return {
        "vm.domain_state": state_name(view.state),
        "vm.ip_addresses": ",".join(view.addresses),
        PRIMARY_IP: primary(view.addresses),
        "vm.mac_addresses": ",".join(found.mac_addresses),
        "vm.accel": found.accel,
        "vm.guest_agent": ("connected" if found.guest_agent else "disconnected") if runs else "",
        "vm.cloud_init_sha256": found.labels.get(CLOUD_INIT_LABEL, ""),
        "vm.vnc": found.vnc if runs else "",
    }


def state_name(state: int) -> str:
    libvirt = load()
    names = {
        libvirt.VIR_DOMAIN_RUNNING: "running",
        libvirt.VIR_DOMAIN_BLOCKED: "blocked",
        libvirt.VIR_DOMAIN_PAUSED: "paused",
        libvirt.VIR_DOMAIN_SHUTDOWN: "shutdown",
        libvirt.VIR_DOMAIN_SHUTOFF: "shutoff",
        libvirt.VIR_DOMAIN_CRASHED: "crashed",
        libvirt.VIR_DOMAIN_PMSUSPENDED: "pmsuspended",
    }
    return names.get(state, "unknown")


def primary(addresses: Iterable[str]) -> str:
    """The first IPv4 address, otherwise the first address."""
    found = list(addresses)
    return next((one for one in found if ":" not in one), found[0] if found else "")


def _addresses(domain: Any, found: DomainDescription) -> tuple[str, ...]:
    libvirt = load()
    addresses: list[str] = []
    with suppress(libvirt.libvirtError):  # no interface on a libvirt network
        addresses += _plain(domain.interfaceAddresses(_LEASE, 0), found)
    if found.guest_agent:
        with suppress(libvirt.libvirtError):  # the guest agent hangs or has just stopped
            domain.agentSetResponseTimeout(AGENT_SECONDS, 0)
            addresses += _plain(domain.interfaceAddresses(_AGENT, 0), found)
    static = [one for one in found.labels.get(ADDRESSES_LABEL, "").split(",") if one]
    return tuple(dict.fromkeys(addresses or static))


def _plain(interfaces: dict[str, dict[str, Any]], found: DomainDescription) -> list[str]:
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


def run_of(view: DomainView, before: Run | None, *, now: datetime) -> Run | None:
    """The current or last run of the VM. None if it never ran."""
    if view.number >= 0:
        if before is None or before.finished_at is not None or before.number != view.number:
            return Run(view.number, now)
        return before
    if before is None or before.finished_at is not None:
        return before
    exit_code, ending = _shutoff_reason(view.reason)
    return replace(before, finished_at=now, exit_code=exit_code, ending=ending)


def artefact_of(view: DomainView, run: Run | None, *, now: datetime) -> Artefact:
    known = {name: word for name, word in status_metadata(view).items() if word}
    condition = _condition(view, run)
    runs = condition is Condition.RUNNING
    awaited = runs and run is not None and now - run.started_at < ADDRESS_AWAITED
    has_no_address = bool(view.description.mac_addresses) and not view.addresses
    return Artefact(
        id=view.uuid,
        name=view.description.name,
        condition=condition,
        revision=Revision(view.description.labels.get(REVISION_LABEL, "")),
        exit_code=run.exit_code if run is not None else 0,
        started_at=run.started_at if run is not None else None,
        finished_at=run.finished_at if run is not None else None,
        error=run.ending if run is not None else "",
        address=primary(view.addresses),
        boots=True,
        trouble=_pause_failure(view) if condition is Condition.PAUSED else None,
        facts=known,
        look_again_after=ADDRESS_POLL_AFTER if awaited and has_no_address else None,
    )


def _condition(view: DomainView, run: Run | None) -> Condition:
    libvirt = load()
    if view.number < 0:
        return Condition.EXITED if run is not None else Condition.CREATED
    if view.state == libvirt.VIR_DOMAIN_PMSUSPENDED:
        return Condition.PAUSED
    if view.state == libvirt.VIR_DOMAIN_PAUSED:
        coming_up = view.reason == libvirt.VIR_DOMAIN_PAUSED_STARTING_UP
        return Condition.RUNNING if coming_up else Condition.PAUSED
    return Condition.RUNNING


def _pause_failure(view: DomainView) -> Failure | None:
    libvirt = load()
    if view.state != libvirt.VIR_DOMAIN_PAUSED:
        return None
    if view.reason != libvirt.VIR_DOMAIN_PAUSED_IOERROR:
        return None
    for device in view.full_disks:
        path = view.description.sources.get(device, "")
        if not path or not _has_space(path):
            text = f"disk {device}: no space left on this node; the VM is paused"
            return Failure(FailureReason.STORAGE_ERROR, text, code="NoSpace")
    if view.full_disks and not view.broken_disks:
        return None
    devices = ", ".join(view.broken_disks) or "unknown"
    text = f"disk {devices}: I/O error; the VM is paused"
    return Failure(FailureReason.STORAGE_ERROR, text, code="DiskError")


def _has_space(path: str) -> bool:
    try:
        return disk_usage(path).free >= RESUME_FREE_BYTES
    except OSError:
        return False


def _shutoff_reason(reason: int) -> tuple[int, str]:
    libvirt = load()
    return {
        libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN: (0, "the guest shut down"),
        libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED: (SWITCHED_OFF, "the VM was powered off"),
        libvirt.VIR_DOMAIN_SHUTOFF_CRASHED: (CRASHED, "the guest crashed"),
        libvirt.VIR_DOMAIN_SHUTOFF_FAILED: (CRASHED, "QEMU exited"),
        libvirt.VIR_DOMAIN_SHUTOFF_SAVED: (0, "the VM was saved"),
    }.get(reason, (UNKNOWN_EXIT_CODE, "stopped while the agent was not running"))


class VmGuests:
    """Implements agent.ports.Guests."""

    def __init__(self, libvirt: Libvirt) -> None:
        self._libvirt = libvirt

    async def ping(self, vm_id: str, *, deadline: float) -> str:
        work = partial(_ping_guest, uuid=vm_id, seconds=max(1, ceil(deadline)))
        try:
            await self._libvirt.call(work, deadline=deadline + PING_MARGIN_SECONDS)
        except LibvirtError as err:
            return f"guest agent: {err.message}"
        return ""


def _ping_guest(connection: Any, uuid: str, seconds: int) -> None:
    """Any call that the guest agent answers; this one is supported by all of them."""
    domain = connection.lookupByUUIDString(uuid)
    domain.agentSetResponseTimeout(seconds, 0)
    domain.interfaceAddresses(_AGENT, 0)


class VmGarbage:
    """Implements agent.ports.GarbageSource."""

    def __init__(self, libvirt: Libvirt, owner: OwnerLabels) -> None:
        self._libvirt = libvirt
        self._owner = owner

    async def inventory(self) -> list[Item]:
        try:
            return await self._libvirt.call(self._list)
        except LibvirtError as err:
            raise power.unavailable(err) from err

    async def images(self, fetched: Mapping[str, Image]) -> list[ImageUse]:
        return []  # VM images are managed by the image store

    async def remove(self, item: Item) -> str:
        try:
            await self._libvirt.call(partial(_remove, uuid=item.id))
        except LibvirtError as err:
            return "" if is_code(err, "VIR_ERR_NO_DOMAIN") else err.message
        return ""

    def _list(self, connection: Any) -> list[Item]:
        libvirt = load()
        items = []
        for domain in connection.listAllDomains():
            try:
                found = parse_domain(domain.XMLDesc())
                running = bool(domain.isActive())
            except libvirt.libvirtError as err:
                if err.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                    continue  # removed in the meantime
                raise
            workload_id = WorkloadId(found.labels.get(WORKLOAD_LABEL, ""))
            if self._owner.owns(found.labels, workload_id):
                items.append(Item(Kind.VM, domain.UUIDString(), found.name, workload_id, running))
        return items


def _remove(connection: Any, uuid: str) -> None:
    power.power_off(connection, uuid)
    power.undefine(connection, uuid)
