"""Lists all VMs that this agent created in libvirt, and removes single ones for garbage collection.

VMs are found by the labels of cluster and node, so VMs of others are never listed. Data is kept: only the
domain is undefined. Disks are not listed; they are removed on request only.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from persys.agent.journal.records import Image
from persys.agent.runtimes.docker.mapping import WORKLOAD_LABEL, Owner
from persys.agent.runtimes.vm import power
from persys.agent.runtimes.vm.domain_xml import described
from persys.agent.runtimes.vm.errors import is_code
from persys.agent.runtimes.vm.libvirt import Libvirt, LibvirtError
from persys.agent.runtimes.vm.libvirt_import import load
from persys.core.agent.garbage import ImageUse, Item, Kind
from persys.model.ids import WorkloadId


class MachineLeftovers:
    """Implements agent.ports.Leftovers."""

    def __init__(self, libvirt: Libvirt, owner: Owner) -> None:
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
                found = described(domain.XMLDesc())
                running = bool(domain.isActive())
            except libvirt.libvirtError as err:
                if err.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
                    continue  # removed in the meantime
                raise
            workload_id = WorkloadId(found.labels.get(WORKLOAD_LABEL, ""))
            if self._owner.owns(found.labels, workload_id):
                items.append(
                    Item(Kind.MACHINE, domain.UUIDString(), found.name, workload_id, running)
                )
        return items


def _remove(connection: Any, uuid: str) -> None:
    power.switch_off(connection, uuid)
    power.undefine(connection, uuid)
