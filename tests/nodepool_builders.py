"""Builders of node pools for tests."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from persys.core.nodepools.decision import decide
from persys.core.nodepools.steps import PoolInstance, PoolNode, Step, Waiting
from persys.model.ids import NodeId, WorkloadId
from persys.model.nodepool import Machine, MachineSize, MachineState, NodePool, PoolId
from persys.model.placement import Resources

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SMALL = MachineSize("small", Resources(2000, 4000, 40), 0.1)
LARGE = MachineSize("large", Resources(8000, 16000, 80), 0.35)


def a_pool(**changes: object) -> NodePool:
    pool = NodePool(
        PoolId("burst"), "exec", sizes=(SMALL, LARGE), max_machines=5, spend_per_hour_max=1.0
    )
    return replace(pool, **changes)


def a_waiting(name: str = "a", cpu: int = 1000, *, seconds: int = 60, memory: int = 512) -> Waiting:
    """A workload that could make a pool grow since this many seconds."""
    need = Resources(cpu, memory, 0)
    sizes = frozenset(size.name for size in (SMALL, LARGE) if need.fits_in(size.resources))
    return Waiting(WorkloadId(name), need, NOW - timedelta(seconds=seconds), sizes)


def a_machine(
    number: int = 1,
    state: MachineState = MachineState.READY,
    *,
    size: MachineSize = SMALL,
    age: int = 3600,
    **changes: object,
) -> Machine:
    at = NOW - timedelta(seconds=age)
    machine = Machine(
        PoolId("burst"),
        number,
        f"home-burst-{number}",
        size.name,
        size.hour_price,
        state,
        created_at=at,
        state_since=at,
        provider_id="" if state is MachineState.CREATING else f"i-{number}",
    )
    return replace(machine, **changes)


def a_node(*, workloads: int = 0, data: int = 0, idle: int = 0, ready: bool = True) -> PoolNode:
    """A node that has been idle for so many seconds."""
    at = NOW - timedelta(seconds=idle)
    return PoolNode(
        ready, at, workloads, data, idle_since=None if workloads else at, free=Resources()
    )


def an_instance(number: int = 1, *, age: int = 3600, stopped: bool = False) -> PoolInstance:
    at = NOW - timedelta(seconds=age)
    return PoolInstance(f"i-{number}", f"home-burst-{number}", "small", at, stopped)


def steps_of(
    pool: NodePool | None = None,
    *,
    waiting: tuple[Waiting, ...] = (),
    machines: tuple[Machine, ...] = (),
    nodes: dict[str, PoolNode] | None = None,
    instances: tuple[PoolInstance, ...] | None = (),
) -> list[Step]:
    return decide(
        pool or a_pool(),
        waiting,
        machines,
        {NodeId(name): node for name, node in (nodes or {}).items()},
        instances,
        NOW,
        cluster_id="home",
    )
