"""Cancelled calls of the agent API: each mutating call is completed, or has no effect.

Every call that changes something is cancelled at each point where its handler waits, as the wait begins and
as it ends. Adding an image is a stream and has tests of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from builders import a_supervisor
from cancellation import Moment, at_every_wait, cancelled_at
from persys.agent.api.service import AgentApi, Outcome, _translated
from persys.agent.journal.records import Image
from persys.core.agent.garbage import ImageUse, Item, Kind
from persys.infra.aio.owned_work import OwnedWork
from persys.model.ids import WorkloadId
from persys.model.status import Actual
from persys.model.workload import Desired
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.methods import AGENT_METHODS, Method
from shells.agent.in_memory import Node, NoVolumes, RunningAgent, a_context, a_running_agent

CHANGES = [row.name for row in AGENT_METHODS.values() if row.mutating]
BURIED = WorkloadId("buried")


class TwoStepVolumes(NoVolumes):
    """Volumes whose deletion takes two steps."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.records: set[str] = set()

    async def delete(self, workload_id: WorkloadId, name: str) -> None:
        await asyncio.sleep(0)
        self.files.discard(workload_id)
        await asyncio.sleep(0)
        self.records.discard(workload_id)


class DeletedWorkloadGarbage:
    """Leftovers of a workload that was deleted. Implements agent.ports.GarbageSource."""

    def __init__(self) -> None:
        self.items: set[str] = set()

    async def inventory(self) -> list[Item]:
        await asyncio.sleep(0)
        return [Item(Kind.CONTAINER, name, name, BURIED) for name in sorted(self.items)]

    async def images(self, fetched: Mapping[str, Image]) -> list[ImageUse]:
        return []

    async def remove(self, item: Item) -> str:
        await asyncio.sleep(0)
        self.items.discard(item.name)
        return ""


@dataclass
class World:
    running: RunningAgent
    volumes: TwoStepVolumes
    seen_garbage: DeletedWorkloadGarbage


@dataclass(frozen=True)
class Call:
    """What is there before, the request, and what there is of a name afterwards."""

    request: Callable[[str], Any]
    state: Callable[[World, str], object]
    before: Callable[[World, str], Awaitable[None]]


async def nothing(_world: World, _name: str) -> None:
    """The call needs nothing."""


async def a_container(world: World, name: str) -> None:
    await world.running.apply(name)
    await world.running.until_actual(name, Actual.RUNNING)


async def a_volume(world: World, name: str) -> None:
    world.volumes.files.add(name)
    world.volumes.records.add(name)


async def seen_garbage(world: World, name: str) -> None:
    """Seen once: an item is removed only when it is found a second time."""
    world.seen_garbage.items |= {f"{name}-{part}" for part in "abc"}
    request = agent_pb2.GarbageCollectRequest(dry_run=True)
    await world.running.api.GarbageCollect(request, a_context())
    await asyncio.sleep(0.01)


def an_apply(name: str) -> agent_pb2.ApplyWorkloadRequest:
    return agent_pb2.ApplyWorkloadRequest(
        id=name,
        type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
        revision_id="r1",
        desired_state=agent_pb2.DESIRED_STATE_RUNNING,
        spec=agent_pb2.WorkloadSpec(container=agent_pb2.ContainerSpec(image="app:1")),
    )


def is_wanted(world: World, name: str) -> bool:
    """Whether the journal has it: the steps that follow have tests of their own."""
    entry = world.running.journal.entries.get(WorkloadId(name))
    return entry is not None and entry.order.desired is not Desired.DELETED


def a_batch(name: str) -> agent_pb2.ApplyWorkloadsRequest:
    return agent_pb2.ApplyWorkloadsRequest(orders=[an_apply(name), an_apply(f"{name}-2")])


def are_wanted(world: World, name: str) -> tuple[bool, bool]:
    return is_wanted(world, name), is_wanted(world, f"{name}-2")


