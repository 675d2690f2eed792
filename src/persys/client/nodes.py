"""Nodes, drift and orphans."""

from collections.abc import Callable, Iterable
from datetime import timedelta

from persys.client.calls import SchedulerCalls
from persys.client.grpc.channel import RequestRefusedError, call
from persys.wire.gen.control.v1 import control_pb2 as pb


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
