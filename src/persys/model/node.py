"""Nodes: machines with an agent. Capabilities, status, leases and usage, and their volumes and images."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Resources
from persys.model.spec import WorkloadType


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


class VolumeView(Struct, frozen=True):
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


class NodeStatus(StrEnum):
    READY = "Ready"
    NOT_READY = "NotReady"
    DRAINING = "Draining"


class StoragePool(Struct, frozen=True):
    name: str
    type: str = "local"
    total_gb: int = 0
    shares_with: str = ""  # another pool, which counts the capacity of both; total_gb is 0 then
    for_disks: bool = False  # the default pool for disks of VMs


class Capabilities(Struct, frozen=True):
    cpu_millicores: int
    memory_mb: int
    pools: tuple[StoragePool, ...] = ()
    types: frozenset[WorkloadType] = frozenset()
    storage_drivers: frozenset[str] = frozenset()
    reserved: Resources = Resources()
    features: frozenset[str] = frozenset()
    tier: int = 0  # 0: a node of this cluster; above: a federated cluster or a cloud
    core_hour_price: float = 0.0  # per core and hour, in any currency
    largest: Resources = Resources()  # the most on one machine behind the node; 0: no such limit
    remote: str = ""  # "<cluster id> <address>" of the remote cluster; empty: a machine
    wireguard_key: str = ""  # public; "": encrypted networks are not possible
    routes: tuple[str, ...] = ()  # the IPv4 routes of the host

    @property
    def total(self) -> Resources:
        disk_gb = sum(pool.total_gb for pool in self.pools)
        return Resources(self.cpu_millicores, self.memory_mb, disk_gb)

    @property
    def allocatable(self) -> Resources:
        return self.total - self.reserved


class Drain(Struct, frozen=True):
    started_at: datetime
    deadline_at: datetime | None = None


class Node(Struct, frozen=True):
    id: NodeId
    capabilities: Capabilities
    endpoint: str
    registered_at: datetime
    status: NodeStatus = NodeStatus.READY
    status_reason: str = ""
    status_by: str = "scheduler"
    status_at: datetime | None = None
    labels: dict[str, str] = {}
    agent_version: str = ""
    cluster_id: str = ""
    cordoned: bool = False
    drain: Drain | None = None
    confirmed_dead: bool = False
    taints: frozenset[str] = frozenset()  # key or key=value
    removing_since: datetime | None = None  # it is being removed with all of its records
    instance_id: str = ""  # of the agent process that may act as the node; "": it has none
    instance_before: str = ""  # of that process when it registered
    session_id: str = ""  # identifies that process
    bound_host: str = ""  # the only host from which a shared certificate may act as the node
    has_own_certificate: bool = False  # the certificate of its agent names the node
    known_by_host: bool = False  # that certificate is not from persys-ca: it names only the host


class Lease(Struct, frozen=True):
    node_id: NodeId
    granted_at: datetime
    length: timedelta


class RemovedNode(Struct, frozen=True):
    node_id: NodeId
    removed_at: datetime


class NodeUsage(Struct, frozen=True):
    cpu_allocated_millicores: int = 0
    cpu_used_millicores: int = 0
    memory_allocated_mb: int = 0
    memory_used_mb: int = 0
    disk_allocated_gb: int = 0
    disk_used_gb: int = 0


class WorkloadUsage(Struct, frozen=True):
    workload_id: WorkloadId
    type: WorkloadType
    collected_at: datetime
    cpu_percent: float = 0.0
    memory_bytes: int = 0
    disk_read_bytes: int = 0
    disk_write_bytes: int = 0
    net_rx_bytes: int = 0
    net_tx_bytes: int = 0
    source: str = ""
