"""Volumes and VM images. They are stored on the nodes, so each node is called for its own."""

from collections.abc import Iterable
from datetime import timedelta

from persys.errors import InvalidError, NotFoundError, RefusedError
from persys.model.ids import NodeId, WorkloadId, workload_id
from persys.model.node import Node, NodeStatus
from persys.model.spec import VMSpec, WorkloadType
from persys.scheduler.api.methods import Context, need
from persys.scheduler.dispatch.agent_client import AgentClient
from persys.scheduler.dispatch.fan_out import NodeReplies, call_all, select_nodes
from persys.scheduler.dispatch.image_upload import Inputs, upload_to_nodes
from persys.scheduler.state.cluster import ClusterState
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.spec.image import checked_name, checked_sha256, control_views
from persys.wire.spec.volume import control_view

VolumeViews = list[control_pb2.VolumeView]
ImageViews = list[agent_pb2.ImageView]
DELETE_DEADLINE = timedelta(seconds=60)  # deleting a large volume is slow
REMOVE_DEADLINE = timedelta(seconds=30)


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
            problems=_problems(found.problems),
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

    async def _found(self, request: control_pb2.ListVolumesRequest) -> NodeReplies[VolumeViews]:
        async def of(node: Node) -> VolumeViews:
            answer = await self._agents.call(
                node.id, node.endpoint, "ListVolumes", agent_pb2.ListVolumesRequest()
            )
            return [
                control_view(view, node.id)
                for view in answer.volumes
                if request.workload_id in ("", view.workload_id) and request.name in ("", view.name)
            ]

        return await call_all(select_nodes(self._cluster, [request.node_id]), of)


class ImagesApi:
    def __init__(self, cluster: ClusterState, agents: AgentClient) -> None:
        self._cluster = cluster
        self._agents = agents

    async def ListImages(
        self, request: control_pb2.ListImagesRequest, context: Context
    ) -> control_pb2.ListImagesResponse:
        found = await self._found(request.name, [request.node_id])
        return control_pb2.ListImagesResponse(
            images=control_views(sorted(found.by_node.items())), problems=_problems(found.problems)
        )

    async def AddImage(self, inputs: Inputs, context: Context) -> None:
        first = await anext(inputs, None)
        if first is None or not first.HasField("start"):
            raise InvalidError("start", "is missing: expected it in the first message of an upload")
        start = first.start
        nodes = self._nodes(start.node_ids)
        if not start.node_ids:
            nodes = [node for node in nodes if node.status is not NodeStatus.NOT_READY]
        if not nodes:
            raise RefusedError(
                "no ready node runs virtual machines, so no node can store the image; "
                "name a node with node_ids, or add one with a VM runtime"
            )
        order = agent_pb2.AddImageStart(
            name=checked_name(start.name),
            url=start.url,
            sha256=checked_sha256(start.sha256),
            size_bytes=start.size_bytes,
        )
        await upload_to_nodes(nodes, self._agents, order, inputs, context.write)

    async def RemoveImage(
        self, request: control_pb2.RemoveImageRequest, context: Context
    ) -> control_pb2.RemoveImageResponse:
        """Raises NotFoundError if no node has the image. Nodes that do not reply are listed as problems."""
        need(request.name, "name")
        found = await self._found(request.name, request.node_ids)
        holders = [node_id for node_id, views in found.by_node.items() if views]
        problems = dict(found.problems)
        for node_id in found.by_node:
            if request.node_ids and node_id not in holders:
                problems[node_id] = f"has no image {request.name}"
        if not holders and not problems:
            raise NotFoundError("image", request.name)
        removed = await call_all(
            select_nodes(self._cluster, holders) if holders else (),
            lambda node: self._remove(node, request.name),
        )
        return control_pb2.RemoveImageResponse(
            node_ids=sorted(removed.by_node), problems=_problems({**problems, **removed.problems})
        )

    async def _remove(self, node: Node, name: str) -> None:
        if bound := self._bound(node.id, name):
            # Their orders may not have reached the node yet.
            raise RefusedError(f"image {name} is used by {', '.join(bound)}")
        answer = await self._agents.call(
            node.id,
            node.endpoint,
            "RemoveImage",
            agent_pb2.RemoveImageRequest(name=name),
            deadline=REMOVE_DEADLINE,
        )
        if not answer.success:
            raise RefusedError(answer.message)

    def _bound(self, node_id: NodeId, name: str) -> list[str]:
        """Workloads that are assigned to the node and start from the image."""
        bound = {
            workload_id: self._cluster.workloads[workload_id].workload.spec
            for workload_id in self._cluster.on_node.get(node_id, ())
        }
        return sorted(
            workload_id
            for workload_id, spec in bound.items()
            if isinstance(spec, VMSpec) and spec.os_image == name
        )

    async def _found(self, name: str, node_ids: Iterable[str]) -> NodeReplies[ImageViews]:
        async def of(node: Node) -> ImageViews:
            answer = await self._agents.call(
                node.id, node.endpoint, "ListImages", agent_pb2.ListImagesRequest()
            )
            return [view for view in answer.images if name in ("", view.name)]

        return await call_all(self._nodes(node_ids), of)

    def _nodes(self, node_ids: Iterable[str]) -> list[Node]:
        """The named nodes, or all that run virtual machines. Raises NotFoundError."""
        named = [node_id for node_id in node_ids if node_id]
        nodes = select_nodes(self._cluster, named)
        return [node for node in nodes if named or WorkloadType.VM in node.capabilities.types]


def _problems(problems: dict[NodeId, str]) -> list[control_pb2.NodeProblem]:
    return [
        control_pb2.NodeProblem(node_id=node_id, problem=problem)
        for node_id, problem in sorted(problems.items())
    ]
