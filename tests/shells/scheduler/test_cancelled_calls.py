"""A caller that leaves changes nothing: each change is completed, or never began.

Every handler of a unary change is cancelled after each step of the event loop that it takes, first with a
handler that would be torn apart by it, then with the real ones.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest
from prometheus_client import CollectorRegistry

from persys.core.permission import deeds_of
from persys.errors import FencedError, UnavailableError
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import SystemClock
from persys.infra.door import CALLER
from persys.model.identity import Caller, Identity, Role
from persys.model.suggestion import SuggestedAction, Suggestion
from persys.scheduler.api.chain import Chain
from persys.scheduler.api.methods import SERVICE_DESCRIPTOR
from persys.scheduler.api.service import ControlApi
from persys.scheduler.app import Scheduler
from persys.scheduler.metrics import Metrics
from persys.scheduler.modes import Modes
from persys.scheduler.owner import Owner
from persys.scheduler.state.sync import encoded, in_snapshot
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.methods import METHODS, Stream
from shells.scheduler.harness import Cluster, a_cluster, brisk, eventually
from shells.scheduler.stores import TroubledStore

CHANGES = [row for row in METHODS.values() if row.mutating and row.stream is Stream.NONE]
STEPS_MAX = 60
# The history, and what says which cluster this is.
BESIDE = (keys.EVENTS, keys.CLUSTER)


class AbortedError(Exception):
    """What `abort` raises."""


class FakeContext:
    """As much of gRPC's as the chain uses."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        self.code = code
        raise AbortedError(f"{code.name}: {details}")

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


async def cancelled_after(steps: int, call: Awaitable[Any]) -> bool:
    """Whether the call was still in progress then."""
    task = asyncio.ensure_future(call)
    for _ in range(steps):
        await asyncio.sleep(0)
    in_progress = task.cancel()
    with suppress(asyncio.CancelledError, AbortedError):
        await task
    return in_progress


@dataclass
class TornApart:
    """A change of two halves, with awaits in between."""

    begun: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)

    def handler(self, number: int) -> Callable[..., Awaitable[Any]]:
        async def change(_request: Any, _context: Any) -> Any:
            self.begun.add(number)
            for _ in range(5):
                await asyncio.sleep(0)
            self.done.add(number)
            return pb.NodeAnswer(accepted=True)

        return change


class NoEvents:
    """The audit of a test without a store."""

    def request(self, _context: object) -> Any:
        return nullcontext()

    async def write(self, _method: object, _request: object) -> None:
        """Nothing is kept."""


def a_chain(owner: Owner, supervisor: Supervisor) -> Chain:
    clock = SystemClock()
    audit: Any = NoEvents()
    return Chain(Metrics(), clock, Modes(clock, on_normal=lambda: None), audit, owner, supervisor)


@pytest.fixture
def supervisor() -> Supervisor:
    return Supervisor("scheduler", SystemClock(), CollectorRegistry())


@pytest.mark.parametrize("name", [row.name for row in CHANGES])
async def test_a_handler_that_began_is_completed_when_its_caller_leaves(
    name: str, supervisor: Supervisor
) -> None:
    owner, state = Owner(supervisor, tasks_max=100), TornApart()
    chain = a_chain(owner, supervisor)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(owner.run())
        await asyncio.sleep(0)
        for steps in range(12):
            call = chain.wrap(METHODS[name], state.handler(steps))
            await cancelled_after(steps, call(pb.NodeRequest(), FakeContext()))
        for _ in range(20):
            await asyncio.sleep(0)
        running.cancel()

    assert state.begun == state.done
    assert state.begun


async def test_the_number_of_changes_in_progress_is_bounded(supervisor: Supervisor) -> None:
    owner = Owner(supervisor, tasks_max=2)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(owner.run())
        await asyncio.sleep(0)
        waiting = [group.create_task(fenced(owner)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="2 changes are in progress"):
            await owner.do(asyncio.sleep(0))
        running.cancel()
    assert [task.result() for task in waiting] == [True, True]


async def fenced(owner: Owner) -> bool:
    """Whether work that would take long was ended by the loss of leadership."""
    try:
        await owner.do(asyncio.sleep(60))
    except FencedError:
        return True
    return False


async def test_a_deadline_ends_the_wait_and_not_the_work(supervisor: Supervisor) -> None:
    owner, finished = Owner(supervisor, tasks_max=2), asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(0.2)
        finished.set()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(owner.run())
        await asyncio.sleep(0)
        with pytest.raises(UnavailableError, match="still in progress"):
            await owner.do(work(), deadline_seconds=0.01)
        async with asyncio.timeout(10):
            await finished.wait()
        running.cancel()


async def test_a_defect_in_a_handler_ends_its_call_only(supervisor: Supervisor) -> None:
    owner = Owner(supervisor, tasks_max=2)
    chain = a_chain(owner, supervisor)

    async def broken(_request: Any, _context: Any) -> Any:
        raise ZeroDivisionError("a defect")

    async with asyncio.TaskGroup() as group:
        running = group.create_task(owner.run())
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

    api = ControlApi(Part(), chain=a_chain(Owner(supervisor, tasks_max=1), supervisor))

    assert not hasattr(api, "MadeUp")


@pytest.fixture
async def seat(tmp_path: Path) -> AsyncIterator[tuple[Cluster, Scheduler]]:
    seats: list[Scheduler] = []

    def new_seat(*args: Any, **named: Any) -> Scheduler:
        seats.append(Scheduler(*args, **named))
        return seats[-1]

    store = TroubledStore(MemoryStore(SystemClock().monotonic))
    settings = brisk(secrets_key_file=str(tmp_path / "key"), node_lease=timedelta(minutes=5))
    async with a_cluster(store, settings, scheduler=new_seat) as cluster:
        yield cluster, seats[-1]
    await store.store.close()


def a_spec(image: str = "nginx") -> pb.WorkloadSpec:
    return pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=100, memory_mb=64),
        container=pb.ContainerSpec(image=image),
    )


