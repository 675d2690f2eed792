"""Events, explain and plan, mode and recovery.

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

    def plan(self, requests: Iterable[pb.ApplyWorkloadRequest]) -> list[pb.WorkloadPlan]:
        """What applying these requests in order would do. Changes nothing."""
        request = pb.PlanWorkloadsRequest(workloads=requests)
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
