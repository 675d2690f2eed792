"""A node is removed while records that depend on it are being committed, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import pytest

from builders import NOON, WEB
from persys.errors import AgentUnreachableError, RefusedError
from persys.model import feature
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.status import Actual, Observation
from persys.scheduler.app import Scheduler
from persys.scheduler.settings import SchedulerSettings
from persys.sim.engine.hardware import WallClock
from persys.sim.engine.virtual_loop import VirtualLoop
from persys.sim.network.network import Context
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Outcome, Unit
from persys.wire.gen.control.v1 import control_pb2 as pb

N1 = NodeId("n1")
COMMIT_SECONDS = 1.0


class SlowStore(MemoryStore):
    """Each commit takes a second, once it is slow."""

    is_slow = False

    async def commit(
        self, units: Sequence[Unit], *, fence: tuple[str, int] | None = None
    ) -> list[Outcome]:
        if self.is_slow:
            await asyncio.sleep(COMMIT_SECONDS)
        return await super().commit(units, fence=fence)


def unreachable(node_id: NodeId, _endpoint: str) -> NoReturn:
    raise AgentUnreachableError(f"{node_id} does not respond")


class World:
    """A scheduler with the node n1, which accepts workloads, and n2, which does not."""

    def __init__(self) -> None:
        self.store = SlowStore(asyncio.get_running_loop().time)
        settings = SchedulerSettings(missing_grace_period=timedelta())
        self.scheduler = Scheduler(
            settings, self.store, WallClock().as_read(), name="s1", connect=unreachable
        )
        self._api: Any = self.scheduler.api()

    async def begin(self) -> None:
        await self.scheduler.take_over()

    async def register(self, node_id: str) -> None:
        registration = pb.RegisterNodeRequest(
            node_id=node_id,
            capabilities=pb.NodeCapabilities(
                cpu_total_millicores=4000,
                memory_total_mb=8192,
                supported_workload_types=["container"],
            ),
            grpc_endpoint=f"{node_id}:1",
            features=[feature.PUSHES_STATUS],
        )
        assert (await self._api.RegisterNode(registration, Context())).accepted

    async def cordon(self, node_id: str) -> None:
        assert (await self._api.CordonNode(pb.NodeRequest(node_id=node_id), Context())).accepted

    async def apply(self, name: str = WEB) -> None:
        spec = pb.WorkloadSpec(type="container", container=pb.ContainerSpec(image="nginx"))
        request = pb.ApplyWorkloadRequest(workload_id=name, spec=spec)
        assert (await self._api.ApplyWorkload(request, Context())).success

    async def delete(self, name: str) -> None:
        request = pb.DeleteWorkloadRequest(workload_id=name)
        assert (await self._api.DeleteWorkload(request, Context())).success

    def list_copies(self, *names: str) -> None:
        copies = [
            Observation(WorkloadId(name), N1, Actual.RUNNING, NOON, Revision("r1"), 1)
            for name in names
        ]
        self.scheduler.orphans.listed(N1, copies)

    async def remove(self) -> str:
        """The reason for a refusal; empty if the node is removed."""
        try:
            await self.scheduler.membership.remove(N1)
        except RefusedError as err:
            return str(err)
        return ""

    async def stored(self, prefix: str) -> list[str]:
        return [record.key for record in (await self.store.read(prefix)).records]


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        await world.begin()
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(part) for part in world.scheduler.parts()]
            await asyncio.sleep(0.1)
            await world.register("n2")
            await world.apply("first")  # so that epochs are reserved
            await world.delete("first")
            await world.cordon("n2")
            await world.register(N1)
            await asyncio.sleep(COMMIT_SECONDS)
            world.store.is_slow = True
            await scenario(world)
            for task in running:
                task.cancel()

    loop = VirtualLoop()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_a_node_is_not_removed_while_a_workload_is_being_assigned_to_it() -> None:
    async def scenario(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(world.apply())
            await asyncio.sleep(COMMIT_SECONDS / 2)
            why = await world.remove()

        assert "n1 still has 1 workloads, such as web" in why
        assert await world.stored(keys.node_key(N1))

    run(scenario)


def test_no_workload_is_assigned_to_a_node_while_it_is_being_removed() -> None:
    async def scenario(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            removing = group.create_task(world.remove())
            await asyncio.sleep(COMMIT_SECONDS / 2)
            await world.apply()

        assert removing.result() == ""
        assert await world.stored(keys.workload_key(WEB))
        assert not await world.stored(keys.assignment_key(WEB))

    run(scenario)


@pytest.mark.parametrize("removed_first", [True, False])
def test_no_orphan_of_a_node_is_stored_with_its_removal(removed_first: bool) -> None:
    """Found by seed 36 with further losses of the store."""

    async def scenario(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            if removed_first:
                group.create_task(world.remove())
                await asyncio.sleep(COMMIT_SECONDS / 2)
                world.list_copies("stray")
            else:
                world.list_copies("stray")
                await asyncio.sleep(COMMIT_SECONDS / 2)
                group.create_task(world.remove())
        await asyncio.sleep(10 * COMMIT_SECONDS)

        assert not await world.stored(keys.node_key(N1))
        assert not await world.stored(keys.DRIFTS)

    run(scenario)
