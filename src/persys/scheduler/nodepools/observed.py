"""What a decision about node pools reads from the cluster state."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice

from msgspec.structs import replace

from persys.core.nodepools.demand import Pending, PoolView, known_traits, share_out
from persys.core.nodepools.growth import Fleet, number_in
from persys.core.nodepools.steps import PoolNode, Waiting
from persys.core.placement.requirements import holds_data
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import NodeStatus
from persys.model.nodepool import TAG_MACHINE, Machine, NodePool, PoolId, machine_name
from persys.model.status import Status
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys

WAITING_MAX = 500  # the first of the queue; a pass creates few machines


class IdleTimes:
    """Since when the node of each machine has had no workloads. A new leader counts from its start."""

    def __init__(self) -> None:
        self._since: dict[NodeId, datetime] = {}

    def note(self, node_id: NodeId, *, idle: bool, now: datetime) -> datetime | None:
        if not idle:
            self._since.pop(node_id, None)
            return None
        return self._since.setdefault(node_id, now)

    def forget_others(self, node_ids: Iterable[NodeId]) -> None:
        for node_id in self._since.keys() - set(node_ids):
            del self._since[node_id]


class Observed:
    """Reads the cluster state for decisions about node pools."""

    def __init__(self, cluster: ClusterState, *, offload_after: timedelta) -> None:
        self._cluster = cluster
        self._offload_after = offload_after
        self.idle = IdleTimes()

    def machines(self, pool_id: PoolId) -> list[Machine]:
        return [one for one in self._cluster.machines.values() if one.pool_id == pool_id]

    def numbered(self, pool: NodePool, cluster_id: str) -> NodePool:
        """The pool with a count of at least the highest number of a registered node.

        A pool that was created again after its records were lost does not use the ids of these nodes.
        """
        prefix = machine_name(cluster_id, pool.pool_id, 0)[:-1]
        nodes = (name for name in self._cluster.nodes if name.startswith(prefix))
        highest = max((number_in(name.removeprefix(prefix)) for name in nodes), default=0)
        if highest <= pool.provisioning.created_count:
            return pool
        return replace(pool, provisioning=replace(pool.provisioning, created_count=highest))

    def unreadable(self, pool: NodePool, cluster_id: str) -> str:
        """Why nothing can be decided: the record of the pool or of one of its machines is unreadable."""
        prefix = f"{keys.MACHINES}{cluster_id}-{pool.pool_id}-"
        for record in self._cluster.quarantined:
            number = record.key.removeprefix(prefix)
            if record.key == keys.node_pool_key(pool.pool_id) or (
                record.key.startswith(prefix) and number.isdecimal()
            ):
                return str(record)
        return ""

    def nodes(
        self, names: Iterable[str], now: datetime, *, note_idle: bool = True
    ) -> dict[NodeId, PoolNode]:
        """The nodes of machines or instances with these names. `note_idle`: not for a plan."""
        found = {}
        for name in names:
            node = self._node(NodeId(name), now, note_idle=note_idle)
            if node is not None:
                found[NodeId(name)] = node
        return found

    def _node(self, node_id: NodeId, now: datetime, *, note_idle: bool) -> PoolNode | None:
        member = self._cluster.nodes.get(node_id)
        if member is None:
            return None
        bound = self._cluster.bound_to(node_id)
        copies = len(self._cluster.tombstones.get(node_id, {}))
        strays = len(self._cluster.unassigned_copies.on(node_id))
        count = len(bound) + copies + strays
        slot = self._cluster.node_index.slots[node_id]
        ready = member.node.status is not NodeStatus.NOT_READY
        idle_since = (
            self.idle.note(node_id, idle=count == 0, now=now) if note_idle and ready else None
        )
        return PoolNode(
            ready,
            member.node.status_at or member.node.registered_at,
            count,
            strays + sum(self._may_have_data(workload_id) for workload_id in bound),
            idle_since,
            slot.free,
            closed=bool(slot.closed),
        )

    def _may_have_data(self, workload_id: WorkloadId) -> bool:
        """A workload whose own record is unreadable may have data too."""
        entry = self._cluster.workloads.get(workload_id)
        return entry is None or holds_data(entry.workload)

    def queue(self, now: datetime) -> list[Pending]:
        """The workloads that wait for capacity on any node, the highest priority first."""
        waiting = self._cluster.waiting
        found = []
        for workload_id in islice(waiting, WAITING_MAX):
            entry = self._cluster.workloads.get(workload_id)
            wait = waiting.pending_entry(workload_id)
            if entry is None or not wait.anywhere:
                continue  # it waits for its own node, for example for its volume
            if TAG_MACHINE in entry.workload.metadata:
                continue  # it is a machine of a pool itself
            status = entry.workload_status
            pending = status is not None and status.status is Status.PENDING
            since = status.changed_at if status is not None and pending else now
            found.append(Pending(workload_id, wait.needs, since + self._offload_after))
        found.sort(key=lambda one: -one.needs.rules.priority)
        return found

    def shared_out(self, now: datetime) -> dict[PoolId, list[Waiting]]:
        """The waiting workloads of each pool."""
        queue = self.queue(now)
        if not queue:
            return {}
        by_pool: dict[str, list[Machine]] = {}
        for machine in self._cluster.machines.values():
            by_pool.setdefault(machine.pool_id, []).append(machine)
        views = [
            self.view(pool, by_pool.get(pool.pool_id, []), now)
            for pool in self._cluster.node_pools.values()
        ]
        return share_out(queue, views, self._cluster.node_index, now)

    def view(self, pool: NodePool, machines: list[Machine], now: datetime) -> PoolView:
        nodes = self.nodes((machine.name for machine in machines), now, note_idle=False)
        slots = self._cluster.node_index.slots
        return PoolView(
            pool,
            Fleet(machines),
            nodes,
            known_traits(slots[node_id] for node_id, node in nodes.items() if node.ready),
        )
