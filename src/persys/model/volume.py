"""A managed volume on a node, also after its workload is deleted."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from persys.model.ids import WorkloadId


class Image(Struct, frozen=True):
    """`name` is a name in the image store of the node, or the URL of the image."""

    name: str
    sha256: str  # of the whole file
    format: str  # qcow2, raw
    size_bytes: int
    virtual_size_bytes: int  # the minimum size of a disk created from it
    added_at: datetime


GIB = 1 << 30
DISK = "disk"  # the driver for disks in a libvirt pool


class VolumeState(StrEnum):
    ATTACHED = "attached"  # its workload uses it
    RETAINED = "retained"  # its workload is deleted


class Volume(Struct, frozen=True):
    """Identified by its workload and its name; a later workload with that id uses it again."""

    workload_id: WorkloadId
    name: str
    driver: str
    created_at: datetime
    size_gb: int = 0  # 0: no limit within its pool
    fs_type: str = ""  # "": a directory
    retain: bool = False
    as_disk: bool = False  # attached to a VM as a disk, so it is not mounted here
    shared: bool = False  # with other workloads that use the same name
    attached: bool = False  # mounted, mapped, or registered for a mount


class VolumeSeen(Struct, frozen=True):
    """A volume as it is shown."""

    workload_id: str
    name: str
    driver: str
    pool: str
    state: VolumeState
    retain: bool
    path: str
    fs_type: str = ""
    size_bytes: int = 0
    used_bytes: int = 0  # 0: unknown
    created_at: datetime | None = None
