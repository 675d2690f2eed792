"""Nodes: registration and heartbeats of agents, and the commands of operators.

RegisterNode and the commands of operators refuse with OK and a reason in the response; reads refuse with
status codes.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from persys.core import nodes
from persys.core.registration import Registration
from persys.errors import InvalidError, PersysError, SupersededError
from persys.infra.clock import Clock
from persys.infra.rpc.authorizer import CALLER, CLIENT_CLAIMS
from persys.model.event import EventKind
from persys.model.ids import NodeId, node_id
from persys.model.node import Capabilities, Node
from persys.scheduler.api.methods import Context, need
from persys.scheduler.ha.leader_lease import LeaderLease
from persys.scheduler.membership import heartbeat
from persys.scheduler.membership.certificate_expiry import CertificateExpiry
from persys.scheduler.membership.nodes import Membership
from persys.scheduler.queries.views import Queries
from persys.scheduler.recovery.mode import ModeTracker
from persys.wire.control import messages as control_messages
from persys.wire.control.placement import node_taints
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits import check as limits_check
from persys.wire.times import timestamp

DRAIN_SECONDS_MAX = 30 * 24 * 3600


class NodesApi:
    def __init__(
        self,
        membership: Membership,
        queries: Queries,
        clock: Clock,
        *,
        heartbeat_seconds: int,
        modes: ModeTracker,
        leader_lease: LeaderLease,
        limited: heartbeat.ReportLimits,
        expiry: CertificateExpiry | None = None,
    ) -> None:
        """`expiry` checks the client certificates of heartbeats, if TLS is used."""
        self._membership = membership
        self._queries = queries
        self._clock = clock
        self._heartbeat_seconds = heartbeat_seconds
        self._modes = modes
        self._leader_lease = leader_lease
        self._limited = limited
        self._expiry = expiry

    async def RegisterNode(
        self, request: control_pb2.RegisterNodeRequest, context: Context
    ) -> control_pb2.RegisterNodeResponse:
        return await self.register(request, streamed=False)

    async def register(
        self, request: control_pb2.RegisterNodeRequest, *, streamed: bool
    ) -> control_pb2.RegisterNodeResponse:
        """`streamed`: over the control stream, on which the agent can also be called."""
        need(request.node_id, "node_id")
        try:
            self._limited.note(node_id(request.node_id), limits_check.trim(request))
            marker = await self._membership.register(
                Registration(
                    self._node(request, streamed=streamed),
                    instance_id=request.instance_id,
                    session_id=request.session_id,
                    enrolled_at=_enrolled_at(),
                    shared_from=_shared_from(),
                    is_proven=_is_proven(request.node_id),
                    boot_id=request.boot_id,
                    known_by_host=_is_known_by_host(),
                ),
                cluster_uid=request.cluster_uid,
                workload_count=request.workload_count,
            )
        except PersysError as err:
            return control_pb2.RegisterNodeResponse(
                accepted=False, reason=str(err), superseded=isinstance(err, SupersededError)
            )
        return control_pb2.RegisterNodeResponse(
            accepted=True,
            heartbeat_interval_seconds=self._heartbeat_seconds,
            lease_expires_at=timestamp(self._membership.lease_ends_at(node_id(request.node_id))),
            cluster_uid=marker.uid,
            instance_id=self._membership.instance_of(node_id(request.node_id)),
        )

    def stream_opened(self, opened_by: NodeId) -> None:
        self._membership.stream_opened(opened_by)

    async def Heartbeat(
        self, request: control_pb2.HeartbeatRequest, context: Context
    ) -> control_pb2.HeartbeatResponse:
        need(request.node_id, "node_id")
        sender = node_id(request.node_id)
        now = self._clock.now()
        self._membership.check_host(sender, _shared_from())
        self._membership.check_instance(sender, request.instance_id)
        statuses = self._membership.statuses_of(sender)
        report = heartbeat.read(request, sender, statuses, now, self._limited)
        await self._membership.heartbeat(sender, report)
        if self._expiry is not None:
            await self._expiry.check(sender)
        return control_pb2.HeartbeatResponse(
            acknowledged=True,
            # While nothing can be written no node gets new work; running workloads continue.
            drain_node=self._modes.is_frozen or self._membership.is_draining(sender),
            lease_expires_at=timestamp(self._membership.lease_ends_at(sender)),
            leads=self._leader_lease.is_confirmed,
        )

    async def ListNodes(
        self, request: control_pb2.ListNodesRequest, context: Context
    ) -> control_pb2.ListNodesResponse:
        return control_pb2.ListNodesResponse(nodes=self._queries.list_nodes(request.status))

    async def GetNode(
        self, request: control_pb2.GetNodeRequest, context: Context
    ) -> control_pb2.GetNodeResponse:
        need(request.node_id, "node_id")
        return control_pb2.GetNodeResponse(node=self._queries.get_node(request.node_id))

    async def CordonNode(
        self, request: control_pb2.NodeRequest, context: Context
    ) -> control_pb2.NodeAnswer:
        return await self._change_node(
            request.node_id,
            EventKind.NODE_CORDONED,
            lambda node: nodes.cordon(node, now=self._clock.now()),
        )

    async def UncordonNode(
        self, request: control_pb2.NodeRequest, context: Context
    ) -> control_pb2.NodeAnswer:
        return await self._change_node(
            request.node_id,
            EventKind.NODE_UNCORDONED,
            lambda node: nodes.uncordon(node, now=self._clock.now()),
        )

    async def TaintNode(
        self, request: control_pb2.TaintNodeRequest, context: Context
    ) -> control_pb2.NodeAnswer:
        taints = node_taints(request.taints)
        return await self._change_node(
            request.node_id,
            EventKind.NODE_TAINTED if taints else EventKind.NODE_UNTAINTED,
            lambda node: nodes.taint(node, taints, now=self._clock.now()),
        )

    async def DrainNode(
        self, request: control_pb2.DrainNodeRequest, context: Context
    ) -> control_pb2.NodeAnswer:
        seconds = request.deadline_seconds
        if not 0 <= seconds <= DRAIN_SECONDS_MAX:
            raise InvalidError("deadline_seconds", f"{seconds}: expected 0 to {DRAIN_SECONDS_MAX}")
        deadline = timedelta(seconds=seconds) if seconds else None
        return await self._change_node(
            request.node_id,
            EventKind.NODE_DRAIN_ASKED,
            lambda node: nodes.drain(node, deadline=deadline, now=self._clock.now()),
        )

    async def ConfirmNodeDead(
        self, request: control_pb2.NodeRequest, context: Context
    ) -> control_pb2.NodeAnswer:
        return await self._change_node(
            request.node_id,
            EventKind.NODE_CONFIRMED_DEAD,
            lambda node: nodes.confirm_dead(node, now=self._clock.now()),
        )

    async def RemoveNode(
        self, request: control_pb2.NodeRequest, context: Context
    ) -> control_pb2.NodeAnswer:
        need(request.node_id, "node_id")
        await self._membership.remove(node_id(request.node_id))
        return control_pb2.NodeAnswer(accepted=True)

    async def _change_node(
        self, wanted: str, kind: EventKind, make: Callable[[Node], Node]
    ) -> control_pb2.NodeAnswer:
        need(wanted, "node_id")
        await self._membership.change(node_id(wanted), kind, make)
        return control_pb2.NodeAnswer(accepted=True, node=self._queries.get_node(wanted))

    def _node(self, request: control_pb2.RegisterNodeRequest, *, streamed: bool) -> Node:
        now = self._clock.now()
        if not request.grpc_endpoint and not streamed:
            raise InvalidError("grpc_endpoint", "is missing: expected HOST:PORT of the agent")
        capabilities = control_messages.capabilities(request.capabilities, request.features)
        _check_capacity(capabilities)
        return Node(
            id=node_id(request.node_id),
            capabilities=capabilities,
            endpoint=request.grpc_endpoint,
            registered_at=now,
            status_reason="registered",
            status_at=now,
            labels=dict(request.labels),
            agent_version=request.agent_version,
            cluster_id=request.cluster_id,
        )


def _enrolled_at() -> datetime | None:
    """When the caller's node enrolled, if its certificate contains it."""
    claims = CLIENT_CLAIMS.get()
    return claims.enrolled_at if claims is not None and claims.has_enrolment_time else None


