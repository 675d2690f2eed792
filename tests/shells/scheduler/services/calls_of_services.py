"""Services of a real scheduler as a user calls them, and waits for their endpoints."""

from collections.abc import Callable

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually

DEADLINE = 30  # seconds until a call ends


def a_service(service_id: str = "web", **labels: str) -> pb.ServiceSpec:
    selector = pb.ServiceSelector(labels=labels or {"app": "web"})
    port = pb.ServicePort(name="http", port=80, protocol="http")
    return pb.ServiceSpec(service_id=service_id, ports=[port], members=[selector])


class ServiceCalls:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def apply(self, spec: pb.ServiceSpec) -> pb.ServiceAnswer:
        request = pb.ApplyServiceRequest(service=spec)
        answer: pb.ServiceAnswer = await self.cluster.control.stub.ApplyService(
            request, timeout=DEADLINE
        )
        return answer

    async def applied(self, spec: pb.ServiceSpec) -> pb.ServiceView:
        answer = await self.apply(spec)
        assert answer.accepted, answer.reason
        return answer.service

    async def get(self, service_id: str = "web") -> pb.ServiceView:
        request = pb.GetServiceRequest(service_id=service_id)
        response = await self.cluster.control.stub.GetService(request, timeout=DEADLINE)
        view: pb.ServiceView = response.service
        return view

    async def run(self, name: str, host_port: int, desired: str = "", **labels: str) -> None:
        """A workload with a published port and labels."""
        spec = pb.WorkloadSpec(
            type="container",
            resources=pb.ResourceRequirements(cpu_millicores=100, memory_mb=64),
            container=pb.ContainerSpec(image="nginx", labels=labels or {"app": "web"}),
        )
        spec.container.ports.add(host_port=host_port, container_port=80)
        request = pb.ApplyWorkloadRequest(workload_id=name, spec=spec, desired_state=desired)
        answer = await self.cluster.control.send(request)
        assert answer.success, answer.error_message

    async def until(
        self, holds: Callable[[pb.ServiceView], bool], *, within: float = 60
    ) -> pb.ServiceView:
        view = pb.ServiceView()

        async def reached() -> bool:
            nonlocal view
            view = await self.get()
            return holds(view)

        await eventually(reached, lambda: f"service: {view}", within=within)
        return view

    async def until_listed(self, *names: str, within: float = 60) -> pb.ServiceView:
        return await self.until(lambda view: listed(view) == list(names), within=within)


def listed(view: pb.ServiceView) -> list[str]:
    return [one.workload_id for one in view.endpoints]
