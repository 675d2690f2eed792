"""Placement of a workload: amounts of resources, its rules, and the stored result with its tombstones.

Structs with `gc=False` have no reference cycles, and there are very many: the collector skips them.
"""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from persys.model.ids import NodeId, WorkloadId


class Resources(Struct, frozen=True, gc=False):
    cpu_millicores: int = 0
    memory_mb: int = 0
    disk_gb: int = 0

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(
            self.cpu_millicores + other.cpu_millicores,
            self.memory_mb + other.memory_mb,
            self.disk_gb + other.disk_gb,
        )

    def __sub__(self, other: "Resources") -> "Resources":
        return Resources(
            self.cpu_millicores - other.cpu_millicores,
            self.memory_mb - other.memory_mb,
            self.disk_gb - other.disk_gb,
        )

    def fits_in(self, room: "Resources") -> bool:
        return (
            self.cpu_millicores <= room.cpu_millicores
            and self.memory_mb <= room.memory_mb
            and self.disk_gb <= room.disk_gb
        )


# Pool name and GB. Any further disk space is taken from the node's first pool.
Draws = tuple[tuple[str, int], ...]

DISKS = ""  # in place of a name: the node's default pool for disks


PRIORITY_DEFAULT = 50
PRIORITY_MAX = 100


class Operator(StrEnum):
    EQUALS = "="
    DIFFERS = "!="
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABOVE = ">"
    BELOW = "<"
    MATCHES = "~"
    VERSION = "version"


class Constraint(Struct, frozen=True, omit_defaults=True, gc=False):
    """A condition on one label of a node, or on one of its facts, whose keys begin with `node.`.

    `values` has one element, except for `in` and `notin` (one or more), `exists` (none) and `version` (one or
    more comparisons such as `>=5.10`, all of which must hold).
    """

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class Strategy(StrEnum):
    SPREAD = "spread"
    BINPACK = "binpack"


# A federated cluster divides `stop_after` into three parts, and refuses parts below its node lease.
OFFLOADED_STOP_AFTER_SECONDS_MIN = 90


class Offload(StrEnum):
    """Whether a workload may run on nodes of higher tiers, such as federated clusters."""

    NEVER = "never"
    WHEN_FULL = "when-full"  # after it has waited for capacity in tier 0
    PREFER = "prefer"


class Rules(Struct, frozen=True, omit_defaults=True, gc=False):
    constraints: tuple[Constraint, ...] = ()
    tolerations: tuple[str, ...] = ()  # key, key=value, or * for all taints
    group: str = ""
    apart: bool = False  # required anti-affinity; otherwise it is only preferred
    spread_over: tuple[str, ...] = ()  # labels, the most important first
    strategy: Strategy | None = None  # None: the default of the cluster
    priority: int = PRIORITY_DEFAULT
    offload: Offload = Offload.NEVER
    offload_data: bool = False  # also if it has data
    return_when_free: bool = False  # to tier 0, once it has capacity


NO_RULES = Rules()


class HostPort(Struct, frozen=True, order=True, gc=False):
    """An exclusive resource of a node: a host port, or the name of a Compose project."""

    port: int
    protocol: str = "tcp"
    project: str = ""  # then `port` is 0

    @classmethod
    def of_project(cls, name: str) -> "HostPort":
        return cls(0, "", name)

    def __str__(self) -> str:
        if self.project:
            return f"Compose project {self.project}"
        return f"host port {self.port}/{self.protocol}"


class Assignment(Struct, frozen=True, gc=False):
    workload_id: WorkloadId
    node_id: NodeId
    epoch: int
    assigned_at: datetime
    reserved: Resources = Resources()
    host_ports: frozenset[HostPort] = frozenset()
    why: str = ""
    rules: Rules = Rules()  # at the time of placement
    pools: Draws = ()  # the part of the reservation in named pools


class Tombstone(Struct, frozen=True):
    """A stale copy that must be removed: the workload was deleted or moved.

    Its reservation stays until the node confirms the removal.
    """

    assignment: Assignment
    deleted_at: datetime
    keeps_data: bool = False  # the workload was moved, not deleted: its data stays here
    stops_at: datetime | None = None  # by then its agent has stopped it because of `stop_after`
    after_running: bool = False  # the copy stays until the workload runs on its new node


class EpochCounter(Struct, frozen=True):
    """The epoch counter of the cluster: no epoch above it has been used."""

    reserved_until: int
    proof_key: str = ""  # hexadecimal; the key for proofs of assignment
    proofs_lost: bool = False  # nodes may have copies whose proofs were made with a lost key
