"""Whether a volume can become what a spec says, given what there is of it already.

Data decides: what is there is never made smaller, never copied from one form into another and never taken for
something else. What cannot be so is objected to by the field that asks for it.
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
    """What a driver can do at all."""

    sizes: bool = False  # enforces them
    needs_size: bool = False
    shares: bool = False  # among workloads
    disks: bool = False  # gives a machine one


class Objection(NamedTuple):
    field: str
    problem: str


def object_to(
    wanted: ManagedVolume, known: Volume | None, can: Abilities, *, as_disk: bool
) -> Objection | None:
    """The first reason against it; None when there is none."""
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
    """What the volume is to be. A size that is not said any more stays."""
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
            "access_mode", f"{mode!r} is unknown; expected ReadWriteOnce or ReadWriteMany"
        )
    if _is_shared(wanted) and not can.shares:
        return Objection("access_mode", f"{mode!r}: the driver {driver} is for one workload only")
    if as_disk and not can.disks:
        return Objection("driver", f"{driver!r} gives no disk, and a machine needs one")
    if wanted.size_gb and not can.sizes:
        return Objection(
            "size_gb", f"the driver {driver} cannot enforce a size; leave it out, or use another"
        )
    return None


def _against_new(wanted: ManagedVolume, can: Abilities, *, as_disk: bool) -> Objection | None:
    if not wanted.size_gb and (can.needs_size or as_disk):
        return Objection("size_gb", f"is missing; a disk of the driver {wanted.driver} needs one")
    if wanted.fs_type and not wanted.size_gb:
        return Objection("fs_type", "is only for a volume with size_gb")
    return None


def _against_change(wanted: ManagedVolume, known: Volume, *, as_disk: bool) -> Objection | None:
    if wanted.driver != known.driver:
        return Objection(
            "driver",
            f"{wanted.name} exists already with the driver {known.driver}; use another name",
        )
    if as_disk != known.as_disk:
        what = "a disk of a machine" if known.as_disk else "no disk of a machine"
        return Objection("name", f"{wanted.name} exists already, and is {what}; use another name")
    if _is_shared(wanted) != known.shared:
        what = "is shared" if known.shared else "is not shared"
        return Objection("access_mode", f"{wanted.name} exists already, and {what}")
    if wanted.size_gb and not known.size_gb:
        return Objection(
            "size_gb",
            f"{wanted.name} exists already as a directory without a limit, and keeps its data: "
            "use another name, or leave the size out",
        )
    if 0 < wanted.size_gb < known.size_gb:
        return Objection(
            "size_gb", f"is {wanted.size_gb}; {wanted.name} has {known.size_gb} and never shrinks"
        )
    if known.fs_type and wanted.fs_type not in ("", known.fs_type):
        return Objection("fs_type", f"{wanted.name} exists already with {known.fs_type}")
    return None
