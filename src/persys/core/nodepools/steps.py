"""What a decision about a node pool reads and returns."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from persys.model.ids import WorkloadId
from persys.model.nodepool import Machine, PoolId
from persys.model.placement import Resources

NOTHING = Resources()


@dataclass(frozen=True, slots=True)
class PoolNode:
    """The node of a machine."""

    ready: bool
    since: datetime  # of this status
    workload_count: int = 0  # with old copies that are not removed yet
    data_count: int = 0  # of those, how many have data
    idle_since: datetime | None = None  # None: it has workloads
    free: Resources = NOTHING
    closed: bool = False  # it accepts no new workloads


@dataclass(frozen=True, slots=True)
class PoolInstance:
    """An instance of the provider with the tags of the pool."""

    provider_id: str
    name: str  # of the machine
    size: str  # "": unknown
    seen_at: datetime  # created, or first listed
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class Waiting:
    """A workload that waits, and that a new machine of the pool would take."""

    workload_id: WorkloadId
    resources: Resources
    grows_at: datetime  # it has waited long enough from then on
    sizes: frozenset[str]  # that would take it


class Rule(StrEnum):
    """The rule that decided. It is in the event, the log and `nodepool get`."""

    DEMAND = "demand"
    MINIMUM = "minimum"
    CREATE_UNANSWERED = "create-unanswered"
    CREATED = "created"
    BOOTING = "booting"
    READY = "ready"
    DEADLINE = "deadline"
    STOPPED = "stopped"
    ABSENT_ONCE = "absent-once"
    ABSENT = "absent"
    IDLE = "idle"
    IN_USE = "in-use"
    NOT_READY = "not-ready"
    LOST = "lost"
    NODE_REMOVED = "node-removed"
    HAS_WORKLOADS = "has-workloads"
    HAS_DATA = "has-data"
    DRAINED = "drained"
    DESTROYING = "destroying"
    DELETED = "pool-deleted"
    UNTRACKED = "untracked"
    ADOPTED = "adopted"
    NO_ANSWER = "no-answer"
    PAUSED = "paused"
    BACK_OFF = "back-off"
    UNDER_WAY = "under-way"
    MAXIMUM = "maximum"
    SPEND = "spend"


@dataclass(frozen=True, slots=True)
class Create:
    """Store the machine, then create it."""

    machine: Machine
    rule: Rule
    why: str
    workload_id: WorkloadId | None = None  # for which it is created first


@dataclass(frozen=True, slots=True)
class Drain:
    """Cordon and drain the node, and store the machine as draining."""

    machine: Machine
    rule: Rule
    why: str


@dataclass(frozen=True, slots=True)
class Destroy:
    """Store the machine as destroying, then destroy the instance. `machine` is None for an untracked one."""

    machine: Machine | None
    provider_id: str  # "": the provider has not returned it
    name: str
    rule: Rule
    why: str
    failed: bool = False  # it did not become a node: the next create is delayed


@dataclass(frozen=True, slots=True)
class Remove:
    """The machine does not exist: drop its record and its node."""

    machine: Machine
    rule: Rule
    why: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """Nothing to do for the machine, except to store the record if it has changed."""

    machine: Machine
    rule: Rule
    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Workloads wait, and the pool creates no machine for them now."""

    rule: Rule
    why: str


@dataclass(frozen=True, slots=True)
class DropPool:
    """The pool is being deleted, and none of its machines exists."""

    pool_id: PoolId


MachineStep = Drain | Destroy | Remove | Keep
Step = Create | MachineStep | Hold | DropPool
