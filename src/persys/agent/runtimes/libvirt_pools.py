"""The active storage pools of libvirt with their capacity. Implements `PoolSource`.

The agent's own pool is reported before it exists: the first disk in it creates it.
"""

import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from persys.agent.runtimes.libvirt_connection import Libvirt, LibvirtError
from persys.agent.runtimes.libvirt_module import load
from persys.agent.runtimes.machine_pool import OwnPool
from persys.core.agent.shared_pools import Room
from persys.errors import RuntimeUnavailableError
from persys.model.volume import GIB

# The type names of the API; other types keep libvirt's names.
_TYPES = {"dir": "local", "fs": "local", "logical": "local", "disk": "local", "netfs": "nfs"}
_ON_A_FILE_SYSTEM = ("dir", "fs")


class LibvirtPools:
    def __init__(self, libvirt: Libvirt, own: OwnPool) -> None:
        """`own`: the pool for disks without a pool name."""
        self._libvirt = libvirt
        self._own = own

    async def rooms(self) -> list[Room]:
        try:
            return await self._libvirt.call(self._read)
        except LibvirtError as err:
            raise RuntimeUnavailableError(
                f"cannot list libvirt storage pools: {err.message}"
            ) from err

    def _read(self, connection: Any) -> list[Room]:
        active = load().VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE
        found = [self._room(pool) for pool in connection.listAllStoragePools(active)]
        if self._own.name not in {room.name for room in found}:
            found.append(_planned(self._own))
        return sorted(found, key=lambda room: room.name)

    def _room(self, pool: Any) -> Room:
        xml = ET.fromstring(pool.XMLDesc())  # noqa: S314 - written by libvirt itself
        kind = xml.get("type", "")
        _, capacity, _, _ = pool.info()
        target = Path(xml.findtext("target/path", ""))
        device = None
        if kind in _ON_A_FILE_SYSTEM and target.is_dir():
            device = target.stat().st_dev
        return Room(
            pool.name(),
            _TYPES.get(kind, kind),
            capacity // GIB,
            device,
            for_disks=pool.name() == self._own.name,
        )


def _planned(own: OwnPool) -> Room:
    """The pool before its creation: capacity of the file system that its directory will be on."""
    place = next(each for each in (own.directory, *own.directory.parents) if each.is_dir())
    total_gb = shutil.disk_usage(place).total // GIB
    return Room(own.name, "local", total_gb, place.stat().st_dev, for_disks=True)
