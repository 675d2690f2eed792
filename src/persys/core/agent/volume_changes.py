"""Decides whether an existing volume can be changed to what a spec requests.

Existing data is never shrunk, converted or reused for another purpose. An impossible change is refused with
the field that requests it.
"""

from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from persys.model.ids import WorkloadId
from persys.model.spec import ManagedVolume
from persys.model.volume import Volume

DEFAULT_FS_TYPE = "ext4"
_ALONE = ("", "readwriteonce", "readonlyonce")
_SHARED = ("readwritemany", "readonlymany")


class Abilities(Struct, frozen=True):
    """The capabilities of a driver."""

    sizes: bool = False  # enforces sizes
    needs_size: bool = False
    shares: bool = False  # between workloads
    disks: bool = False  # provides disks of VMs


class Objection(NamedTuple):
    field: str
    problem: str


def object_to(
    wanted: ManagedVolume, known: Volume | None, can: Abilities, *, as_disk: bool
) -> Objection | None:
    """The first reason to refuse it; None: it is possible."""
    return _against_driver(wanted, can, as_disk=as_disk) or (
        _against_change(wanted, known, as_disk=as_disk)
        if known is not None
        else _against_new(wanted, can, as_disk=as_disk)
    )


def settled(
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


def _against_driver(wanted: ManagedVolume, can: Abilities, *, as_disk: bool) -> Objection | None:
    driver, mode = wanted.driver, wanted.access_mode
    if mode.casefold() not in _ALONE + _SHARED:
        return Objection(
            "access_mode", f"invalid access mode {mode!r}: expected ReadWriteOnce or ReadWriteMany"
        )
    if _is_shared(wanted) and not can.shares:
        return Objection(
            "access_mode", f"{mode!r}: driver {driver} does not share a volume between workloads"
        )
    if as_disk and not can.disks:
        return Objection("driver", f"driver {driver!r} does not provide disks for VMs")
    if wanted.size_gb and not can.sizes:
        return Objection(
            "size_gb", f"driver {driver} cannot enforce a size; omit it, or use another driver"
        )
    return None


def _against_new(wanted: ManagedVolume, can: Abilities, *, as_disk: bool) -> Objection | None:
    if not wanted.size_gb and (can.needs_size or as_disk):
        return Objection("size_gb", f"is missing; a disk of driver {wanted.driver} needs a size")
    if wanted.fs_type and not wanted.size_gb:
        return Objection("fs_type", "is only valid for a volume with size_gb")
    return None


def _against_change(wanted: ManagedVolume, known: Volume, *, as_disk: bool) -> Objection | None:
    if wanted.driver != known.driver:
        return Objection(
            "driver",
            f"{wanted.name} already exists with driver {known.driver}; use another name",
        )
    if as_disk != known.as_disk:
        what = "is a disk of a VM" if known.as_disk else "is not a disk of a VM"
        return Objection("name", f"{wanted.name} already exists and {what}; use another name")
    if _is_shared(wanted) != known.shared:
        what = "is shared" if known.shared else "is not shared"
        return Objection("access_mode", f"{wanted.name} already exists and {what}")
    if wanted.size_gb and not known.size_gb:
        return Objection(
            "size_gb",
            f"{wanted.name} already exists as a directory without a size limit, and keeps its data: "
            "use another name, or omit the size",
        )
    if 0 < wanted.size_gb < known.size_gb:
        return Objection(
            "size_gb",
            f"{wanted.size_gb} is less than the {known.size_gb} of {wanted.name}: "
            "a volume cannot shrink",
        )
    if known.fs_type and wanted.fs_type not in ("", known.fs_type):
        return Objection("fs_type", f"{wanted.name} already exists with {known.fs_type}")
    return None
