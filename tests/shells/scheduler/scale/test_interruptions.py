"""Operations of many transactions, interrupted between any two of them by the end of the process.

The interrupted commit is partly written, as is possible in etcd, where it is several transactions.
An acknowledged operation is completed by the next scheduler; any other is requested again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from persys.errors import StoreUnavailableError
from persys.store import keys
from persys.store.port import Outcome, Store, Unit
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.scale.conftest import STORES, a_scheduler, opened, quiet_settings, until_idle
from shells.scheduler.scale.fleet import Fleet
from shells.scheduler.scale.many_records import (
    DEAD,
    FULL,
    LOST,
    MARKER,
    SPARE,
    Records,
    fill,
    lost,
    orphans,
    ready,
    running,
    stored,
    tombstones,
    with_data,
)
from shells.scheduler.scale.measured import MeasuredStore
from shells.scheduler.scale.mutations import SECONDS, registration
from shells.scheduler.scale.test_recoveries import a_cluster_of, chunks_of, sent

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
    """`ask` returns whether it was acknowledged, `is_done` checks the store."""

    before: Callable[[], Records]
    ask: Callable[[Cluster], Coroutine[None, None, bool]]
    is_done: Callable[[Store], Awaitable[bool]]


def nodes(*names: str) -> Records:
    """Wait until the nodes are ready and polled: no agent pushes status here."""
    found: Records = {}
    for node in map(ready, names):
        asked = structs.replace(node.capabilities, features=frozenset())
        found[keys.node_key(node.id)] = structs.replace(node, capabilities=asked)
    return found


async def ask_of_node(method: str, node_id: str, cluster: Cluster) -> bool:
    request = (pb.DrainNodeRequest if method == "DrainNode" else pb.NodeRequest)(node_id=node_id)
    answer = await getattr(cluster.control.stub, method)(request, timeout=SECONDS)
    return bool(answer.accepted)


async def register(cluster: Cluster) -> bool:
    answer = await cluster.control.stub.RegisterNode(registration(LOST), timeout=SECONDS)
    return bool(answer.accepted)


async def restore(cluster: Cluster) -> bool:
    chunks = chunks_of(a_cluster_of(SIZE))
    answer = await cluster.control.stub.RestoreSnapshot(sent(chunks), timeout=SECONDS)
    return bool(answer.accepted)


async def none_under(prefixes: Sequence[str], store: Store) -> bool:
    return not any([await stored(store, prefix) for prefix in prefixes])


async def are_all_on(node_id: str, store: Store) -> bool:
    """Every workload is assigned there, and no other node has a tombstone."""
    found = (await store.read(keys.ASSIGNMENTS)).records
    there = [one for one in found if f'"{node_id}"'.encode() in one.value]
    return len(there) == SIZE


async def is_restored(store: Store) -> bool:
    counts = [len(await stored(store, prefix)) for prefix in (keys.WORKLOADS, keys.REMOVED)]
    return counts == [SIZE, SIZE] and bool(await stored(store, keys.CLUSTER))


async def is_drained(store: Store) -> bool:
    return await are_all_on(SPARE, store) and await none_under([keys.TOMBSTONES], store)


OPERATIONS = {
    "removal of a node with old copies and orphans": Operation(
        lambda: {
            **MARKER,
            keys.node_key(LOST): lost(LOST),
            **tombstones(LOST, SIZE),
            **orphans(LOST, SIZE, "o"),
        },
        partial(ask_of_node, "RemoveNode", LOST),
        partial(none_under, [keys.NODES, keys.TOMBSTONES, keys.DRIFTS]),
    ),
    "drain of a full node": Operation(
        lambda: {**MARKER, **nodes(FULL, SPARE), **running(FULL, SIZE, "run")},
        partial(ask_of_node, "DrainNode", FULL),
        is_drained,
    ),
    "moving of what a dead node held": Operation(
        lambda: {
            **MARKER,
            **nodes(SPARE),
            keys.node_key(DEAD): lost(DEAD),
            **with_data(DEAD, SIZE, "data"),
        },
        partial(ask_of_node, "ConfirmNodeDead", DEAD),
        partial(are_all_on, SPARE),
    ),
    "removal of old copies of a node that returns": Operation(
        lambda: {**MARKER, keys.node_key(LOST): lost(LOST), **tombstones(LOST, SIZE)},
        register,
        partial(none_under, [keys.TOMBSTONES]),
    ),
    "restore of a snapshot": Operation(dict, restore, is_restored),
}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(request.param, tmp_path, partial(request.getfixturevalue, "etcd")) as made:
        yield made


@pytest.mark.parametrize(
    "commits",
    [2, 5, *(pytest.param(more, marks=pytest.mark.full) for more in (0, 1, 3, 4, 6, 7, 8, 9))],
)
@pytest.mark.parametrize("name", OPERATIONS)
async def test_what_was_interrupted_is_finished_by_the_next_scheduler(
    store: Store, name: str, commits: int
) -> None:
    operation, fleet = OPERATIONS[name], Fleet()
    await fill(store, operation.before())

    acknowledged = await interrupted(operation, EndingStore(store), fleet, commits)

    async with a_scheduler(MeasuredStore(store), fleet, quiet_settings(**PASSES)) as cluster:
        if not acknowledged:
            await operation.ask(cluster)  # refused if it was completed before

        async def done() -> bool:
            return await operation.is_done(store)

        await eventually(done, lambda: f"the {name}", within=SECONDS)


async def interrupted(operation: Operation, store: EndingStore, fleet: Fleet, commits: int) -> bool:
    """Whether it was acknowledged before its scheduler ended."""
    async with a_scheduler(store, fleet, quiet_settings(**PASSES)) as cluster:
        await until_idle(cluster)
        store.commits_left = commits
        asked = asyncio.get_running_loop().create_task(operation.ask(cluster))

        async def ended() -> bool:
            return store.down or await operation.is_done(store.store)

        await eventually(ended, lambda: "the end of the process", within=SECONDS)
        asked.cancel()
        await asyncio.wait([asked])
    return not asked.cancelled() and asked.exception() is None and asked.result()
