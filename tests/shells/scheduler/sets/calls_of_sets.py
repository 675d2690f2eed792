"""Sets of a real scheduler as a user calls them, and waits for their rollouts."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.third_party_agent import Node

DEADLINE = 30  # seconds until a call ends


def a_set(
    set_id: str = "web",
    *,
    image: str = "web:1",
    replicas: int | None = 3,
    min_healthy: int = 0,
    cpu: int = 100,
    **update: Any,
) -> pb.SetSpec:
    spec = pb.SetSpec(
        set_id=set_id,
        template=pb.WorkloadSpec(
            type="container",
            resources=pb.ResourceRequirements(cpu_millicores=cpu, memory_mb=64),
            container=pb.ContainerSpec(image=image),
        ),
        update=pb.UpdatePolicy(min_healthy_seconds=min_healthy, **update),
    )
    if replicas is not None:
        spec.replicas = replicas
    return spec


class SetCalls:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def apply(self, spec: pb.SetSpec, desired: str = "") -> pb.SetAnswer:
        request = pb.ApplySetRequest(set=spec, desired_state=desired)
        return await self.call("ApplySet", request)

    async def applied(self, spec: pb.SetSpec, desired: str = "") -> pb.SetView:
        answer = await self.apply(spec, desired)
        assert answer.accepted, answer.reason
        return answer.set

    async def get(self, set_id: str = "web") -> pb.SetView:
        request = pb.GetSetRequest(set_id=set_id)
        response = await self.cluster.control.stub.GetSet(request, timeout=DEADLINE)
        view: pb.SetView = response.set
        return view

    async def call(self, name: str, request: Any) -> pb.SetAnswer:
        method = getattr(self.cluster.control.stub, name)
        answer: pb.SetAnswer = await method(request, timeout=DEADLINE)
        return answer

    async def order(self, name: str, set_id: str = "web") -> pb.SetAnswer:
        """Delete, pause, resume or promote."""
        return await self.call(name, pb.SetRequest(set_id=set_id))

    async def scale(self, replicas: int, set_id: str = "web") -> pb.SetAnswer:
        return await self.call("ScaleSet", pb.ScaleSetRequest(set_id=set_id, replicas=replicas))

    async def undo(self, revision: int = 0, set_id: str = "web") -> pb.SetAnswer:
        request = pb.UndoRolloutRequest(set_id=set_id, revision=revision)
        return await self.call("UndoRollout", request)

    async def until(
        self, holds: Callable[[pb.SetView], bool], *, set_id: str = "web", within: float = 60
    ) -> pb.SetView:
        view = pb.SetView()

        async def reached() -> bool:
            nonlocal view
            view = await self.get(set_id)
            return holds(view)

        await eventually(reached, lambda: f"set: {view}", within=within)
        return view

    async def until_steady(
        self,
        set_id: str = "web",
        *,
        members: int | None = None,
        revision: int = 0,
        within: float = 60,
    ) -> pb.SetView:
        """All members are healthy, at the target revision."""

        def holds(view: pb.SetView) -> bool:
            wanted = view.member_count_wanted if members is None else members
            return (
                view.phase == "Steady"
                and view.member_count == view.healthy_count == view.updated_count == wanted
                and view.target_revision == (revision or view.target_revision)
                and view.stable_revision == view.target_revision
            )

        return await self.until(holds, set_id=set_id, within=within)

    async def until_gone(self, set_id: str = "web") -> None:
        async def gone() -> bool:
            return set_id not in self.cluster.app.cluster.sets

        await eventually(gone, lambda: f"{set_id} to be deleted")

    def later(self, seconds: float) -> None:
        """The wall clock is ahead by this time: gates, deadlines and the bake are due."""
        self.cluster.clock.ahead += timedelta(seconds=seconds)
        self.cluster.app.set_controller.wake_all()


def ids(view: pb.SetView) -> list[str]:
    return [member.workload_id for member in view.members]


def images(node: Node) -> dict[str, str]:
    """The image of the last order for each workload that runs on the node."""
    last = {request.id: request.spec.container.image for request in node.agent.applies}
    return {name: last[name] for name in node.agent.running()}
