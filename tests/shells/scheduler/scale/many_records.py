"""Records of a large cluster: `size` of every type, written to a store before a scheduler starts on it.

The shapes are the worst ones: all tombstones and orphans are on one node, all workloads on another.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from builders import a_workload
from persys.infra.encryption import EncryptionKey
from persys.model import feature
from persys.model.action import History
from persys.model.cluster import ClusterMarker
from persys.model.event import Event, EventKind
from persys.model.identity import Role, Token
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.job import Job, JobId, Run, RunId, RunState, Schedule
from persys.model.node import Capabilities, Lease, Node, NodeStatus, RemovedNode
from persys.model.nodepool import Machine, MachineSize, MachineState, NodePool, PoolId
from persys.model.placement import Assignment, EpochCounter, Resources, Tombstone
from persys.model.secret import Secret, SecretVersion
from persys.model.service import Selector, Service, ServiceId, ServicePort
from persys.model.sets import SetId, SetRevision, Template, WorkloadSet
from persys.model.spec import ContainerSpec, RestartPolicy, VolumeMount, WorkloadType
from persys.model.status import Actual, Drift, DriftType, Retry, Status, WorkloadStatus
from persys.model.workload import SuggestedAction, Suggestion, SuggestionDecision
from persys.scheduler.nodepools.pools import POOLS_MAX
from persys.scheduler.services.services import SERVICES_MAX
from persys.store import keys
from persys.store.port import Store, Unit
from persys.wire.stored import records

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
FAR_AHEAD = datetime(2100, 1, 1, tzinfo=UTC)
REVISION = Revision("r1")
SMALL = Resources(1, 1)
FULL, SPARE = NodeId("full"), NodeId("spare")  # ready: one with all workloads, one with none
LOST, DEAD = NodeId("lost"), NodeId("dead")  # not ready: one with old copies, one with data
HOLDER = NodeId("holder")  # ready, with orphans
ORPHAN = WorkloadId("stray")  # on HOLDER, which stores its spec
MARKER: dict[str, Struct] = {keys.CLUSTER: ClusterMarker("u1", LONG_AGO, proof_key="00" * 32)}
_BATCH = 2000
_ANY = WorkloadId("any")

Records = dict[str, Struct]


async def fill(store: Store, found: Records) -> None:
    units = (Unit(puts={key: records.encode(record)}) for key, record in found.items())
    while together := list(islice(units, _BATCH)):
        await store.commit(together)


async def damage(store: Store, size: int) -> None:
    """Add unreadable records."""
    unreadable = [Unit(puts={keys.secret_key(f"broken{number}"): b"{"}) for number in range(size)]
    await store.commit(unreadable)


async def stored(store: Store, prefix: str) -> list[str]:
    return [one.key for one in (await store.read(prefix)).records]


def many_records(size: int, key: EncryptionKey) -> Records:
    """`size` records of every type; the secrets are encrypted with `key`."""
    nodes = [ready(name) for name in (FULL, SPARE, HOLDER)] + [lost(LOST), lost(DEAD)]
    return {
        **MARKER,
        keys.EPOCHS: EpochCounter(1_000_000, proof_key="00" * 32),
        **{keys.node_key(node.id): node for node in nodes},
        **lost_nodes(size),
        **running(FULL, size, "run"),
        **with_data(DEAD, size, "data"),
        **retries(size, "data"),
        **tombstones(LOST, size),
        **orphans(DEAD, size, "o"),
        **orphans(HOLDER, size, "p"),
        **orphans(HOLDER, 1, ORPHAN),
        **removals(size),
        **tokens(size),
        **secrets(size, key),
        **decided_suggestions(size),
        **node_pools(min(size, POOLS_MAX - 1), size),
        **sets(size),
        **jobs(size),
        **services(min(size, SERVICES_MAX - 1)),
        **events(size),
    }


def ready(name: str) -> Node:
    has = Capabilities(
        10_000_000,
        10_000_000,
        types=frozenset({WorkloadType.CONTAINER, WorkloadType.VM}),
        features=frozenset({feature.PUSHES_STATUS}),
    )
    return Node(NodeId(name), has, f"{name}:1", LONG_AGO)


def lost(name: str) -> Node:
    status = NodeStatus.NOT_READY
    return Node(NodeId(name), Capabilities(4000, 8000), f"{name}:1", LONG_AGO, status=status)


def lost_nodes(size: int, make: Callable[[str], Node] = lost) -> Records:
    found: Records = {}
    for number in range(size):
        node = make(f"m{number}")
        found[keys.node_key(node.id)] = node
        found[keys.node_lease_key(node.id)] = Lease(node.id, LONG_AGO, timedelta(seconds=30))
    return found


def running(node_id: NodeId, size: int, prefix: str) -> Records:
    """Workloads that have converged."""
    status = WorkloadStatus(_ANY, Status.RUNNING, LONG_AGO)
    return _bound(node_id, size, prefix, ContainerSpec("nginx"), status)


def with_data(node_id: NodeId, size: int, prefix: str) -> Records:
    """Workloads with data on a lost node, which do not move automatically.

    Their status is the one that a scheduler would write when it starts.
    """
    spec = ContainerSpec("nginx", volumes=(VolumeMount("/srv/data", "/data"),))
    message = f"node {node_id} is not sending heartbeats"
    status = WorkloadStatus(_ANY, Status.UNKNOWN, LONG_AGO, code="NodeNotReady", message=message)
    return _bound(node_id, size, prefix, spec, status)


def _bound(
    node_id: NodeId, size: int, prefix: str, spec: ContainerSpec, status: WorkloadStatus
) -> Records:
    found: Records = {}
    for number in range(size):
        workload = a_workload(f"{prefix}{number}", spec=spec, resources=SMALL, revision=REVISION)
        name = workload.id
        bound = Assignment(name, node_id, number + 1, LONG_AGO, reserved=SMALL)
        found[keys.workload_key(name)] = workload
        found[keys.assignment_key(name)] = bound
        found[keys.status_key(name)] = replace(
            status, workload_id=name, revision=REVISION, epoch=number + 1
        )
    return found


def retries(size: int, prefix: str) -> Records:
    found: Records = {}
    for name in _names(prefix, size):
        found[keys.retry_key(name)] = Retry(name, REVISION, 1, FAR_AHEAD)
        found[keys.history_key(name)] = History(name)
    return found


def tombstones(node_id: NodeId, size: int) -> Records:
    return {
        keys.tombstone_key(node_id, name): Tombstone(
            Assignment(name, node_id, 1, LONG_AGO), LONG_AGO
        )
        for name in _names("t", size)
    }


def orphans(node_id: NodeId, size: int, prefix: str) -> Records:
    names = _names(prefix, size) if prefix != ORPHAN else [ORPHAN]
    return {
        keys.drift_key(node_id, name, DriftType.ORPHAN): Drift(
            node_id, name, DriftType.ORPHAN, LONG_AGO, revision=REVISION, actual=Actual.RUNNING
        )
        for name in names
    }


def removals(size: int) -> Records:
    names = [NodeId(f"old{number}") for number in range(size)]
    return {keys.removed_key(name): RemovedNode(name, LONG_AGO) for name in names}


def tokens(size: int) -> Records:
    found: Records = {}
    for number in range(size):
        name = f"{number:016x}"
        found[keys.token_key(name)] = Token(
            name, "ann", Role.VIEWER, frozenset(), "hash", LONG_AGO, "ann", LONG_AGO
        )
    return found


def secrets(size: int, key: EncryptionKey) -> Records:
    version = SecretVersion(1, b"sealed", key.id, LONG_AGO)
    names = [f"s{number}" for number in range(size)]
    return {keys.secret_key(name): Secret(name, (version,)) for name in names}


def node_pools(count: int, size: int) -> Records:
    """Paused pools of a provider that this scheduler cannot open, and all their machines."""
    found: Records = {}
    for at in range(count):
        pool = NodePool(
            PoolId(f"p{at}"),
            "absent",
            sizes=(MachineSize("small", SMALL),),
            max_machines=0,
            spend_per_hour_max=0.0,
            paused=True,
        )
        found[keys.node_pool_key(pool.pool_id)] = pool
    for number in range(size):
        name = f"default-p{number % count}-{number}"
        found[keys.machine_key(name)] = Machine(
            PoolId(f"p{number % count}"),
            number,
            name,
            "small",
            0.0,
            MachineState.READY,
            created_at=LONG_AGO,
            state_since=LONG_AGO,
        )
    return found


def jobs(size: int) -> Records:
    """Suspended jobs with a finished run each."""
    found: Records = {}
    workload = a_workload("any", resources=SMALL)
    template = Template(
        replace(workload.spec, restart=RestartPolicy("no")), workload.revision, SMALL
    )
    for number in range(size):
        job_id = JobId(f"job{number}")
        found[keys.job_key(job_id)] = Job(
            job_id, template, LONG_AGO, LONG_AGO, schedule=Schedule("0 * * * *"), suspended=True
        )
        run_id = RunId(f"{job_id}-1")
        found[keys.run_key(job_id, run_id)] = Run(
            run_id,
            job_id,
            template,
            LONG_AGO,
            state=RunState.SUCCEEDED,
            ended_at=LONG_AGO,
            next_index=1,
            succeeded=((0, 0),),
        )
    return found


def sets(size: int) -> Records:
    """Steady sets without members."""
    found: Records = {}
    workload = a_workload("any", resources=SMALL)
    template = Template(workload.spec, REVISION, SMALL)
    for number in range(size):
        set_id = SetId(f"set{number}")
        found[keys.set_key(set_id)] = WorkloadSet(
            set_id, 0, 1, LONG_AGO, LONG_AGO, stable=1, revisions=(1,)
        )
        found[keys.set_revision_key(set_id, 1)] = SetRevision(set_id, 1, template, LONG_AGO)
    return found


def services(size: int) -> Records:
    """Services of sets without members, and one that selects all workloads with a label."""
    found: Records = {}
    for number in range(size):
        service_id = ServiceId(f"service{number}")
        selector = Selector(set_id=f"set{number}") if number else Selector(labels={"app": "run"})
        found[keys.service_key(service_id)] = Service(
            service_id, (ServicePort("http", 80),), (selector,), LONG_AGO, LONG_AGO
        )
    return found


def decided_suggestions(size: int) -> Records:
    found: Records = {
        keys.suggestion_key(f"s{number}"): SuggestionDecision(
            Suggestion(f"s{number}"), False, LONG_AGO
        )
        for number in range(size)
    }
    for name, target in (("to-approve", "data1"), ("to-reject", "data2")):
        suggestion = Suggestion(name, target, SuggestedAction.RETRY_WORKLOAD)
        found[keys.suggestion_key(name)] = SuggestionDecision(
            suggestion, False, LONG_AGO, pending_until=FAR_AHEAD
        )
    return found


def events(size: int) -> Records:
    return {
        keys.event_key(LONG_AGO, number): Event(LONG_AGO, EventKind.NODE_READY, node_id="n1")
        for number in range(1, size + 1)
    }


def _names(prefix: str, size: int) -> Iterable[WorkloadId]:
    return [WorkloadId(f"{prefix}{number}") for number in range(size)]