def _shared_from() -> str | None:
    """The host of a caller whose certificate name is shared by several nodes; None for all others."""
    caller = CALLER.get()
    if caller is None or not caller.shared:
        return None
    return caller.source.rpartition(":")[0] or caller.source


def _is_proven(wanted: str) -> bool:
    caller = CALLER.get()
    return caller is not None and not caller.shared and caller.identity.name == wanted


def _is_known_by_host() -> bool:
    """Whether the caller's certificate has no Persys identity, so that it is verified by host name."""
    claims = CLIENT_CLAIMS.get()
    return claims is not None and not claims.trust_domain


def _check_capacity(has: Capabilities) -> None:
    """Rejects a node without capacity: placement would rank it as the emptiest."""
    kept = has.reserved
    for total_field, total, reserved_field, reserved in (
        (
            "cpu_total_millicores",
            has.cpu_millicores,
            "reserved_cpu_millicores",
            kept.cpu_millicores,
        ),
        ("memory_total_mb", has.memory_mb, "reserved_memory_mb", kept.memory_mb),
    ):
        if total == 0:
            raise InvalidError(
                f"capabilities.{total_field}", "is 0: expected the total of the node"
            )
        if reserved >= total:
            raise InvalidError(
                f"capabilities.{reserved_field}",
                f"{reserved}: expected less than the total of {total}",
            )
