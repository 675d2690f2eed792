"""A managed volume as the node that has it knows it, also after its workload is gone."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from persys.model.ids import WorkloadId

GIB = 1 << 30
DISK = "disk"  # the driver of what a pool of libvirt holds


class VolumeState(StrEnum):
    ATTACHED = "attached"  # its workload has it
    RETAINED = "retained"  # its workload is gone


class Volume(Struct, frozen=True):
    """Named by its workload and its own name; a later workload of that id finds it again."""

    workload_id: WorkloadId
    name: str
    driver: str
    created_at: datetime
    size_gb: int = 0  # 0: as much as its pool has
    fs_type: str = ""  # "": a directory
    retain: bool = False
    as_disk: bool = False  # a machine has it as a disk, so it is not mounted here
    shared: bool = False  # with other workloads that name it alike
    attached: bool = False  # mounted, mapped, or counted among those that need a mount


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
    used_bytes: int = 0  # 0: not known
    created_at: datetime | None = None
