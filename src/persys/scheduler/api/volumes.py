"""Volumes. Only the nodes know their volumes, so each node is called for its own."""

from datetime import timedelta

from persys.errors import NotFoundError, RefusedError
from persys.model.ids import NodeId, WorkloadId, workload_id
from persys.model.node import Node
from persys.scheduler.api.context import Context, need
from persys.scheduler.dispatch.agent_client import AgentClient
from persys.scheduler.dispatch.fan_out import NodeReplies, call_all, select_nodes
from persys.scheduler.state.cluster import ClusterState
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec.volume import control_view

Views = list[control_pb2.VolumeView]

DELETE_DEADLINE = timedelta(seconds=60)  # deleting a large volume is slow


class VolumesApi:
    def __init__(self, cluster: ClusterState, agents: AgentClient) -> None:
        self._cluster = cluster
        self._agents = agents

    async def ListVolumes(
        self, request: control_pb2.ListVolumesRequest, context: Context
    ) -> control_pb2.ListVolumesResponse:
        found = await self._found(request)
        return control_pb2.ListVolumesResponse(
            volumes=[view for _, views in sorted(found.by_node.items()) for view in views],
            problems=[
                control_pb2.NodeProblem(node_id=node_id, problem=problem)
                for node_id, problem in sorted(found.problems.items())
            ],
        )

    async def DeleteVolume(
        self, request: control_pb2.DeleteVolumeRequest, context: Context
    ) -> control_pb2.DeleteVolumeResponse:
        workload_id(request.workload_id)
        need(request.name, "name")
        await self._delete(request)
        return control_pb2.DeleteVolumeResponse(success=True)

    async def _delete(self, request: control_pb2.DeleteVolumeRequest) -> None:
        named = NodeId(request.node_id) if request.node_id else await self._only_holder(request)
        (node,) = select_nodes(self._cluster, [named])
        entry = self._cluster.workloads.get(WorkloadId(request.workload_id))
        bound = entry.assignment if entry is not None else None
        if bound is not None and bound.node_id == node.id:
            # Its order may not have reached the node yet.
            raise RefusedError(
                f"workload {request.workload_id} is assigned to {node.id}; delete the workload first"
            )
        answer = await self._agents.call(
            node.id,
            node.endpoint,
            "DeleteVolume",
            agent_pb2.DeleteVolumeRequest(workload_id=request.workload_id, name=request.name),
            deadline=DELETE_DEADLINE,
        )
        if not answer.success:
            raise RefusedError(f"node {node.id}: {answer.message}")

    async def _only_holder(self, request: control_pb2.DeleteVolumeRequest) -> NodeId:
        """The only node that has the volume. A node that does not reply may have it too."""
        found = await self._found(
            control_pb2.ListVolumesRequest(workload_id=request.workload_id, name=request.name)
        )
        holders = sorted(node_id for node_id, views in found.by_node.items() if views)
        wanted = f"{request.workload_id}/{request.name}"
        if len(holders) == 1:
            return holders[0]
        if holders:
            raise RefusedError(
                f"volume {wanted} is on several nodes ({', '.join(holders)}); set node_id"
            )
        if found.problems:
            silent = ", ".join(sorted(found.problems))
            raise RefusedError(
                f"volume {wanted} was not found, but these nodes did not reply: {silent}; retry later"
            )
        raise NotFoundError("volume", wanted)

    async def _found(self, request: control_pb2.ListVolumesRequest) -> NodeReplies[Views]:
        async def of(node: Node) -> Views:
            answer = await self._agents.call(
                node.id, node.endpoint, "ListVolumes", agent_pb2.ListVolumesRequest()
            )
            return [
                control_view(view, node.id)
                for view in answer.volumes
                if request.workload_id in ("", view.workload_id) and request.name in ("", view.name)
            ]

        return await call_all(select_nodes(self._cluster, [request.node_id]), of)
