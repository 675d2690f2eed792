"""The active storage pools of libvirt, with what they hold. Implements `PoolSource`."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from persys.agent.runtimes.libvirt_connection import Libvirt, LibvirtError
from persys.agent.runtimes.libvirt_module import load
from persys.core.pools import Room
from persys.errors import RuntimeUnavailableError
from persys.model.volume import GIB

# The contract's words; what has none keeps libvirt's.
_TYPES = {"dir": "local", "fs": "local", "logical": "local", "disk": "local", "netfs": "nfs"}
_ON_A_FILE_SYSTEM = ("dir", "fs")


class LibvirtPools:
    def __init__(self, libvirt: Libvirt, for_disks: str) -> None:
        """`for_disks`: the pool of disks that name none."""
        self._libvirt = libvirt
        self._for_disks = for_disks

    async def rooms(self) -> list[Room]:
        try:
            return await self._libvirt.call(self._read)
        except LibvirtError as err:
            raise RuntimeUnavailableError(f"libvirt tells no pools: {err.message}") from err

    def _read(self, connection: Any) -> list[Room]:
        active = load().VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE
        found = [self._room(pool) for pool in connection.listAllStoragePools(active)]
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
            for_disks=pool.name() == self._for_disks,
        )
