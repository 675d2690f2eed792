"""Agents in this process, without a network: each reply to an order contains its result."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import grpc

from persys.model.ids import NodeId
from persys.scheduler.dispatch.agent_client import Close, Stub
from persys.wire.gen.agent.v1 import agent_pb2 as pb


class Fleet:
    """Provides the scheduler's connections."""

    def __init__(self) -> None:
        self.agents: dict[str, Agent] = {}

    def agent(self, node_id: str) -> "Agent":
        return self.agents.setdefault(node_id, Agent())

    def connect(self, node_id: NodeId, _endpoint: str) -> tuple[Stub, Close]:
        async def close(_grace: float | None) -> None:
            """Nothing is open."""

        # The methods of the stub that the scheduler calls.
        return cast("Stub", self.agent(node_id)), close


class Agent:
    def __init__(self) -> None:
        self.copies: dict[str, pb.WorkloadStatus] = {}
        self.intents: list[pb.IntentView] = []
        self.images: set[str] = set()

    def has(self, name: str, *, epoch: int = 0, revision: str = "r1") -> None:
        self.copies[name] = pb.WorkloadStatus(
            id=name,
            type=pb.WORKLOAD_TYPE_CONTAINER,
            revision_id=revision,
            desired_state=pb.DESIRED_STATE_RUNNING,
            actual_state=pb.ACTUAL_STATE_RUNNING,
            epoch=epoch,
        )

    async def ApplyWorkload(  # noqa: N802
        self, request: pb.ApplyWorkloadRequest, **_: Any
    ) -> pb.ApplyWorkloadResponse:
        await asyncio.sleep(0)
        self.has(request.id, epoch=request.epoch, revision=request.revision_id)
        status = self.copies[request.id]
        status.proof = request.proof
        if request.desired_state == pb.DESIRED_STATE_STOPPED:
            status.actual_state = pb.ACTUAL_STATE_STOPPED
        return pb.ApplyWorkloadResponse(applied=True, status=status)

    async def DeleteWorkload(  # noqa: N802
        self, request: pb.DeleteWorkloadRequest, **_: Any
    ) -> pb.DeleteWorkloadResponse:
        await asyncio.sleep(0)
        self.copies.pop(request.id, None)
        return pb.DeleteWorkloadResponse(success=True)

    async def GetWorkloadStatus(  # noqa: N802
        self, request: pb.GetWorkloadStatusRequest, **_: Any
    ) -> pb.GetWorkloadStatusResponse:
        await asyncio.sleep(0)
        if request.id not in self.copies:
            raise _not_found(request.id)
        return pb.GetWorkloadStatusResponse(status=self.copies[request.id])

    async def ListWorkloads(  # noqa: N802
        self, _request: pb.ListWorkloadsRequest, **_: Any
    ) -> pb.ListWorkloadsResponse:
        await asyncio.sleep(0)
        return pb.ListWorkloadsResponse(workloads=self.copies.values())

    async def ListIntents(  # noqa: N802
        self, _request: pb.ListIntentsRequest, **_: Any
    ) -> AsyncIterator[pb.IntentView]:
        for intent in self.intents:
            yield intent

    async def HealthCheck(  # noqa: N802
        self, _request: pb.HealthCheckRequest, **_: Any
    ) -> pb.HealthCheckResponse:
        await asyncio.sleep(0)
        return pb.HealthCheckResponse(healthy=True)

    async def ListActions(  # noqa: N802
        self, _request: pb.ListActionsRequest, **_: Any
    ) -> pb.ListActionsResponse:
        await asyncio.sleep(0)
        return pb.ListActionsResponse()

    async def ListImages(  # noqa: N802
        self, _request: pb.ListImagesRequest, **_: Any
    ) -> pb.ListImagesResponse:
        await asyncio.sleep(0)
        return pb.ListImagesResponse(images=[pb.ImageView(name=name) for name in self.images])

    async def RemoveImage(  # noqa: N802
        self, request: pb.RemoveImageRequest, **_: Any
    ) -> pb.RemoveImageResponse:
        await asyncio.sleep(0)
        self.images.discard(request.name)
        return pb.RemoveImageResponse(success=True)

    async def DeleteVolume(  # noqa: N802
        self, _request: pb.DeleteVolumeRequest, **_: Any
    ) -> pb.DeleteVolumeResponse:
        await asyncio.sleep(0)
        return pb.DeleteVolumeResponse(success=True)


def _not_found(name: str) -> grpc.aio.AioRpcError:
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(
        grpc.StatusCode.NOT_FOUND, nothing, nothing, f"workload {name} not found"
    )
