"""A caller that disconnects changes nothing: each call is completed, or has no effect.

Every call is cancelled at each await of its handler, at the start and at the end of the wait: first with a
handler that has two halves, then with the real ones. The table of calls is `calls.py`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest
from prometheus_client import CollectorRegistry

from cancellation import Moment, at_every_wait, cancelled_at
from persys.core.auth.permissions import permissions_of
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import SystemClock
from persys.infra.rpc.authorized_service import AuthorizedService
from persys.infra.rpc.authorizer import CALLER
from persys.model.identity import Caller, Identity, Role
from persys.scheduler.api.chain import Chain
from persys.scheduler.api.methods import SERVICE_DESCRIPTOR
from persys.scheduler.api.service import ControlApi
from persys.scheduler.metrics.counters import Metrics
from persys.scheduler.recovery.mode import ModeTracker
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.methods import METHODS, Audit, Stream
from shells.scheduler.calls import CALLS, CHANGING, World, a_world, quiet
from shells.scheduler.cancelled_call import CallCancellation
from shells.scheduler.harness import a_cluster, eventually
from shells.scheduler.stores import FaultyStore

CHANGES = [row for row in METHODS.values() if row.mutating and row.stream is Stream.NONE]


class AbortedError(Exception):
    """What `abort` raises."""


class FakeContext:
    """The part of gRPC's context that the chain uses."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        self.code = code
        raise AbortedError(f"{code.name}: {details}")

    async def write(self, _message: object) -> None:
        """Like a write to a network: it may block."""
        await asyncio.sleep(0)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def set_trailing_metadata(self, _metadata: object) -> None:
        """Nothing is read back."""

    def trailing_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def time_remaining(self) -> float | None:
        return None

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"


@dataclass
class TwoStepChange:
    """A change of two halves, with awaits in between."""

    begun: set[Moment] = field(default_factory=set)
    done: set[Moment] = field(default_factory=set)

    def handler(self, moment: Moment) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def change(_request: Any, _context: Any) -> Any:
            self.begun.add(moment)
            for _ in range(5):
                await asyncio.sleep(0)
            self.done.add(moment)
            return pb.NodeAnswer(accepted=True)

        return change


class NoEvents:
    """An audit for a test without a store."""

    def request(self, _context: object) -> Any:
        return nullcontext()

    async def write(self, _method: object, _request: object) -> None:
        """Stores nothing."""


def a_chain(owned: OwnedWork, supervisor: Supervisor) -> Chain:
    clock = SystemClock()
    audit: Any = NoEvents()
    return Chain(
        metrics=Metrics(),
        clock=clock,
        modes=ModeTracker(clock, on_normal=lambda: None),
        audit=audit,
        owned=owned,
        note_contact=lambda _home: None,
        supervisor=supervisor,
    )


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor("scheduler", SystemClock(), CollectorRegistry())


@pytest.mark.parametrize("name", [row.name for row in CHANGES])
async def test_a_handler_that_began_is_completed_when_its_caller_leaves(
    name: str, supervisor: Supervisor
) -> None:
    owned, state = OwnedWork(supervisor, limit=100), TwoStepChange()
    chain = a_chain(owned, supervisor)

    async def attempt(moment: Moment) -> bool:
        call: Any = chain.wrap(METHODS[name], state.handler(moment))
        return await cancelled_at(moment, call(pb.NodeRequest(), FakeContext()))

    async with asyncio.TaskGroup() as group:
        running = group.create_task(owned.run())
        await asyncio.sleep(0)
        waits = await at_every_wait(attempt)
        await finished(owned)
        running.cancel()

    assert waits
    assert state.begun == state.done
    assert len(state.done) > waits


async def finished(owned: OwnedWork) -> None:
    async def is_idle() -> bool:
        return owned.count == 0

    await eventually(is_idle, lambda: "all work to be finished")


async def test_a_defect_in_a_handler_ends_its_call_only(supervisor: Supervisor) -> None:
    owned = OwnedWork(supervisor, limit=2)
    chain = a_chain(owned, supervisor)

    async def broken(_request: Any, _context: Any) -> Any:
        raise ZeroDivisionError("a defect")

    async with asyncio.TaskGroup() as group:
        running = group.create_task(owned.run())
        await asyncio.sleep(0)
        for name in ("CordonNode", "ListNodes"):
            context = FakeContext()
            with pytest.raises(AbortedError, match="a defect"):
                await chain.wrap(METHODS[name], broken)(pb.NodeRequest(), context)
            assert context.code is grpc.StatusCode.INTERNAL
        running.cancel()

    assert {(error.where, error.key) for error in supervisor.recent()} == {
        ("rpc", "CordonNode"),
        ("rpc", "ListNodes"),
    }


def test_an_rpc_without_a_row_is_not_served(supervisor: Supervisor) -> None:
    class Part:
        async def MadeUp(self, _request: Any, _context: Any) -> None:  # noqa: N802
            """Not in the table."""

    api = ControlApi(Part(), chain=a_chain(OwnedWork(supervisor, limit=1), supervisor))

    assert not hasattr(api, "MadeUp")


def test_every_mutating_rpc_is_tested() -> None:
    assert CALLS.keys() == CHANGING


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    store = FaultyStore(MemoryStore(SystemClock().monotonic))
    settings = quiet(secrets_key_file=str(tmp_path / "key"))
    async with a_cluster(store, settings) as cluster:
        yield await a_world(cluster)
    await store.store.close()


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_is_cancelled_anywhere_is_complete_or_never_happened(
    name: str, world: World
) -> None:
    until = SystemClock().now() + timedelta(days=1)
    CALLER.set(Caller(Identity(Role.ADMIN, "me"), permissions_of(Role.ADMIN), until, "1"))
    api = AuthorizedService(world.app.api(), SERVICE_DESCRIPTOR, None, world.app.supervisor)

    def calling(own: str) -> Coroutine[Any, Any, Any]:
        call: Coroutine[Any, Any, Any] = getattr(api, name)(CALLS[name].request(own), FakeContext())
        return call

    async def cancelled(moment: Moment, own: str) -> bool:
        return await cancelled_at(moment, calling(own))

    tried = CallCancellation(world, name, calling, cancelled=cancelled)

    complete = await tried.complete()
    waits = await at_every_wait(lambda moment: tried.cancelled(moment, complete))

    assert waits
    assert complete or METHODS[name].audit is Audit.START
