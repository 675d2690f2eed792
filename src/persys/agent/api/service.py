"""The gRPC service of the agent: decode the request, call its use case, encode the response.

A mutating method (see the method table) runs in a task of the process: it completes even if the caller
disconnects.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial, wraps
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from persys.agent.access.sessions import SessionService
from persys.agent.api.images import ImageApi
from persys.agent.api.orders import OrderApi
from persys.agent.garbage_collection import GarbageCollector
from persys.agent.journal.store import Journal
from persys.agent.metrics import Metrics
from persys.agent.networks.controller import NetworkController
from persys.agent.node.usage import UtilizationSampler, WorkloadUsageSampler
from persys.agent.ports import Runtime
from persys.agent.settings import AgentSettings
from persys.agent.uplink.heartbeat import Refusals
from persys.agent.volumes.inventory import Inventory
from persys.agent.workloads.orders import OrderService
from persys.core.agent.report import select_actions
from persys.errors import (
    InvalidError,
    NotFoundError,
    PersysError,
    RefusedError,
    RuntimeUnavailableError,
)
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.clock import Clock
from persys.infra.rpc.authorizer import Authorizer
from persys.infra.telemetry import tracing
from persys.infra.telemetry.call_metrics import CallMetrics
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from persys.model.ids import NodeId, workload_id
from persys.model.spec import WorkloadType
from persys.model.workload import Desired
from persys.wire.agent import messages as wire
from persys.wire.agent.networks import configuration as network_configuration
from persys.wire.errors import grpc_code
from persys.wire.gen.agent.v1 import agent_pb2, agent_pb2_grpc
from persys.wire.limits import check as limits_check
from persys.wire.methods import AGENT_METHODS, AGENT_PERMISSIONS, Method
from persys.wire.spec.volume import agent_view

PING_DEADLINE_SECONDS = 5.0
SERVICE = "persys.agent.v1.AgentService"
SERVICE_DESCRIPTOR = agent_pb2.DESCRIPTOR.services_by_name["AgentService"]
REFUSED_REVISION = "refused_revision"
REFUSED_REASON = "refused_reason"
# The response of these methods carries validation errors, so limits are checked when the order is decoded.
REFUSES_IN_ANSWER = frozenset({"ApplyWorkload", "ApplyWorkloads"})
Api = TypeVar("Api", bound="AgentApi")
Request = TypeVar("Request")
Answer = TypeVar("Answer")
Context = grpc.aio.ServicerContext[object, object]


def _translated(
    call: Callable[[Api, Request, Context], Awaitable[Answer]],
) -> Callable[[Api, Request, Context], Awaitable[Answer]]:
    """Trace a method, run it in an owned task if it mutates, and map its errors to a gRPC status.

    An unexpected exception affects this call only.
    """
    method = AGENT_METHODS[call.__name__]
    name = f"{SERVICE}/{method.name}"

    @wraps(call)
    async def answer(api: Api, request: Request, context: Context) -> Answer:
        with (
            tracing.server_span(name, context.invocation_metadata) as span,
            api.counted(method) as outcome,
        ):
            errors: list[InternalError] = []
            code, text = grpc.StatusCode.INTERNAL, ""
            with api.supervisor.contain("call", method.name, failed=errors.append):
                try:
                    if isinstance(request, Message) and method.name not in REFUSES_IN_ANSWER:
                        limits_check.check(request)
                    work = partial(call, api, request, context)
                    if method.mutating:
                        answered = await api.owned.finish("call", method.name, work)
                    else:
                        answered = await work()
                    outcome.code = grpc.StatusCode.OK.name
                    span.answered(outcome.code)
                    return answered
                except PersysError as err:
                    code, text = grpc_code(err), str(err)
            outcome.code = code.name
            span.answered(code.name)
            return await context.abort(code, text or f"internal error: {errors[0].text}")

    return answer


class Outcome:
    """The status code of a call. The default applies when the call is cancelled."""

    def __init__(self) -> None:
        self.code = grpc.StatusCode.CANCELLED.name


class AgentApi(agent_pb2_grpc.AgentServiceServicer):
    def __init__(
        self,
        node_id: NodeId,
        version: str,
        *,
        journal: Journal,
        orders: OrderService,
        host_sampler: UtilizationSampler,
        runtimes: Mapping[WorkloadType, Runtime],
        clock: Clock,
        sessions: SessionService,
        usage_sampler: WorkloadUsageSampler,
        garbage: GarbageCollector,
        inventory: Inventory,
        images: Callable[[], ImageApi | None],
        supervisor: Supervisor,
        owned: OwnedWork,
        calls: CallMetrics,
        refusals: Refusals,
        networks: NetworkController | None = None,
    ) -> None:
        """`images` returns None while this node has no libvirt. `networks` is None without Docker."""
        self.supervisor = supervisor
        self.owned = owned
        self._node_id = node_id
        self._version = version
        self._journal = journal
        self._orders = orders
        self._host_sampler = host_sampler
        self._runtimes = runtimes
        self._clock = clock
        self._sessions = sessions
        self._usage_sampler = usage_sampler
        self._garbage = garbage
        self._inventory = inventory
        self._images = images
        self._calls = calls
        self._refusals = refusals
        self._networks = networks
        self._order_api = OrderApi(
            node_id,
            journal=journal,
            orders=orders,
            usage_sampler=usage_sampler,
            clock=clock,
            supervisor=supervisor,
            refusals=refusals,
        )
        for name in AGENT_METHODS:
            calls.expect(name)

    @contextmanager
    def counted(self, method: Method) -> Iterator[Outcome]:
        """Count a call, and measure its duration unless it is a stream."""
        began, outcome = self._clock.monotonic(), Outcome()
        try:
            yield outcome
        finally:
            if method.stream.of_answers:
                self._calls.count(method.name, outcome.code)
            else:
                seconds = self._clock.monotonic() - began
                self._calls.add(method.name, outcome.code, seconds)

    @_translated
    async def ApplyWorkload(
        self, request: agent_pb2.ApplyWorkloadRequest, _context: Context
    ) -> agent_pb2.ApplyWorkloadResponse:
        return await self._order_api.apply(request)

    @_translated
    async def ApplyWorkloads(
        self, request: agent_pb2.ApplyWorkloadsRequest, _context: Context
    ) -> agent_pb2.ApplyWorkloadsResponse:
        return await self._order_api.apply_all(request.orders)

    @_translated
    async def DeleteWorkload(
        self, request: agent_pb2.DeleteWorkloadRequest, _context: Context
    ) -> agent_pb2.DeleteWorkloadResponse:
        named = workload_id(request.id, field="id")
        message = await self._orders.delete(named, request.epoch, keeps_data=request.keep_data)
        self._refusals.drop(named)
        return agent_pb2.DeleteWorkloadResponse(success=True, message=message)

    @_translated
    async def GetWorkloadStatus(
        self, request: agent_pb2.GetWorkloadStatusRequest, _context: Context
    ) -> agent_pb2.GetWorkloadStatusResponse:
        entry = self._journal.entries.get(workload_id(request.id, field="id"))
        refused = self._refusals.get(request.id)
        if entry is None and refused is None:
            raise NotFoundError("workload", request.id)
        if entry is None:
            return agent_pb2.GetWorkloadStatusResponse(status=refused)
        status = self._order_api.status(entry)
        if refused is not None:  # a later order was refused; the workload itself is unchanged
            status.metadata[REFUSED_REVISION] = refused.revision_id
            status.metadata[REFUSED_REASON] = refused.message
        return agent_pb2.GetWorkloadStatusResponse(status=status)

    @_translated
    async def ListWorkloads(
        self, request: agent_pb2.ListWorkloadsRequest, _context: Context
    ) -> agent_pb2.ListWorkloadsResponse:
        wanted = wire.workload_type(request.type)
        if request.type and wanted is None:
            raise InvalidError("type", f"invalid workload type {request.type}: expected 1, 2 or 3")
        return agent_pb2.ListWorkloadsResponse(
            workloads=[
                self._order_api.status(entry)
                for _, entry in sorted(self._journal.entries.items())
                if wanted is None or entry.order.type is wanted
            ]
        )

    @_translated
    async def HealthCheck(
        self, _request: agent_pb2.HealthCheckRequest, _context: Context
    ) -> agent_pb2.HealthCheckResponse:
        runtimes = {kind.value: await self._runtime_status(kind) for kind in WorkloadType}
        journal_problem = self._journal.problem()
        if journal_problem:
            runtimes["journal"] = f"unhealthy: {journal_problem}"
        used = self._host_sampler.utilization()
        return agent_pb2.HealthCheckResponse(
            healthy=not journal_problem
            and all(runtimes[kind.value] == "healthy" for kind in self._runtimes),
            version=self._version,
            runtime_status=runtimes,
            memory_utilization=used.memory,
            cpu_utilization=used.cpu,
            disk_utilization=used.disk,
        )

    @_translated
    async def ListActions(
        self, request: agent_pb2.ListActionsRequest, _context: Context
    ) -> agent_pb2.ListActionsResponse:
        if request.limit < 0:
            raise InvalidError(
                "limit",
                f"invalid value {request.limit}: expected 0 (no limit) or a positive number",
            )
        found = select_actions(
            self._journal.actions.values(),
            workload_id=request.workload_id,
            kind=request.action_type,
            state=request.status,
            limit=request.limit,
            newest_first=request.newest_first,
        )
        return agent_pb2.ListActionsResponse(actions=[wire.action_message(each) for each in found])

    async def ListIntents(
        self, _request: agent_pb2.ListIntentsRequest, _context: Context
    ) -> AsyncIterator[agent_pb2.IntentView]:
        """Workloads that are being deleted are left out, so that a recovery does not restore them."""
        with self.counted(AGENT_METHODS["ListIntents"]) as outcome:
            for named, entry in sorted(self._journal.entries.items()):
                if entry.intent and entry.order.desired is not Desired.DELETED:
                    yield agent_pb2.IntentView(
                        id=named, epoch=entry.order.epoch, intent=entry.intent
                    )
            outcome.code = grpc.StatusCode.OK.name

    @_translated
    async def StreamLogs(self, request: agent_pb2.LogsRequest, context: Context) -> None:
        await self._sessions.logs(request, context.write)

    @_translated
    async def Exec(self, requests: AsyncIterator[agent_pb2.ExecInput], context: Context) -> None:
        await self._sessions.exec(requests, context.write)

    @_translated
    async def GarbageCollect(
        self, request: agent_pb2.GarbageCollectRequest, _context: Context
    ) -> agent_pb2.GarbageCollectResponse:
        found = await self._garbage.collect(dry_run=request.dry_run)
        return agent_pb2.GarbageCollectResponse(
            dry_run=request.dry_run,
            items=[
                agent_pb2.GarbageItem(
                    kind=each.item.kind,
                    name=each.item.name,
                    workload_id=each.item.workload_id,
                    reason=each.why,
                    removed=each.removed,
                    problem=each.problem,
                )
                for each in found
            ],
        )

    @_translated
    async def ListVolumes(
        self, _request: agent_pb2.ListVolumesRequest, _context: Context
    ) -> agent_pb2.ListVolumesResponse:
        seen = await self._inventory.seen()
        return agent_pb2.ListVolumesResponse(volumes=[agent_view(each) for each in seen])

    @_translated
    async def DeleteVolume(
        self, request: agent_pb2.DeleteVolumeRequest, _context: Context
    ) -> agent_pb2.DeleteVolumeResponse:
        """A refusal is returned with status OK, to distinguish it from a node that does not respond."""
        named = workload_id(request.workload_id)
        try:
            await self._inventory.delete(named, request.name)
        except RefusedError as err:
            return agent_pb2.DeleteVolumeResponse(success=False, message=str(err))
        return agent_pb2.DeleteVolumeResponse(success=True, message="deleted")

    @_translated
    async def ListImages(
        self, _request: agent_pb2.ListImagesRequest, _context: Context
    ) -> agent_pb2.ListImagesResponse:
        images = self._images()
        return agent_pb2.ListImagesResponse() if images is None else await images.list()

    @_translated
    async def AddImage(
        self, requests: AsyncIterator[agent_pb2.AddImageRequest], context: Context
    ) -> None:
        images = self._images()
        if images is None:
            raise RefusedError(
                "this node has no VM image store: it does not run VMs, or stands for another cluster; "
                "add the image there"
            )
        await images.add(requests, context.write)

    @_translated
    async def RemoveImage(
        self, request: agent_pb2.RemoveImageRequest, _context: Context
    ) -> agent_pb2.RemoveImageResponse:
        images = self._images()
        if images is None:
            raise NotFoundError("image", request.name)
        return await images.remove(request.name)

    @_translated
    async def ConfigureNetworks(
        self, request: agent_pb2.ConfigureNetworksRequest, _context: Context
    ) -> agent_pb2.ConfigureNetworksResponse:
        """The response is sent when the journal has the configuration; it is applied after that."""
        if self._networks is None:
            raise RefusedError("this node cannot have networks: it has no Docker")
        if self._networks.host_problem:
            raise RefusedError(f"this node cannot have networks: {self._networks.host_problem}")
        configuration = network_configuration(request)
        await self._networks.configure(configuration)
        return agent_pb2.ConfigureNetworksResponse(version=configuration.version)

    async def _runtime_status(self, kind: WorkloadType) -> str:
        if kind not in self._runtimes:
            return "runtime not available"
        try:
            async with asyncio.timeout(PING_DEADLINE_SECONDS):
                await self._runtimes[kind].ping()
        except RuntimeUnavailableError as err:
            return f"unhealthy: {err}"
        except TimeoutError:
            return f"unhealthy: no response within {PING_DEADLINE_SECONDS:g} s"
        return "healthy"


def build_authorizer(
    settings: AgentSettings, tls: Tls | None, clock: Clock, metrics: Metrics
) -> Authorizer | None:
    """Admits schedulers, and admins if the settings allow them. None: the agent serves without TLS."""
    if tls is None or not settings.serves_tls:
        return None
    refused_roles = frozenset() if settings.allow_admin else frozenset({Role.ADMIN})
    return Authorizer(
        AGENT_PERMISSIONS,
        tls.certificates,
        clock,
        denied=lambda denial: metrics.denied(denial.role, denial.method),
        narrow=lambda caller, method, request: request,
        refused_roles=refused_roles,
        check=tls.check,
        tokens=None,
        is_revoked=tls.is_revoked,
        gateway_role=Role.GATEWAY,
        cn_roles=tls.cn_roles,
    )
