"""The RPCs of services, and their views."""

from collections.abc import Callable

from persys.core.dns_names import Zone
from persys.core.services.names import service_name
from persys.infra.aio.offload import TimeSlice
from persys.infra.clock import Clock
from persys.model.service import Service
from persys.scheduler.api.methods import Context, need
from persys.scheduler.services.endpoint_table import EndpointTable
from persys.scheduler.services.services import Services
from persys.scheduler.state.cluster import ClusterState
from persys.wire.control.services import service_of, service_view
from persys.wire.gen.control.v1 import control_pb2


class ServicesApi:
    def __init__(
        self,
        cluster: ClusterState,
        services: Services,
        table: EndpointTable,
        clock: Clock,
        *,
        zone: Callable[[], Zone],
    ) -> None:
        self._cluster = cluster
        self._services = services
        self._table = table
        self._clock = clock
        self._zone = zone

    async def ApplyService(
        self, request: control_pb2.ApplyServiceRequest, context: Context
    ) -> control_pb2.ServiceAnswer:
        change = await self._services.apply(service_of(request.service, self._clock.now()))
        view = self._view(change.service)
        return control_pb2.ServiceAnswer(accepted=True, service=view, outcome=change.outcome)

    async def ListServices(
        self, request: control_pb2.ListServicesRequest, context: Context
    ) -> control_pb2.ListServicesResponse:
        found, pause = [], TimeSlice(self._clock)
        for service in self._services.all():
            found.append(self._view(service, endpoints=request.endpoints, excluded=False))
            await pause.between()
        return control_pb2.ListServicesResponse(services=found)

    async def GetService(
        self, request: control_pb2.GetServiceRequest, context: Context
    ) -> control_pb2.GetServiceResponse:
        need(request.service_id, "service_id")
        view = self._view(self._services.get(request.service_id))
        return control_pb2.GetServiceResponse(service=view)

    async def DeleteService(
        self, request: control_pb2.ServiceRequest, context: Context
    ) -> control_pb2.ServiceAnswer:
        need(request.service_id, "service_id")
        service = await self._services.delete(request.service_id)
        view = self._view(service, endpoints=False, excluded=False)
        return control_pb2.ServiceAnswer(accepted=True, service=view)

    def _view(
        self, service: Service, *, endpoints: bool = True, excluded: bool = True
    ) -> control_pb2.ServiceView:
        return service_view(
            service,
            self._table.of(service),
            dns_name=service_name(service.service_id, self._zone()),
            member_count=len(self._cluster.service_members.of(service.service_id)),
            endpoints=endpoints,
            excluded=excluded,
        )