CALLS: dict[str, Call] = {
    "ApplyWorkload": Call(an_apply, is_wanted, before=nothing),
    "ApplyWorkloads": Call(a_batch, are_wanted, before=nothing),
    "DeleteWorkload": Call(
        lambda name: agent_pb2.DeleteWorkloadRequest(id=name), is_wanted, before=a_container
    ),
    "GarbageCollect": Call(
        lambda _name: agent_pb2.GarbageCollectRequest(),
        lambda world, name: len([one for one in world.seen_garbage.items if one.startswith(name)]),
        before=seen_garbage,
    ),
    "DeleteVolume": Call(
        lambda name: agent_pb2.DeleteVolumeRequest(workload_id=name, name="data"),
        lambda world, name: (name in world.volumes.files, name in world.volumes.records),
        before=a_volume,
    ),
}
# The image store is on disk, and networks need devices of the host; both have tests of their own.
ELSEWHERE = {"RemoveImage", "ConfigureNetworks"}


def test_every_mutating_call_has_a_case() -> None:
    assert CALLS.keys() | ELSEWHERE == set(CHANGES)


@pytest.mark.parametrize("name", CALLS)
async def test_a_cancelled_call_is_complete_or_has_no_effect(name: str, tmp_path: Path) -> None:
    volumes, leftovers = TwoStepVolumes(), DeletedWorkloadGarbage()
    node = Node(tmp_path, volumes=volumes)
    node.more.garbage[frozenset({Kind.CONTAINER})] = leftovers
    node.settings = replace(node.settings, gc_zombie_after=timedelta(milliseconds=1))
    call = CALLS[name]
    async with a_running_agent(node) as running:
        world = World(running, volumes, leftovers)
        await a_container(world, BURIED)
        await running.delete(BURIED)
        await running.until_actual(BURIED, None)
        await call.before(world, "whole")
        before = call.state(world, "whole")
        await running.call(getattr(running.api, name)(call.request("whole"), a_context()))
        await running.until_idle()
        complete = call.state(world, "whole")
        assert complete != before

        async def attempt(moment: Moment) -> bool:
            own = f"x{moment.number}{'b' if moment.late else 'a'}x"
            await call.before(world, own)
            calling = getattr(running.api, name)(call.request(own), a_context())
            reached = await cancelled_at(moment, calling)
            await running.until_idle()
            found = call.state(world, own)
            assert found == complete or (reached and found == before), moment
            return reached

        assert await at_every_wait(attempt)


@dataclass
class PartialService:
    """The part of the service that a call needs."""

    owned: OwnedWork
    supervisor: Any
    begun: set[Moment] = field(default_factory=set)
    done: set[Moment] = field(default_factory=set)

    @contextmanager
    def counted(self, _method: Method) -> Iterator[Outcome]:
        yield Outcome()


@pytest.mark.parametrize("name", CHANGES)
async def test_a_started_handler_completes_when_its_caller_disconnects(name: str) -> None:
    supervisor = a_supervisor()
    partial = PartialService(OwnedWork(supervisor, limit=100), supervisor)

    def handler(moment: Moment) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def change(_api: Any, _request: Any, _context: Any) -> None:
            partial.begun.add(moment)
            for _ in range(5):
                await asyncio.sleep(0)
            partial.done.add(moment)

        change.__name__ = name
        served: Any = _translated(change)
        created: Callable[..., Coroutine[Any, Any, Any]] = served
        return created

    async def attempt(moment: Moment) -> bool:
        request = agent_pb2.HealthCheckRequest()
        return await cancelled_at(moment, handler(moment)(partial, request, a_context()))

    async with asyncio.TaskGroup() as group:
        running = group.create_task(partial.owned.run())
        await asyncio.sleep(0)
        assert await at_every_wait(attempt)
        for _ in range(20):
            await asyncio.sleep(0)
        running.cancel()

    assert partial.begun == partial.done
    assert hasattr(AgentApi, name)
