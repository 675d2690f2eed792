"""Storage pools of libvirt and their volumes. The functions run in a thread with a connection.

`LibvirtPools` reports the active pools with their capacity and implements `PoolSource`. The agent's own pool
is reported before it exists: the first disk in it creates it.
"""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from persys.agent.ports import BaseImage
from persys.agent.runtimes.vm.libvirt import Libvirt, LibvirtError, VmError, load
from persys.agent.runtimes.vm.state_dir import DiskRecord
from persys.core.agent.storage import LocalPool
from persys.errors import RuntimeUnavailableError
from persys.model.node import GIB
from persys.model.status import FailureReason

_TRAVERSABLE = 0o711  # QEMU runs as another user


# The type names of the API; other types keep libvirt's names.
_TYPES = {"dir": "local", "fs": "local", "logical": "local", "disk": "local", "netfs": "nfs"}
_ON_A_FILE_SYSTEM = ("dir", "fs")


@dataclass(frozen=True, slots=True)
class PoolVolume:
    """A volume as a disk source of a domain."""

    kind: str
    source: Mapping[str, str]
    capacity: int


@dataclass(frozen=True, slots=True)
class Measured:
    """0 if unknown."""

    path: str = ""
    capacity: int = 0
    used: int = 0


class AgentPool:
    """The pool for disks without a pool name: a directory, created when it is first needed."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory

    def ensure(self, connection: Any) -> None:
        """Define and start the pool. Another process may do either step at the same time."""
        libvirt = load()
        found = _lookup(connection, self.name)
        if found is None:
            with suppress(libvirt.libvirtError):
                self._define(connection)
            found = _lookup(connection, self.name)
        if found is None:
            found = self._define(connection)
        if not found.isActive():
            try:
                found.create()
            except libvirt.libvirtError:
                if not found.isActive():
                    raise

    def _define(self, connection: Any) -> Any:
        self.directory.mkdir(parents=True, exist_ok=True, mode=_TRAVERSABLE)
        pool = ET.Element("pool", type="dir")
        ET.SubElement(pool, "name").text = self.name
        target = ET.SubElement(pool, "target")
        ET.SubElement(target, "path").text = str(self.directory)
        made = connection.storagePoolDefineXML(ET.tostring(pool, encoding="unicode"))
        made.setAutostart(True)
        return made


def active_pool(connection: Any, name: str) -> Any:
    """The active pool. A pool with autostart is started. Raises VmError with the known pools."""
    pool = _lookup(connection, name)
    if pool is None:
        known = ", ".join(sorted(one.name() for one in connection.listAllStoragePools())) or "none"
        problem = f"invalid storage pool {name!r}: expected a pool of this node ({known})"
        raise VmError(FailureReason.STORAGE_ERROR, problem)
    if not pool.isActive():
        if not pool.autostart():
            problem = f"storage pool {name} is not active; start it with `virsh pool-start {name}`"
            raise VmError(FailureReason.STORAGE_ERROR, problem)
        pool.create()
    return pool


def find(connection: Any, *, pool: str, volume: str) -> PoolVolume | None:
    found = _volume(active_pool(connection, pool), volume)
    return _found(found, pool) if found is not None else None


def create(connection: Any, *, pool: str, xml: str) -> PoolVolume:
    return _found(active_pool(connection, pool).createXML(xml), pool)


def grow(connection: Any, *, pool: str, volume: str, size: int) -> None:
    found = _volume(active_pool(connection, pool), volume)
    if found is not None:
        found.resize(size)


def remove(connection: Any, *, pool: str, volume: str) -> None:
    """Delete a volume. Nothing to do if its pool does not exist; an inactive pool is an error."""
    if _lookup(connection, pool) is None:
        return
    found = _volume(active_pool(connection, pool), volume)
    if found is not None:
        found.delete()


def measure(connection: Any, disk: DiskRecord) -> Measured:
    pool = _lookup(connection, disk.pool)
    if pool is None or not pool.isActive():
        return Measured()
    volume = _volume(pool, disk.volume)
    if volume is None:
        return Measured()
    _, capacity, used = volume.info()
    return Measured(volume.path(), capacity, used)


def volume_xml(name: str, form: str, size: int, base: BaseImage | None) -> str:
    volume = ET.Element("volume")
    ET.SubElement(volume, "name").text = name
    ET.SubElement(volume, "capacity", unit="bytes").text = str(size)
    ET.SubElement(volume, "allocation").text = "0"
    target = ET.SubElement(volume, "target")
    ET.SubElement(target, "format", type=form)
    if base is not None:
        backing = ET.SubElement(volume, "backingStore")
        ET.SubElement(backing, "path").text = str(base.path)
        ET.SubElement(backing, "format", type=base.format)
    return ET.tostring(volume, encoding="unicode")


def _lookup(connection: Any, name: str) -> Any | None:
    libvirt = load()
    try:
        return connection.storagePoolLookupByName(name)
    except libvirt.libvirtError as err:
        if err.get_error_code() == libvirt.VIR_ERR_NO_STORAGE_POOL:
            return None
        raise


def _volume(pool: Any, name: str) -> Any | None:
    libvirt = load()
    try:
        return pool.storageVolLookupByName(name)
    except libvirt.libvirtError as err:
        if err.get_error_code() != libvirt.VIR_ERR_NO_STORAGE_VOL:
            raise
    if _is_absent_locally(pool, name):
        return None
    # libvirt's list may be outdated: another process may have created the volume.
    pool.refresh()
    return next((volume for volume in pool.listAllVolumes() if volume.name() == name), None)


def _is_absent_locally(pool: Any, name: str) -> bool:
    """Whether a local directory pool has no such file; then a refresh is not needed."""
    described = ET.fromstring(pool.XMLDesc())  # noqa: S314  # libvirt wrote it
    path = described.findtext("./target/path")
    if described.get("type") != "dir" or not path or urlsplit(pool.connect().getURI()).netloc:
        return False
    return Path(path).is_dir() and not Path(path, name).exists()


def _found(volume: Any, pool: str) -> PoolVolume:
    libvirt = load()
    type_, capacity, _ = volume.info()
    if type_ == libvirt.VIR_STORAGE_VOL_FILE:
        return PoolVolume("file", {"file": volume.path()}, capacity)
    if type_ == libvirt.VIR_STORAGE_VOL_BLOCK:
        return PoolVolume("block", {"dev": volume.path()}, capacity)
    return PoolVolume("volume", {"pool": pool, "volume": volume.name()}, capacity)


class LibvirtPools:
    def __init__(self, libvirt: Libvirt, own: AgentPool) -> None:
        """`own`: the pool for disks without a pool name."""
        self._libvirt = libvirt
        self._own = own

    async def local_pools(self) -> list[LocalPool]:
        try:
            return await self._libvirt.call(self._read)
        except LibvirtError as err:
            raise RuntimeUnavailableError(
                f"cannot list libvirt storage pools: {err.message}"
            ) from err

    def _read(self, connection: Any) -> list[LocalPool]:
        active = load().VIR_CONNECT_LIST_STORAGE_POOLS_ACTIVE
        found = [self._local_pool(pool) for pool in connection.listAllStoragePools(active)]
        if self._own.name not in {local_pool.name for local_pool in found}:
            found.append(_planned(self._own))
        return sorted(found, key=lambda local_pool: local_pool.name)

    def _local_pool(self, pool: Any) -> LocalPool:
        xml = ET.fromstring(pool.XMLDesc())  # noqa: S314 - written by libvirt itself
        kind = xml.get("type", "")
        _, capacity, _, _ = pool.info()
        target = Path(xml.findtext("target/path", ""))
        device = None
        if kind in _ON_A_FILE_SYSTEM and target.is_dir():
            device = target.stat().st_dev
        return LocalPool(
            pool.name(),
            _TYPES.get(kind, kind),
            capacity // GIB,
            device,
            for_disks=pool.name() == self._own.name,
        )


def _planned(own: AgentPool) -> LocalPool:
    """The pool before its creation: capacity of the file system that its directory will be on."""
    place = next(each for each in (own.directory, *own.directory.parents) if each.is_dir())
    total_gb = shutil.disk_usage(place).total // GIB
    return LocalPool(own.name, "local", total_gb, place.stat().st_dev, for_disks=True)
