"""Operations of many transactions, interrupted between any two of them.

The process ends, or the leader loses the store and a standby takes over. The interrupted commit is partly
written, as is possible in etcd, where it is several transactions. An acknowledged operation is completed by
the next leader; any other is requested again.

Expired events, tokens and removed nodes need no case: a few of them are deleted in the transaction of any
later change.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from persys.errors import StoreUnavailableError
from persys.model.node import Node, NodeStatus
from persys.store import keys
from persys.store.port import Outcome, Store, Unit
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.stored import records
from shells.scheduler.harness import Control, eventually
from shells.scheduler.replicas import Replicas, until_leading, until_standby
from shells.scheduler.scale.conftest import STORES, a_scheduler, opened, quiet_settings, until_idle
from shells.scheduler.scale.fleet import Fleet
from shells.scheduler.scale.many_records import (
    DEAD,
    FULL,
    HOLDER,
    LOST,
    MARKER,
    SPARE,
    Records,
    fill,
    lost,
    lost_nodes,
    orphans,
    ready,
    running,
    stored,
    tombstones,
    with_data,
)
from shells.scheduler.scale.measured import MeasuredStore
from shells.scheduler.scale.mutations import SECONDS, registration
from shells.scheduler.scale.test_recoveries import (
    a_cluster_of,
    chunks_of,
    nodes_that_keep,
    sent,
)

SIZE = 300
PASSES = {
    "reconcile_interval": timedelta(seconds=0.5),
    "drift_detect_interval": timedelta(seconds=0.5),
}


class EndingStore(MeasuredStore):
    """Simulates the end of the process after a number of commits: half of the next one is written."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.commits_left: int | None = None

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        if self.commits_left == 0:
            self.down = True
            self.commits_left = None
            await self.store.commit(units[: len(units) // 2], fence=fence)
            raise StoreUnavailableError("the process has ended")
        if self.commits_left is not None:
            self.commits_left -= 1
        return await super().commit(units, fence=fence)


@dataclass(frozen=True)
class Operation:
    """`before` gets the agents and returns the records, `ask` returns whether it was acknowledged, `is_done`
    checks the store."""

    before: Callable[[Fleet], Records]
    ask: Callable[[Control], Coroutine[None, None, bool]]
    is_done: Callable[[Store], Awaitable[bool]]
    settings: Mapping[str, timedelta] = field(default_factory=dict)


def nodes(*names: str) -> Records:
    """Ready nodes that are polled: no agent pushes status here."""
    found: Records = {}
    for node in map(ready, names):
        capabilities = structs.replace(node.capabilities, features=frozenset())
        found[keys.node_key(node.id)] = structs.replace(node, capabilities=capabilities)
    return found


async def ask_of_node(method: str, node_id: str, control: Control) -> bool:
    request = (pb.DrainNodeRequest if method == "DrainNode" else pb.NodeRequest)(node_id=node_id)
    response = await getattr(control.stub, method)(request, timeout=SECONDS)
    return bool(response.accepted)


async def register(control: Control) -> bool:
    response = await control.stub.RegisterNode(registration(LOST), timeout=SECONDS)
    return bool(response.accepted)


async def list_no_copies(control: Control) -> bool:
    request = pb.HeartbeatRequest(node_id=HOLDER, complete=True)
    return bool((await control.stub.Heartbeat(request, timeout=SECONDS)).acknowledged)


async def nothing_to_ask(_control: Control) -> bool:
    """The scheduler starts it."""
    return True


async def restore(control: Control) -> bool:
    chunks = chunks_of(a_cluster_of(SIZE))
    response = await control.stub.RestoreSnapshot(sent(chunks), timeout=SECONDS)
    return bool(response.accepted)


async def rebuild(control: Control) -> bool:
    response = await control.stub.RebuildFromAgents(pb.RebuildFromAgentsRequest(), timeout=SECONDS)
    return bool(response.accepted)


async def accept(control: Control) -> bool:
    response = await control.stub.AcceptEmpty(pb.AcceptEmptyRequest(), timeout=SECONDS)
    return bool(response.accepted)


async def none_under(prefixes: Sequence[str], store: Store) -> bool:
    return not any([await stored(store, prefix) for prefix in prefixes])


async def are_all_on(node_id: str, store: Store) -> bool:
    """Every workload is assigned there, and no other node has a tombstone."""
    found = (await store.read(keys.ASSIGNMENTS)).records
    there = [one for one in found if f'"{node_id}"'.encode() in one.value]
    return len(there) == SIZE


async def is_recovered(store: Store) -> bool:
    counts = [len(await stored(store, prefix)) for prefix in (keys.WORKLOADS, keys.REMOVED)]
    return counts == [SIZE, SIZE] and bool(await stored(store, keys.CLUSTER))


async def is_drained(store: Store) -> bool:
    return await are_all_on(SPARE, store) and await none_under([keys.TOMBSTONES], store)


async def are_all_not_ready(store: Store) -> bool:
    found = [
        one for one in (await store.read(keys.NODES)).records if not keys.is_node_lease(one.key)
    ]
    members = [records.decode(one.value, Node) for one in found]
    return all(node.status is NodeStatus.NOT_READY for node in members)


OPERATIONS = {
    "removal of a node with old copies and orphans": Operation(
        lambda _: {
            **MARKER,
            keys.node_key(LOST): lost(LOST),
            **tombstones(LOST, SIZE),
            **orphans(LOST, SIZE, "o"),
        },
        partial(ask_of_node, "RemoveNode", LOST),
        partial(none_under, [keys.NODES, keys.TOMBSTONES, keys.DRIFTS]),
    ),
    "drain of a full node": Operation(
        lambda _: {**MARKER, **nodes(FULL, SPARE), **running(FULL, SIZE, "run")},
        partial(ask_of_node, "DrainNode", FULL),
        is_drained,
    ),
    "moving of what a dead node held": Operation(
        lambda _: {
            **MARKER,
            **nodes(SPARE),
            keys.node_key(DEAD): lost(DEAD),
            **with_data(DEAD, SIZE, "data"),
        },
        partial(ask_of_node, "ConfirmNodeDead", DEAD),
        partial(are_all_on, SPARE),
    ),
    "removal of old copies of a node that returns": Operation(
        lambda _: {**MARKER, keys.node_key(LOST): lost(LOST), **tombstones(LOST, SIZE)},
        register,
        partial(none_under, [keys.TOMBSTONES]),
    ),
    "striking out of orphans that the node no longer lists": Operation(
        lambda _: {**MARKER, **nodes(HOLDER), **orphans(HOLDER, SIZE, "p")},
        list_no_copies,
        partial(none_under, [keys.DRIFTS]),
    ),
    "expiry of the leases of many nodes": Operation(
        lambda _: {**MARKER, **lost_nodes(SIZE, ready)},
        nothing_to_ask,
        are_all_not_ready,
        {"node_lease": timedelta(seconds=1)},
    ),
    "restore of a snapshot": Operation(lambda _: {}, restore, is_recovered),
    "rebuild from what agents keep": Operation(
        partial(nodes_that_keep, SIZE), rebuild, is_recovered
    ),
    "acceptance of a store without a marker": Operation(
        lambda _: a_cluster_of(SIZE), accept, is_recovered
    ),
}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(request.param, tmp_path, partial(request.getfixturevalue, "etcd")) as created:
        yield created


RECOVERIES = frozenset(name for name, one in OPERATIONS.items() if one.is_done is is_recovered)


def points(numbers: Iterable[int], *, often: int) -> pytest.MarkDecorator:
    """The numbers of commits before the interruption; `often`: also in `make test`."""
    full = pytest.mark.full
    return pytest.mark.parametrize(
        "commits", [one if one == often else pytest.param(one, marks=full) for one in numbers]
    )


@points(range(10), often=2)
@pytest.mark.parametrize("name", OPERATIONS)
async def test_an_interrupted_operation_is_finished_by_the_next_scheduler(
    store: Store, name: str, commits: int
) -> None:
    operation, fleet = OPERATIONS[name], Fleet()
    await fill(store, operation.before(fleet))
    settings: dict[str, Any] = {**PASSES, **operation.settings}
    ending = EndingStore(store)
    async with a_scheduler(ending, fleet, quiet_settings(**settings)) as cluster:
        await until_idle(cluster)
        acknowledged = await interrupted(operation, cluster.control, ending, commits)

    async with a_scheduler(MeasuredStore(store), fleet, quiet_settings(**settings)) as cluster:
        if not acknowledged:
            await operation.ask(cluster.control)  # refused if it was completed before
        await until_done(operation, name, store)


# Only etcd has standbys. In a recovery a standby waits for two leases before it leads.
@points((0, 1, 3, 6), often=3)
@pytest.mark.parametrize("store", ["etcd"], indirect=True)
@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=pytest.mark.full if one in RECOVERIES else ()) for one in OPERATIONS],
)
async def test_what_a_leader_could_not_finish_is_finished_by_the_standby(
    store: Store, name: str, commits: int
) -> None:
    """The old leader returns and is a standby: nothing of it is written."""
    operation, fleet = OPERATIONS[name], Fleet()
    await fill(store, operation.before(fleet))
    replicas = Replicas(
        store,
        start_seconds=SECONDS,
        settings=partial(quiet_settings, **PASSES, **operation.settings),
        wrap=EndingStore,
        connect=fleet.connect,
    )
    try:
        leader = await replicas.add()
        await until_leading(leader, within=SECONDS)
        standby = await replicas.add()
        await until_standby(standby, within=SECONDS)
        ending = replicas.stores[0]
        assert isinstance(ending, EndingStore)
        acknowledged = await interrupted(operation, leader, ending, commits)
        await store.commit([Unit(deletes=[keys.LEADER])])  # as at the end of its lease
        await until_leading(standby, within=SECONDS)
        ending.down, ending.commits_left = False, None

        if not acknowledged:
            await operation.ask(standby)
        await until_done(operation, name, store)
        await until_standby(leader, within=SECONDS)
    finally:
        await replicas.close()


async def interrupted(
    operation: Operation, control: Control, store: EndingStore, commits: int
) -> bool:
    """Whether it was acknowledged before its scheduler lost the store."""
    store.commits_left = commits
    task = asyncio.get_running_loop().create_task(operation.ask(control))

    async def ended() -> bool:
        return store.down or await operation.is_done(store.store)

    await eventually(ended, lambda: "the end of the process", within=SECONDS, every=0.1)
    task.cancel()
    await asyncio.wait([task])
    return not task.cancelled() and task.exception() is None and task.result()


async def until_done(operation: Operation, name: str, store: Store) -> None:
    async def is_done() -> bool:
        return await operation.is_done(store)

    await eventually(is_done, lambda: f"the {name}", within=SECONDS, every=0.1)
