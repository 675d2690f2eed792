"""A fault in any call of the store port stops no workload, is reported, and has no lasting effect.

The calls are those of the port itself, so that a new one is covered without a new test. Two schedulers share
the store: every call of the port is made by the leader or by the standby.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from random import Random
from typing import Any, NamedTuple

import grpc
import pytest

from faults.injection import AFTERWARDS, FAULTS, HANG, OVERSIZED
from persys.infra.clock import SystemClock
from persys.scheduler.commit import store_guard
from persys.scheduler.commit.store_guard import StoreGuard
from persys.store.memory import MemoryStore
from persys.store.port import Record, Snapshot, Store
from shells.scheduler.harness import eventually
from shells.scheduler.replicas import Replicas, until_leading
from shells.scheduler.third_party_agent import a_node

KINDS = (*FAULTS, HANG, OVERSIZED)
CALLS = sorted(name for name in vars(Store) if not name.startswith("_"))
# Not called while schedulers run: only at the end, and for compaction of etcd.
NOT_CALLED = {"close", "compact"}
SAMPLE = 8
FAULT_SECONDS = 2.0
RECOVERED_SECONDS = 60.0
HUGE = b"x" * 1_000_000


class Case(NamedTuple):
    call: str
    kind: str

    def __str__(self) -> str:
        return f"{self.call}-{self.kind}"


ALL = [
    Case(call, kind)
    for call in CALLS
    for kind in KINDS
    if call not in NOT_CALLED and (call != "transactions" or kind not in (HANG, OVERSIZED))
]
CHOSEN = Random("faults of the store").sample(ALL, SAMPLE)


class FaultyStore:
    """In front of a store: one call fails while `case` is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.case: Case | None = None
        self.was_struck = asyncio.Event()
        self.mended = asyncio.Event()

    def begin(self, case: Case) -> None:
        self.mended.clear()
        self.case = case

    def end(self) -> None:
        self.case = None
        self.mended.set()

    def _note(self, kind: str) -> None:
        if kind:
            self.was_struck.set()

    def __getattr__(self, name: str) -> Any:
        kind = self.case.kind if self.case is not None and self.case.call == name else ""
        if name == "transactions" and kind:
            self.was_struck.set()
            raise FAULTS[kind]()
        found = getattr(self._store, name)
        if name == "watch":
            return self._watch
        return self._faulty(name, found) if inspect.iscoroutinefunction(found) else found

    def _faulty(self, name: str, found: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*words: Any, **named: Any) -> Any:
            kind = self.case.kind if self.case is not None and self.case.call == name else ""
            self._note(kind)
            if kind in FAULTS and kind != AFTERWARDS:
                raise FAULTS[kind]()
            if kind == HANG:
                await self.mended.wait()
            response = await found(*words, **named)
            if kind == AFTERWARDS:
                raise FAULTS[kind]()
            return oversized(response) if kind == OVERSIZED else response

        return call

    async def _watch(self, prefix: str, *, after: int) -> AsyncIterator[Any]:
        async for changes in self._store.watch(prefix, after=after):
            kind = self.case.kind if self.case is not None and self.case.call == "watch" else ""
            self._note(kind)
            if kind in FAULTS:
                raise FAULTS[kind]()
            if kind == HANG:
                await self.mended.wait()
            yield changes


def oversized(answer: Any) -> Any:
    match answer:
        case Snapshot():
            more = tuple(Record(f"/other/{n}", b"x" * 1000, 1) for n in range(20_000))
            records = sorted((*answer.records, *more), key=lambda one: one.key)
            return Snapshot(answer.revision, records)
        case Record():
            return Record(answer.key, HUGE, answer.version)
        case _:
            return answer


async def check_case(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DEADLINE_SECONDS", "READ_DEADLINE_SECONDS"):
        monkeypatch.setattr(store_guard, name, 1.0)
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    replicas = Replicas(store)
    try:
        leader = await replicas.add()
        await replicas.add()
        async with a_node("n1", leader.stub, cpu=4000, memory=8192) as node:
            await until_leading(leader)
            await node.join()
            await leader.apply("before")
            await leader.until("before", "Running")

            store.begin(case)
            accepted = await while_failing(store, replicas)
            assert node.agent.running() >= {"before"}
            assert not node.agent.deletes
            store.end()

            await converges(replicas, node, {"before", "after", *accepted})
            assert not [task for task in replicas.running if task.done() and task.exception()]
            assert not replicas.running[-1].done(), "a scheduler has ended"
    finally:
        store.end()
        await replicas.close()
        await store._store.close()


async def while_failing(store: FaultyStore, replicas: Replicas) -> set[str]:
    """Trigger the call: write, read everything again, change the leader. Returns the accepted workloads."""
    accepted: set[str] = set()
    for number, act in enumerate((write, reload, change_leader)):
        await act(replicas)
        with suppress(grpc.aio.AioRpcError):
            if (await replicas.controls[-1].apply(f"during-{number}")).success:
                accepted.add(f"during-{number}")
        if await fault_happened(store):
            break
    assert store.was_struck.is_set(), "the call is not made"
    return accepted


async def write(replicas: Replicas) -> None:
    """Also sends read requests."""
    with suppress(OSError):
        await replicas.metric(0, "persys_scheduler_store_transactions_total")


async def reload(replicas: Replicas) -> None:
    """A short outage of the store: everything is read again."""
    replicas.stores[0].down = True
    with suppress(grpc.aio.AioRpcError):
        await replicas.controls[0].apply("refused")
    replicas.stores[0].down = False


async def change_leader(replicas: Replicas) -> None:
    """The leader stops, and the other scheduler becomes leader."""
    await replicas.stop(0)


async def fault_happened(store: FaultyStore) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(FAULT_SECONDS):
            await store.was_struck.wait()
    return store.was_struck.is_set()


async def converges(replicas: Replicas, node: Any, names: set[str]) -> None:
    async def applied() -> bool:
        for control in replicas.controls:
            with suppress(grpc.aio.AioRpcError):
                if (await control.apply("after")).success:
                    return True
        return False

    async def running() -> bool:
        with suppress(grpc.aio.AioRpcError):
            await node.heartbeat()
        return bool(node.agent.running() >= names)

    await eventually(applied, lambda: "a workload to be accepted", within=RECOVERED_SECONDS)
    await eventually(
        running, lambda: f"{names} to run: {node.agent.running()}", within=RECOVERED_SECONDS
    )


def test_the_faulty_store_has_every_method_of_the_port() -> None:
    assert set(CALLS) <= vars(StoreGuard).keys()


@pytest.mark.parametrize("case", CHOSEN, ids=str)
async def test_a_store_fault_stops_nothing(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    await check_case(case, monkeypatch)


@pytest.mark.full
@pytest.mark.parametrize("case", ALL, ids=str)
async def test_no_store_fault_stops_anything(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    await check_case(case, monkeypatch)
