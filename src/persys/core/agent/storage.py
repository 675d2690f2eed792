"""Storage of a node: shared pools, changes of volumes, and headers of disk files.

Pools on the same file system share its capacity: it is counted once, for the first pool.

Existing data of a volume is never shrunk, converted or reused for another purpose. An impossible change is
refused with the field that requests it.

A qcow2 file can name a backing file and an external data file, and QEMU opens them for the guest. The header
is parsed here before any tool gets the file, because tools that probe a format may open the referenced files.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from persys.model.ids import WorkloadId
from persys.model.node import StoragePool, Volume
from persys.model.spec import ManagedVolume


class LocalPool(Struct, frozen=True):
    """A pool of the machine. `device` is its file system; None: it is not shared."""

    name: str
    type: str
    total_gb: int
    device: int | None = None
    for_disks: bool = False


def as_pools(found: Sequence[LocalPool]) -> tuple[StoragePool, ...]:
    """Of two pools with the same name the first counts."""
    pools: dict[str, StoragePool] = {}
    owners: dict[int, str] = {}
    for pool in found:
        if pool.name in pools:
            continue
        owner = owners.setdefault(pool.device, pool.name) if pool.device is not None else pool.name
        shares = owner != pool.name
        pools[pool.name] = StoragePool(
            pool.name,
            pool.type,
            0 if shares else pool.total_gb,
            owner if shares else "",
            pool.for_disks,
        )
    return tuple(pools.values())


DEFAULT_FS_TYPE = "ext4"
_ALONE = ("", "readwriteonce", "readonlyonce")
_SHARED = ("readwritemany", "readonlymany")


class DriverCapabilities(Struct, frozen=True):
    """The capabilities of a driver."""

    sizes: bool = False  # enforces sizes
    needs_size: bool = False
    shares: bool = False  # between workloads
    disks: bool = False  # provides disks of VMs


class VolumeProblem(NamedTuple):
    field: str
    problem: str


def check_volume(
    wanted: ManagedVolume, known: Volume | None, can: DriverCapabilities, *, as_disk: bool
) -> VolumeProblem | None:
    """The first reason to refuse it; None: it is possible."""
    return _against_driver(wanted, can, as_disk=as_disk) or (
        _against_change(wanted, known, as_disk=as_disk)
        if known is not None
        else _against_new(wanted, can, as_disk=as_disk)
    )


def updated_volume(
    wanted: ManagedVolume,
    known: Volume | None,
    *,
    workload_id: WorkloadId,
    as_disk: bool,
    now: datetime,
) -> Volume:
    """The new record of the volume. Without a size in the spec the old one stays."""
    size_gb = wanted.size_gb or (known.size_gb if known is not None else 0)
    fs_type = known.fs_type if known is not None else (wanted.fs_type or DEFAULT_FS_TYPE)
    return Volume(
        workload_id,
        wanted.name,
        wanted.driver,
        known.created_at if known is not None else now,
        size_gb=size_gb,
        fs_type=fs_type if size_gb else "",
        retain=wanted.retain,
        as_disk=as_disk,
        shared=_is_shared(wanted),
        attached=True,
    )


def _is_shared(wanted: ManagedVolume) -> bool:
    return wanted.access_mode.casefold() in _SHARED


def _against_driver(
    wanted: ManagedVolume, can: DriverCapabilities, *, as_disk: bool
) -> VolumeProblem | None:
    driver, mode = wanted.driver, wanted.access_mode
    if mode.casefold() not in _ALONE + _SHARED:
        return VolumeProblem(
            "access_mode", f"invalid access mode {mode!r}: expected ReadWriteOnce or ReadWriteMany"
        )
    if _is_shared(wanted) and not can.shares:
        return VolumeProblem(
            "access_mode", f"{mode!r}: driver {driver} does not share a volume between workloads"
        )
    if as_disk and not can.disks:
        return VolumeProblem("driver", f"driver {driver!r} does not provide disks for VMs")
    if wanted.size_gb and not can.sizes:
        return VolumeProblem(
            "size_gb", f"driver {driver} cannot enforce a size; omit it, or use another driver"
        )
    return None


def _against_new(
    wanted: ManagedVolume, can: DriverCapabilities, *, as_disk: bool
) -> VolumeProblem | None:
    if not wanted.size_gb and (can.needs_size or as_disk):
        return VolumeProblem(
            "size_gb", f"is missing; a disk of driver {wanted.driver} needs a size"
        )
    if wanted.fs_type and not wanted.size_gb:
        return VolumeProblem("fs_type", "is only valid for a volume with size_gb")
    return None


def _against_change(wanted: ManagedVolume, known: Volume, *, as_disk: bool) -> VolumeProblem | None:
    if wanted.driver != known.driver:
        return VolumeProblem(
            "driver",
            f"{wanted.name} already exists with driver {known.driver}; use another name",
        )
    if as_disk != known.as_disk:
        what = "is a disk of a VM" if known.as_disk else "is not a disk of a VM"
        return VolumeProblem("name", f"{wanted.name} already exists and {what}; use another name")
    if _is_shared(wanted) != known.shared:
        what = "is shared" if known.shared else "is not shared"
        return VolumeProblem("access_mode", f"{wanted.name} already exists and {what}")
    if wanted.size_gb and not known.size_gb:
        return VolumeProblem(
            "size_gb",
            f"{wanted.name} already exists as a directory without a size limit, and keeps its data: "
            "use another name, or omit the size",
        )
    if 0 < wanted.size_gb < known.size_gb:
        return VolumeProblem(
            "size_gb",
            f"{wanted.size_gb} is less than the {known.size_gb} of {wanted.name}: "
            "a volume cannot shrink",
        )
    if known.fs_type and wanted.fs_type not in ("", known.fs_type):
        return VolumeProblem("fs_type", f"{wanted.name} already exists with {known.fs_type}")
    return None


HEAD_BYTES = 4096
CLUSTER_BYTES_MAX = 2 << 20  # of qcow2; a backing file is named in the first cluster
QCOW2 = "qcow2"
RAW = "raw"
_QCOW2_MAGIC = b"QFI\xfb"
_OTHERS = {
    b"KDMV": "vmdk",
    b"COWD": "vmdk",
    b"# Disk DescriptorFile": "vmdk",
    b"vhdxfile": "vhdx",
    b"conectix": "vpc",
    b"QED\0": "qed",
    b"WithoutFreeSpace": "parallels",
    b"WithouFreSpacExt": "parallels",
}
_VDI_MAGIC, _VDI_OFFSET = b"\x7f\x10\xda\xbe", 64
_NAME_LENGTH_MAX = 1023  # of a backing file, by the format's own rule
_EXTERNAL_DATA = 1 << 2  # an incompatible feature of version 3
_DATA_FILE_NAME = 0x44415441  # the extension of the header that names the file
_OLD_HEADER_BYTES = 72


@dataclass(frozen=True, slots=True)
class Backing:
    """Where in the file the name of the backing file is."""

    offset: int
    length: int


def format_of(head: bytes) -> str:
    """By the magic number; a file without one is raw."""
    if head.startswith(_QCOW2_MAGIC):
        return QCOW2
    if head[_VDI_OFFSET : _VDI_OFFSET + len(_VDI_MAGIC)] == _VDI_MAGIC:
        return "vdi"
    return next((name for magic, name in _OTHERS.items() if head.startswith(magic)), RAW)


def has_external_data(head: bytes) -> bool:
    """Whether a qcow2 file has its data in another file, or names such a file without the feature flag."""
    is_recent = _number(head, 4, 4) >= 3
    needs_it = is_recent and bool(_number(head, 72, 8) & _EXTERNAL_DATA)
    return needs_it or _DATA_FILE_NAME in _extensions(head, is_recent=is_recent)


def backing_of(head: bytes) -> Backing | None:
    """None: the qcow2 file has no backing file."""
    offset, length = _number(head, 8, 8), _number(head, 16, 4)
    return Backing(offset, min(length, _NAME_LENGTH_MAX)) if offset else None


def _extensions(head: bytes, *, is_recent: bool) -> Iterator[int]:
    """The types of the header extensions in the given bytes."""
    at = _number(head, 100, 4) if is_recent else _OLD_HEADER_BYTES
    while at + 8 <= len(head) and (kind := _number(head, at, 4)):
        yield kind
        length = _number(head, at + 4, 4)
        at += 8 + length + -length % 8


def _number(head: bytes, at: int, length: int) -> int:
    return int.from_bytes(head[at : at + length], "big")
