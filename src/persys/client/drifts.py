"""Drift and orphans."""

from collections.abc import Callable, Iterable

from persys.client.call import RequestRefusedError, call
from persys.client.calls import SchedulerCalls
from persys.wire.gen.control.v1 import control_pb2 as pb


class DriftCalls(SchedulerCalls):
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
        self._say(self._stub.AdoptOrphan, node_id, workload_id, allow_secrets)

    def delete_orphan(self, node_id: str, workload_id: str) -> None:
        """Returns when the request is stored; the node removes the orphan asynchronously."""
        self._say(self._stub.DeleteOrphan, node_id, workload_id)

    def _say(
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
