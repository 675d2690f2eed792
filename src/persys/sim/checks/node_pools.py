"""Machines of a node pool: their cost, their removal, and what is left of them after the faults.

After a loss of the store the cluster may have a new uid: machines with the tag of the earlier one belong to
no pool, and the records of machines and assignments may be missing.
"""

from collections.abc import Callable, Iterator, Mapping

from persys.core.nodes import closed_because
from persys.core.placement.requirements import holds_data, requirements_of
from persys.model.ids import NodeId
from persys.model.nodepool import TAG_CLUSTER_UID, Machine, MachineState
from persys.model.workload import Desired, Workload
from persys.providers.port import Instance
from persys.sim.checks.store_mirror import StoreMirror
from persys.store import keys


class PoolChecks:
    """A machine counts from the call that creates it until the provider has destroyed it."""

    def __init__(
        self,
        mirror: StoreMirror,
        *,
        hour_price: float,
        spend_per_hour_max: float,
        has_lost_records: Callable[[], bool],
        fail: Callable[[str, str], None],
    ) -> None:
        """`has_lost_records`: the store was lost, so records of machines and assignments may be missing."""
        self._mirror = mirror
        self._hour_price = hour_price
        self._spend_per_hour_max = spend_per_hour_max
        self._has_lost_records = has_lost_records
        self._fail = fail
        self._created: set[tuple[str, str]] = set()

    def created(self, instance: Instance, existing: Mapping[str, Instance]) -> None:
        """`existing`: all instances, also the new one."""
        uid = instance.tags[TAG_CLUSTER_UID]
        if (uid, instance.name) in self._created and not self._has_lost_records():
            self._fail("machines", f"{instance.name} was created twice")
        self._created.add((uid, instance.name))
        count = sum(one.tags[TAG_CLUSTER_UID] == uid for one in existing.values())
        if round(count * self._hour_price - self._spend_per_hour_max, 6) > 0:
            self._fail("spend", f"{count} machines cost more than {self._spend_per_hour_max:g}")

    def destroyed(self, name: str) -> None:
        """By the scheduler."""
        held = sorted(self._mirror.holds(NodeId(name)))
        if held and not self._has_lost_records():
            self._fail("machines", f"{name} was destroyed with {', '.join(held)}")


def unsettled_machines(
    mirror: StoreMirror,
    machines: Mapping[str, Machine],
    instances: Mapping[str, Instance],
    *,
    minimum: int,
    holds_volumes: Callable[[str], bool],
) -> Iterator[str]:
    """Machines that are lost, that are not nodes, or that nothing needs any more."""
    for name in sorted(machines.keys() - instances.keys()):
        yield f"machine {name} has a record and does not exist"
    for name in sorted(instances.keys() - machines.keys()):
        yield f"machine {name} exists without a record"
    for name, machine in sorted(machines.items()):
        node = mirror.nodes.get(keys.node_key(machine.node_id))
        if machine.state is not MachineState.READY:
            yield f"machine {name} is {machine.state}"
        elif node is None:
            yield f"machine {name} is not a node"
        elif why := closed_because(node):
            yield f"machine {name}: {why}"
        elif (
            len(machines) > minimum
            and not mirror.holds(machine.node_id)
            and not holds_volumes(name)
        ):
            yield f"machine {name} is idle"
    if len(machines) < minimum:
        yield f"{len(machines)} machines: the minimum is {minimum}"


def waits_for_machine(mirror: StoreMirror, machine_count: int, *, maximum: int) -> Iterator[str]:
    """Workloads that wait although the pool can grow, and a new machine has room for each of them."""
    if machine_count >= maximum:
        return
    for _, workload in sorted(mirror.workloads.items()):
        status = mirror.workload_status(workload.id)
        if status is None or status.code != "Unplaceable" or _is_bound(mirror, workload):
            continue
        if _lacks_resources(mirror, workload):
            yield f"{workload.id} waits, and the pool has {machine_count} of {maximum} machines"


def _is_bound(mirror: StoreMirror, workload: Workload) -> bool:
    """To the node with its data or with an orphan of it, or to its node until it is started."""
    if any(orphan == workload.id for _, orphan in mirror.orphans()):
        return True
    stays = holds_data(workload) or workload.desired is Desired.STOPPED
    return stays and mirror.assignment(workload.id) is not None


def _lacks_resources(mirror: StoreMirror, workload: Workload) -> bool:
    """Whether it waits for cpu, memory or disk of a node, and not for a port on each of them."""
    wanted = requirements_of(workload).host_ports
    nodes = [node for node in mirror.nodes.values() if not closed_because(node)]
    free = [
        node
        for node in nodes
        if not any(
            hold.host_ports & wanted
            for other, hold in mirror.holds(node.id).items()
            if other != workload.id
        )
    ]
    return bool(free) or not nodes
