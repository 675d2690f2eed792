"""A scheduler that is killed before and after each commit of a rollout: the next leader continues it.

The rollout ends at the new revision, each index has exactly one member, and no member is left over.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import grpc
import pytest

from persys.infra.clock import SystemClock
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Outcome, Unit
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings
from shells.scheduler.sets.calls_of_sets import SetCalls, a_set, images
from shells.scheduler.stores import FaultyStore
from shells.scheduler.third_party_agent import Node

COMMITS = 12  # at most, of a rollout of two members: before and after each, the scheduler is killed


class KilledError(BaseException):
    """Ends the scheduler at once: nothing of it handles this."""


class CrashingStore(FaultyStore):
    """Counts the steps of sets and their members, and kills the scheduler at one of them."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(SystemClock().monotonic))
        self.kill_at = 0  # 0: never
        self.steps = 0

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        changed = [key for unit in units for key in (*unit.puts, *unit.deletes)]
        is_counted = any(key.startswith((keys.SETS, keys.WORKLOADS)) for key in changed)
        if is_counted:
            self._reach()
        outcomes = await super().commit(units, fence=fence)
        if is_counted:
            self._reach()
        return outcomes

    def _reach(self) -> None:
        self.steps += 1
        if self.steps == self.kill_at:
            raise KilledError


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    store = CrashingStore()
    async with a_cluster(store, fast_settings()) as running:
        yield running
    await store.store.close()


async def view_of(cluster: Cluster) -> pb.SetView:
    """The set, from a scheduler that is started again if it was killed. Empty: it does not respond."""
    if cluster.has_ended:
        await cluster.ended()
        await cluster.start()
    with suppress(grpc.aio.AioRpcError):
        return await SetCalls(cluster).get()
    return pb.SetView()


async def roll_out(cluster: Cluster, spec: pb.SetSpec) -> pb.SetView:
    """Apply until it is accepted, and wait until the set is steady at revision 2."""
    view = pb.SetView()

    async def is_accepted() -> bool:
        await view_of(cluster)
        with suppress(grpc.aio.AioRpcError):
            return (await SetCalls(cluster).apply(spec)).accepted
        return False

    async def is_done() -> bool:
        nonlocal view
        view = await view_of(cluster)
        return (view.phase, view.stable_revision, view.member_count) == ("Steady", 2, 2)

    await eventually(is_accepted, lambda: "the set to be accepted")
    await eventually(is_done, lambda: f"the rollout to end: {view}")
    return view


@pytest.mark.parametrize("order", ["start-first", "in-place"])
@pytest.mark.parametrize("kill_at", range(1, 2 * COMMITS + 1))
async def test_the_next_leader_continues_the_rollout(
    cluster: Cluster, order: str, kill_at: int
) -> None:
    node, sets = await cluster.join(), SetCalls(cluster)
    await sets.applied(a_set(replicas=2, order=order))
    await sets.until_steady(members=2)
    store = cluster.store
    assert isinstance(store, CrashingStore)
    store.steps, store.kill_at = 0, kill_at

    view = await roll_out(cluster, a_set(image="web:2", replicas=2, order=order))

    assert Counter(member.index for member in view.members) == {0: 1, 1: 1}
    assert {member.revision for member in view.members} == {2}
    await _until_only(node, {member.workload_id for member in view.members})
    assert set(images(node).values()) == {"web:2"}


async def _until_only(node: Node, members: set[str]) -> None:
    async def is_clean() -> bool:
        await asyncio.sleep(0)
        return node.agent.running() == members

    await eventually(is_clean, lambda: f"only {members} to run: {node.agent.running()}")
