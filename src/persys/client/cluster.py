"""Nodes, drift and orphans; events, explain and plan, mode and recovery.

Calls that transfer the whole state have a long deadline.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

from persys.client.calls import SchedulerCalls
from persys.client.grpc.channel import RequestRefusedError, call, rpc_error, translated_errors
from persys.errors import PersysError
from persys.wire.gen.control.v1 import control_pb2 as pb

if TYPE_CHECKING:
    import grpc

# The watch is renewed after this time: a dead peer would not end it.
ROUND = timedelta(seconds=60)
LONG_TIMEOUT = timedelta(minutes=10)


class NodeCalls(SchedulerCalls):
    def list_nodes(self, *, status: str = "") -> list[pb.NodeView]:
        request = pb.ListNodesRequest(status=status)
        response: pb.ListNodesResponse = call(self._stub.ListNodes, request, timeout=self._timeout)
        return list(response.nodes)

    def get_node(self, node_id: str) -> pb.NodeView:
        request = pb.GetNodeRequest(node_id=node_id)
        response: pb.GetNodeResponse = call(self._stub.GetNode, request, timeout=self._timeout)
        return response.node

    def cordon(self, node_id: str) -> pb.NodeView:
        return self._change_node(self._stub.CordonNode, pb.NodeRequest(node_id=node_id))

    def uncordon(self, node_id: str) -> pb.NodeView:
        return self._change_node(self._stub.UncordonNode, pb.NodeRequest(node_id=node_id))

    def taint(self, node_id: str, taints: Iterable[str]) -> pb.NodeView:
        """Replace all taints of the node."""
        request = pb.TaintNodeRequest(node_id=node_id, taints=sorted(taints))
        return self._change_node(self._stub.TaintNode, request)

    def drain(self, node_id: str, *, deadline: timedelta | None = None) -> pb.NodeView:
        """Returns when the request is stored; `drain.state` of the node shows the progress."""
        seconds = round(deadline.total_seconds()) if deadline is not None else 0
        request = pb.DrainNodeRequest(node_id=node_id, deadline_seconds=seconds)
        return self._change_node(self._stub.DrainNode, request)

    def confirm_dead(self, node_id: str) -> pb.NodeView:
        return self._change_node(self._stub.ConfirmNodeDead, pb.NodeRequest(node_id=node_id))

    def remove_node(self, node_id: str) -> None:
        self._change_node(self._stub.RemoveNode, pb.NodeRequest(node_id=node_id))

    def _change_node(
        self,
        method: Callable[..., pb.NodeAnswer],
        request: pb.NodeRequest | pb.DrainNodeRequest | pb.TaintNodeRequest,
    ) -> pb.NodeView:
        response = call(method, request, timeout=self._timeout)
        if not response.accepted:
            raise RequestRefusedError(response.reason)
        return response.node

    def list_drifts(
        self,
        *,
        node_id: str = "",
        workload_id: str = "",
        type: str = "",  # noqa: A002 - the wire's own name
    ) -> pb.ListDriftsResponse:
        request = pb.ListDriftsRequest(node_id=node_id, workload_id=workload_id, type=type)
        response: pb.ListDriftsResponse = call(
            self._stub.ListDrifts, request, timeout=self._timeout
        )
        return response

    def get_orphan(self, node_id: str, workload_id: str) -> pb.OrphanView:
        """With the spec and the secrets that its node reports."""
        request = pb.OrphanRequest(node_id=node_id, workload_id=workload_id)
        response: pb.OrphanView = call(self._stub.GetOrphan, request, timeout=self._timeout)
        return response

    def adopt_orphan(
        self, node_id: str, workload_id: str, *, allow_secrets: Iterable[str] = ()
    ) -> None:
        """Turn an orphan into a workload on its node, without a restart.

        Refused if its spec refers to secrets that are not in `allow_secrets`.
        """
        self._change_orphan(self._stub.AdoptOrphan, node_id, workload_id, allow_secrets)

    def delete_orphan(self, node_id: str, workload_id: str) -> None:
        """Returns when the request is stored; the node removes the orphan asynchronously."""
        self._change_orphan(self._stub.DeleteOrphan, node_id, workload_id)

    def _change_orphan(
        self,
        method: Callable[..., pb.OrphanAnswer],
        node_id: str,
        workload_id: str,
        allow_secrets: Iterable[str] = (),
    ) -> None:
        request = pb.OrphanRequest(
            node_id=node_id, workload_id=workload_id, allow_secrets=allow_secrets
        )
        response = call(method, request, timeout=self._timeout)
        if not response.accepted:
            raise RequestRefusedError(response.reason)


class ClusterCalls(SchedulerCalls):
    def list_events(
        self,
        *,
        workload_id: str = "",
        node_id: str = "",
        kinds: Iterable[str] = (),
        since: datetime | None = None,
        after: int = 0,
        limit: int = 0,
    ) -> pb.ListEventsResponse:
        """Oldest first. `limit` 0: all stored events."""
        request = pb.ListEventsRequest(
            workload_id=workload_id,
            node_id=node_id,
            kinds=kinds,
            after_sequence=after,
            limit=limit,
        )
        if since is not None:
            request.since.FromDatetime(since)
        response: pb.ListEventsResponse = call(
            self._stub.ListEvents, request, timeout=self._timeout
        )
        return response

    def watch_events(
        self, *, after: int, workload_id: str = "", node_id: str = "", kinds: Iterable[str] = ()
    ) -> Iterator[pb.EventView]:
        """Stream events. Raises UnavailableError when the connection is lost.

        Bookmarks are events with a sequence and no kind. To resume, pass the last received sequence as
        `after`. OutOfRangeError: the following events are no longer stored.
        """
        request = pb.WatchEventsRequest(
            workload_id=workload_id, node_id=node_id, kinds=kinds, bookmarks=True
        )
        while True:
            request.after_sequence = after
            with translated_errors(), _in_rounds():
                for event in self._stub.WatchEvents(request, timeout=ROUND.total_seconds()):
                    after = event.sequence
                    yield event
            self.list_events(limit=1)  # raises UnavailableError if the peer is gone

    def explain(self, workload_id: str, *, limit: int = 0) -> pb.ExplainWorkloadResponse:
        """`limit`: the number of nodes in the response; 0: the scheduler's default."""
        request = pb.ExplainWorkloadRequest(workload_id=workload_id, limit=limit)
        response: pb.ExplainWorkloadResponse = call(
            self._stub.ExplainWorkload, request, timeout=self._timeout
        )
        return response

    def plan(
        self, requests: Iterable[pb.ApplyWorkloadRequest], *, sets: Iterable[pb.SetSpec] = ()
    ) -> list[pb.WorkloadPlan]:
        """What applying these requests in order would do, and then these sets. Changes nothing."""
        request = pb.PlanWorkloadsRequest(workloads=requests, sets=sets)
        response: pb.PlanWorkloadsResponse = call(
            self._stub.PlanWorkloads, request, timeout=self._timeout
        )
        return list(response.plans)

    def get_capacity(self, spec: pb.WorkloadSpec) -> pb.GetCapacityResponse:
        """How many more copies of this spec fit, and which workloads the loss of each node would strand."""
        request = pb.GetCapacityRequest(spec=spec)
        response: pb.GetCapacityResponse = call(
            self._stub.GetCapacity, request, timeout=self._timeout
        )
        return response

    def get_identity(self) -> pb.IdentityView:
        request = pb.GetIdentityRequest()
        response: pb.IdentityView = call(self._stub.GetIdentity, request, timeout=self._timeout)
        return response

    def get_mode(self) -> pb.ModeView:
        request = pb.GetModeRequest()
        response: pb.ModeView = call(self._stub.GetMode, request, timeout=self._timeout)
        return response

    def get_diagnostics(self) -> pb.DiagnosticsView:
        """Internal errors, quarantined records and policy violations."""
        request = pb.GetDiagnosticsRequest()
        response: pb.DiagnosticsView = call(
            self._stub.GetDiagnostics, request, timeout=self._timeout
        )
        return response

    def save_snapshot(self) -> Iterator[bytes]:
        """The chunks of the file, in order."""
        stream = self._stub.SaveSnapshot(
            pb.SaveSnapshotRequest(), timeout=self._long().total_seconds()
        )
        with translated_errors():
            for chunk in stream:
                yield chunk.data

    def restore_snapshot(self, chunks: Iterable[bytes]) -> pb.RecoveryAnswer:
        messages = (pb.SnapshotChunk(data=chunk) for chunk in chunks)
        return self._recover(self._stub.RestoreSnapshot, messages)

    def rebuild_from_agents(
        self, *, dry_run: bool = False, allow_secrets: Iterable[str] = ()
    ) -> pb.RecoveryAnswer:
        """Workloads whose secrets are known only from nodes are skipped unless in `allow_secrets`."""
        request = pb.RebuildFromAgentsRequest(dry_run=dry_run, allow_secrets=allow_secrets)
        return self._recover(self._stub.RebuildFromAgents, request)

    def accept_empty(self) -> pb.RecoveryAnswer:
        return self._recover(self._stub.AcceptEmpty, pb.AcceptEmptyRequest())

    def _recover(
        self, method: Callable[..., pb.RecoveryAnswer], request: object
    ) -> pb.RecoveryAnswer:
        response = call(method, request, timeout=self._long())
        if not response.accepted:
            raise RequestRefusedError(response.reason)
        return response

    def _long(self) -> timedelta:
        return max(self._timeout, LONG_TIMEOUT)


@contextmanager
def _in_rounds() -> Iterator[None]:
    """Ignore DEADLINE_EXCEEDED: the watch is renewed."""
    try:
        yield
    except PersysError:
        raise
    except rpc_error() as err:
        answer = cast("grpc.Call", err)
        if answer.code().name != "DEADLINE_EXCEEDED":
            raise
