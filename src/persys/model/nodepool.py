"""Node pools: machines that a provider creates on demand, each of which joins the cluster as a node.

A machine record is stored before its create call and deleted after its destroy is confirmed. So the machines
of a pool that may exist, and cost money, are always those with a record.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType

from msgspec import Struct

from persys.model.ids import NodeId
from persys.model.placement import Resources

PoolId = NewType("PoolId", str)

TAG_CLUSTER = "persys-cluster"
TAG_CLUSTER_UID = "persys-cluster-uid"
TAG_POOL = "persys-pool"
TAG_MACHINE = "persys-machine"
TAG_SIZE = "persys-size"


class MachineSize(Struct, frozen=True):
    """A size that the provider offers. `resources` is what a node of this size registers, at least."""

    name: str
    resources: Resources
    hour_price: float = 0.0  # in any currency, the same for all sizes of a pool


class Software(Struct, frozen=True):
    """How a machine gets the agent. Without a URL, the image contains it."""

    url: str = ""  # of a wheel bundle or a deb
    sha256: str = ""


class Provisioning(Struct, frozen=True):
    """What the scheduler records about a pool between two decisions."""

    created_count: int = 0  # the number of the newest machine; numbers are not used again
    failure_count: int = 0  # consecutive failures since the last machine that became ready
    retry_at: datetime | None = None  # no machine is created before
    message: str = ""  # of the last failure


class NodePool(Struct, frozen=True):
    pool_id: PoolId
    provider: str  # ec2, libcloud, exec, libvirt
    sizes: tuple[MachineSize, ...]
    max_machines: int
    spend_per_hour_max: float
    region: str = ""
    image: str = ""
    min_machines: int = 0
    idle_after_seconds: int = 600
    provision_deadline_seconds: int = 900
    labels: dict[str, str] = {}
    taints: frozenset[str] = frozenset()  # key or key=value
    tier: int = 0
    software: Software = Software()
    options: dict[str, str] = {}  # of the provider
    credentials: str = ""  # the name of a secret; "": those of the scheduler process
    paused: bool = False
    deleting: bool = False
    created_at: datetime | None = None
    provisioning: Provisioning = Provisioning()

    @property
    def idle_after(self) -> timedelta:
        return timedelta(seconds=self.idle_after_seconds)

    @property
    def provision_deadline(self) -> timedelta:
        return timedelta(seconds=self.provision_deadline_seconds)

    def size(self, name: str) -> MachineSize | None:
        return next((one for one in self.sizes if one.name == name), None)


class MachineState(StrEnum):
    CREATING = "creating"  # the create call was not answered yet: the machine may exist
    BOOTING = "booting"  # the provider has it; its node is not ready yet
    READY = "ready"
    DRAINING = "draining"  # its workloads move to other nodes
    DESTROYING = "destroying"  # until the provider confirms that it does not exist


class Machine(Struct, frozen=True):
    """A machine that may exist. Its name is the id of its node and the name at the provider."""

    pool_id: PoolId
    number: int
    name: str
    size: str
    hour_price: float
    state: MachineState
    created_at: datetime
    state_since: datetime
    provider_id: str = ""  # empty until the provider returned it
    absent_count: int = 0  # consecutive lists of the provider without it
    reason: str = ""  # why it is drained or destroyed

    @property
    def node_id(self) -> NodeId:
        return NodeId(self.name)


def machine_name(cluster_id: str, pool_id: str, number: int) -> str:
    return f"{cluster_id}-{pool_id}-{number}"
