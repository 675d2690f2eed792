"""Operations beside any number of records: no transaction grows with the fleet, and each operation succeeds.

Every operation runs on both stores, with 10 and 1,000 records, and with 20,000 in the full suite.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path

import pytest
from msgspec import Struct

from builders import a_workload
from e2e.etcd import Etcd
from persys.core.removal import DEPENDENTS_PER_STEP_MAX, FORGOTTEN_PER_CHANGE_MAX
from persys.infra.clock import SystemClock
from persys.model.assignment import Assignment, Tombstone
from persys.model.drift import Drift, DriftType
from persys.model.event import Event, EventKind
from persys.model.identity import Role
from persys.model.ids import NodeId, WorkloadId
from persys.model.mode import ClusterMarker
from persys.model.node import Capabilities, Node, NodeStatus
from persys.model.removal import Removal
from persys.model.secret import Secret, SecretVersion
from persys.model.spec import ContainerSpec, VolumeMount
from persys.model.suggestion import Ruling, Suggestion
from persys.model.token import Token
from persys.store import keys
from persys.store.etcd import EtcdOptions, EtcdStore
from persys.store.port import Store, Unit
from persys.store.sqlite import SqliteStore
from persys.wire import records, snapshot
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, brisk, eventually
from shells.scheduler.stores import TroubledStore

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
N1 = NodeId("n1")
MARKER = {keys.CLUSTER: ClusterMarker("u1", LONG_AGO)}
BATCH = 1000
sizes = pytest.mark.parametrize(
    "size", [10, 1_000, pytest.param(20_000, marks=pytest.mark.full)], ids=lambda size: f"{size}"
)
_prefixes = count()


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["sqlite", "etcd"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store
    if request.param == "etcd":
        server: Etcd = request.getfixturevalue("etcd")
        opened = await EtcdStore.open(
            EtcdOptions((server.endpoint,), prefix=f"/many-{next(_prefixes)}")
        )
    else:
        opened = await SqliteStore.open(tmp_path / "store.db", monotonic=SystemClock().monotonic)
    yield opened
    await opened.close()


async def fill(store: Store, found: dict[str, Struct]) -> None:
    units = (Unit(puts={key: records.encode(record)}) for key, record in found.items())
    while together := list(islice(units, BATCH)):
        await store.commit(together)


async def stored_count(store: Store, prefix: str) -> int:
    return len((await store.read(prefix)).records)


def a_lost_node() -> dict[str, Struct]:
    status = NodeStatus.NOT_READY
    return {keys.node_key(N1): Node(N1, Capabilities(4000, 8000), "h:1", LONG_AGO, status=status)}


def tombstones_and_drifts(size: int) -> dict[str, Struct]:
    found = a_lost_node()
    for number in range(size // 2):
        name = WorkloadId(f"w{number}")
        copy = Assignment(name, N1, 1, LONG_AGO)
        found[keys.tombstone_key(N1, name)] = Tombstone(copy, LONG_AGO)
        found[keys.drift_key(N1, name, DriftType.MISSING)] = Drift(
            N1, name, DriftType.MISSING, LONG_AGO
        )
    return found


def removals(size: int) -> dict[str, Struct]:
    names = [NodeId(f"old{number}") for number in range(size)]
    return {keys.removed_key(name): Removal(name, LONG_AGO) for name in names}


def old_events(size: int) -> dict[str, Struct]:
    return {
        keys.event_key(LONG_AGO, number): Event(LONG_AGO, EventKind.NODE_READY, node_id="n1")
        for number in range(1, size + 1)
    }


def expired_tokens(size: int) -> dict[str, Struct]:
    return {
        keys.token_key(f"t{number}"): Token(
            f"t{number}", "ann", Role.VIEWER, frozenset(), "hash", LONG_AGO, "ann", LONG_AGO
        )
        for number in range(size)
    }


def rulings(size: int) -> dict[str, Struct]:
    return {
        keys.suggestion_key(f"s{number}"): Ruling(Suggestion(f"s{number}"), False, LONG_AGO)
        for number in range(size)
    }


def secrets(size: int) -> dict[str, Struct]:
    version = SecretVersion(1, b"sealed", "another-key", LONG_AGO)
    return {
        keys.secret_key(f"s{number}"): Secret(f"s{number}", (version,)) for number in range(size)
    }


def a_node_with_workloads(size: int) -> dict[str, Struct]:
    """The node is lost, and each of its workloads holds data, so that none of them moves by itself."""
    found = a_lost_node()
    volume = VolumeMount("/srv/data", "/data")
    for number in range(size):
        workload = a_workload(f"w{number}", spec=ContainerSpec("nginx", volumes=(volume,)))
        found[keys.workload_key(workload.id)] = workload
        found[keys.assignment_key(workload.id)] = Assignment(workload.id, N1, 1, LONG_AGO)
    return found


def orphans(size: int) -> dict[str, Struct]:
    found = a_lost_node()
    for number in range(size):
        name = WorkloadId(f"w{number}")
        orphan = Drift(N1, name, DriftType.ORPHAN, LONG_AGO)
        found[keys.drift_key(N1, name, DriftType.ORPHAN)] = orphan
    return found


def stopped_workloads(size: int) -> dict[str, Struct]:
    found: dict[str, Struct] = {}
    for number in range(size):
        workload = a_workload(f"w{number}")
        found[keys.workload_key(workload.id)] = workload
    return found


async def remove_the_node(cluster: Cluster, size: int) -> None:
    answer = await cluster.control.stub.RemoveNode(pb.NodeRequest(node_id="n1"), timeout=120)

    assert answer.accepted, answer.reason
    for prefix in (keys.NODES, keys.TOMBSTONES, keys.DRIFTS):
        assert await stored_count(cluster.store, prefix) == 0
    assert await stored_count(cluster.store, keys.REMOVED) == 1


async def join_a_node(cluster: Cluster, size: int) -> None:
    await cluster.join("n2")

    left = await stored_count(cluster.store, keys.REMOVED)
    assert left == max(0, size - FORGOTTEN_PER_CHANGE_MAX)


async def apply_a_workload(cluster: Cluster, size: int) -> None:
    answer = await cluster.control.apply("fresh")

    assert answer.success, answer.error_message


async def apply_and_delete(cluster: Cluster, size: int) -> None:
    await apply_a_workload(cluster, size)
    await cluster.control.delete("fresh")
    await cluster.control.until_gone("fresh")


async def revoke_a_token(cluster: Cluster, size: int) -> None:
    request = pb.RevokeTokenRequest(token_id="t1")
    answer = await cluster.control.stub.RevokeToken(request, timeout=10)

    assert answer.accepted, answer.reason
    assert await stored_count(cluster.store, keys.TOKENS) == size - 1


async def suggest(cluster: Cluster, size: int) -> None:
    request = pb.SubmitAutomationSuggestionRequest()
    request.suggestion.suggestion_id = "fresh"
    request.suggestion.target_workload = "none"
    await cluster.control.stub.SubmitAutomationSuggestion(request, timeout=10)

    assert await stored_count(cluster.store, keys.SUGGESTIONS) <= max(size, 1) + 1


async def put_a_secret(cluster: Cluster, size: int) -> None:
    request = pb.PutSecretRequest(name="fresh", value=b"x")
    await cluster.control.stub.PutSecret(request, timeout=10)


async def cordon_and_drain(cluster: Cluster, size: int) -> None:
    cordoned = await cluster.control.stub.CordonNode(pb.NodeRequest(node_id="n1"), timeout=10)
    drained = await cluster.control.stub.DrainNode(pb.DrainNodeRequest(node_id="n1"), timeout=10)

    assert cordoned.accepted, cordoned.reason
    assert drained.accepted, drained.reason


async def delete_an_orphan(cluster: Cluster, size: int) -> None:
    request = pb.OrphanRequest(node_id="n1", workload_id="w1")
    answer = await cluster.control.stub.DeleteOrphan(request, timeout=10)

    assert answer.accepted, answer.reason
    assert await stored_count(cluster.store, keys.DRIFTS) == size - 1


@dataclass(frozen=True)
class Operation:
    beside: Callable[[int], dict[str, Struct]]
    act: Callable[[Cluster, int], Awaitable[None]]


OPERATIONS = {
    "remove a node with tombstones and drifts": Operation(tombstones_and_drifts, remove_the_node),
    "register beside removals that are over": Operation(removals, join_a_node),
    "apply beside events that are too old": Operation(old_events, apply_a_workload),
    "delete beside events that are too old": Operation(old_events, apply_and_delete),
    "revoke a token beside others": Operation(expired_tokens, revoke_a_token),
    "suggest beside rulings": Operation(rulings, suggest),
    "put a secret beside others": Operation(secrets, put_a_secret),
    "cordon and drain a node with workloads": Operation(a_node_with_workloads, cordon_and_drain),
    "delete an orphan beside others": Operation(orphans, delete_an_orphan),
    "remove a node with orphans": Operation(orphans, remove_the_node),
    "apply beside workloads": Operation(stopped_workloads, apply_a_workload),
}


@sizes
@pytest.mark.parametrize("name", OPERATIONS)
async def test_the_operation_succeeds_beside_any_number_of_records(
    store: Store, name: str, size: int
) -> None:
    operation = OPERATIONS[name]
    await fill(store, {**MARKER, **operation.beside(size)})

    async with a_cluster(TroubledStore(store), brisk()) as cluster:
        await operation.act(cluster, size)


@sizes
async def test_a_recovery_replaces_any_number_of_records(store: Store, size: int) -> None:
    await fill(store, {**stopped_workloads(size), **removals(size)})  # and no marker

    async with a_cluster(TroubledStore(store), brisk()) as cluster:
        answer = await cluster.control.stub.AcceptEmpty(pb.AcceptEmptyRequest(), timeout=60)
        assert answer.accepted, answer.reason

        assert len(await cluster.control.names()) == size


@sizes
async def test_a_snapshot_of_any_number_of_records_is_restored(store: Store, size: int) -> None:
    kept = {**stopped_workloads(size), **removals(size), **old_events(size)}
    header = snapshot.Header(snapshot.FORMAT, "u2", LONG_AGO, 1, "store", snapshot.count(kept))
    pairs = ((key, records.encode(record)) for key, record in kept.items())
    chunks = [pb.SnapshotChunk(data=chunk) for chunk in snapshot.write(header, pairs)]

    async def sent() -> AsyncIterator[pb.SnapshotChunk]:
        for chunk in chunks:
            yield chunk

    async with a_cluster(TroubledStore(store), brisk()) as cluster:
        answer = await cluster.control.stub.RestoreSnapshot(sent(), timeout=120)
        assert answer.accepted, answer.reason

        assert await stored_count(store, keys.WORKLOADS) == size
        assert await stored_count(store, keys.REMOVED) == size


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_a_removal_that_was_interrupted_is_resumed_by_the_next_leader(store: Store) -> None:
    found = tombstones_and_drifts(10 * DEPENDENTS_PER_STEP_MAX)
    marked = Node(N1, Capabilities(4000, 8000), "h:1", LONG_AGO, removing_since=LONG_AGO)
    await fill(store, {**MARKER, **found, keys.node_key(N1): marked})

    async with a_cluster(TroubledStore(store), brisk()) as cluster:

        async def gone() -> bool:
            return await stored_count(store, keys.NODES) == 0

        await eventually(gone, lambda: "the removal to be finished")
        assert await stored_count(store, keys.TOMBSTONES) == 0
        assert (await cluster.control.summary()).total_nodes == 0


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_a_removal_goes_on_when_its_caller_leaves(store: Store) -> None:
    await fill(store, {**MARKER, **tombstones_and_drifts(20 * DEPENDENTS_PER_STEP_MAX)})

    async with a_cluster(TroubledStore(store), brisk()) as cluster:
        cluster.store.commit_seconds = 0.05
        asked = asyncio.ensure_future(
            cluster.control.stub.RemoveNode(pb.NodeRequest(node_id="n1"), timeout=30)
        )

        async def marked() -> bool:
            return (await cluster.control.node("n1")).status_reason.startswith("being removed")

        await eventually(marked, lambda: "the removal to begin")
        asked.cancel()
        cluster.store.commit_seconds = 0.0

        async def gone() -> bool:
            return await stored_count(store, keys.NODES) == 0

        await eventually(gone, lambda: "the removal to be finished")


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
async def test_a_node_that_is_being_removed_takes_no_work_and_cannot_register(
    store: Store,
) -> None:
    node = Node(NodeId("n1"), Capabilities(4000, 8000), "h:1", LONG_AGO, removing_since=LONG_AGO)
    found = tombstones_and_drifts(4 * DEPENDENTS_PER_STEP_MAX)
    await fill(store, {**MARKER, **found, keys.node_key(N1): node})
    trouble = TroubledStore(store)
    trouble.commit_seconds = 0.2

    async with a_cluster(trouble, brisk()) as cluster:
        peer = await cluster.prepare("n1")
        answer = await peer.register()

        assert not answer.accepted
        assert "being removed" in answer.reason
        trouble.commit_seconds = 0.0