def a_registration(name: str) -> pb.RegisterNodeRequest:
    return pb.RegisterNodeRequest(
        node_id=name,
        grpc_endpoint="127.0.0.1:9",
        capabilities=pb.NodeCapabilities(
            cpu_total_millicores=4000, memory_total_mb=8192, supported_workload_types=["compose"]
        ),
    )


def suggestion(name: str) -> Suggestion:
    return Suggestion(
        name, target_workload=name, action=SuggestedAction.SET_DESIRED_STATE, desired_state="stop"
    )


# What each change is tried with. Each gets a name of its own, for which `prepared` has made everything.
REQUESTS: dict[str, Callable[[str], Any]] = {
    "RegisterNode": lambda name: a_registration(f"{name}-new"),
    "ApplyWorkload": lambda name: pb.ApplyWorkloadRequest(workload_id=f"{name}-new", spec=a_spec()),
    "DeleteWorkload": lambda name: pb.DeleteWorkloadRequest(workload_id=name),
    "RedeployWorkload": lambda name: pb.RedeployWorkloadRequest(workload_id=name),
    "SubmitAutomationSuggestion": lambda name: pb.SubmitAutomationSuggestionRequest(
        suggestion=pb.AutomationSuggestion(
            suggestion_id=f"{name}-new",
            target_workload=name,
            action_type=pb.AUTOMATION_ACTION_DELETE_WORKLOAD,
        )
    ),
    "ApproveSuggestion": lambda name: pb.SuggestionRequest(suggestion_id=name),
    "RejectSuggestion": lambda name: pb.SuggestionRequest(suggestion_id=name),
    "CordonNode": lambda name: pb.NodeRequest(node_id=name),
    "DrainNode": lambda name: pb.DrainNodeRequest(node_id=name),
    "TaintNode": lambda name: pb.TaintNodeRequest(node_id=name, taints=["gpu"]),
    "CreateToken": lambda name: pb.CreateTokenRequest(name="ops", role="viewer"),
    "PutSecret": lambda name: pb.PutSecretRequest(name=f"{name}-new", value=b"x"),
    "DeleteSecret": lambda name: pb.DeleteSecretRequest(name=name),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_real_change_is_whole_or_absent_wherever_it_is_cancelled(
    name: str, seat: tuple[Cluster, Scheduler]
) -> None:
    cluster, app = seat
    me = Identity(Role.ADMIN, "me")
    until = SystemClock().now() + timedelta(days=1)
    CALLER.set(Caller(me, deeds_of(Role.ADMIN), until, "1"))
    api: Any = app.api()

    async def changed(steps: int) -> tuple[set[str], bool]:
        """The records that the call changed, without its number, and whether it was cancelled."""
        own = f"x{steps}"
        await prepared(api, app, own)
        before = await kept(cluster)
        in_progress = await cancelled_after(
            steps, getattr(api, name)(REQUESTS[name](own), FakeContext())
        )
        await settled(cluster, app)
        after = await kept(cluster)
        found = {key for key in before | after if before.get(key) != after.get(key)}
        return {_without_number(key, own) for key in found}, in_progress

    whole, _ = await changed(STEPS_MAX * 20)
    assert whole
    for steps in range(STEPS_MAX):
        found, in_progress = await changed(steps)
        assert found in (set(), whole), f"cancelled after {steps} steps"
        if not in_progress:
            assert found == whole
            break
    else:
        pytest.fail(f"{name} took more than {STEPS_MAX} steps")


async def prepared(api: Any, app: Scheduler, name: str) -> None:
    await api.RegisterNode(a_registration(name), FakeContext())
    await api.ApplyWorkload(pb.ApplyWorkloadRequest(workload_id=name, spec=a_spec()), FakeContext())
    await api.PutSecret(pb.PutSecretRequest(name=name, value=b"x"), FakeContext())
    powerless = Caller(
        Identity(Role.VIEWER, "bot"), deeds_of(Role.VIEWER), SystemClock().now(), "2"
    )
    ruling = await app.suggestions.submit(suggestion(name), powerless)
    assert ruling.pending_until is not None


async def kept(cluster: Cluster) -> dict[str, bytes]:
    stored = await cluster.store.read("/")
    return _lasting({one.key: one.value for one in stored.records if in_snapshot(one.key)})


async def settled(cluster: Cluster, app: Scheduler) -> None:
    """Until memory and store are the same and nothing is in progress."""

    async def same() -> bool:
        in_memory = _lasting(encoded(app.cluster))
        return app.requests.count == 0 and await kept(cluster) == in_memory

    await eventually(same, lambda: "memory and store to be the same")


def _lasting(found: dict[str, bytes]) -> dict[str, bytes]:
    return {key: value for key, value in found.items() if not key.startswith(BESIDE)}


def _without_number(key: str, own: str) -> str:
    if key.startswith(keys.TOKENS):
        return keys.TOKENS
    return key.replace(own, "x")


def test_every_real_request_is_a_change() -> None:
    assert REQUESTS.keys() <= {row.name for row in CHANGES}
    assert all(name in SERVICE_DESCRIPTOR.methods_by_name for name in REQUESTS)
