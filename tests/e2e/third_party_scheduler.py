"""A third-party scheduler with our agent: the messages it received, and its calls."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from third_party.contract import agent, control
from third_party.programs import Program

CALL_SECONDS = 10
DEADLINE_SECONDS = 60


class ThirdPartyScheduler(Program):
    def __init__(self, folder: Path) -> None:
        super().__init__("scheduler", folder)

    # Received messages.

    @property
    def registrations(self) -> list[Any]:
        return self._received("registration", control.RegisterNodeRequest)

    @property
    def heartbeats(self) -> list[Any]:
        return self._received("heartbeat", control.HeartbeatRequest)

    def _received(self, what: str, kind: Any) -> list[Any]:
        path = self.folder / "received.jsonl"
        complete = path.read_text().rpartition("\n")[0] if path.exists() else ""
        found = map(json.loads, complete.splitlines())
        return [kind.FromString(b64decode(one["message"])) for one in found if one["what"] == what]

    def reported_states(self, workload_id: str) -> list[str]:
        """The states of a workload, in the order of the heartbeats."""
        return [
            status.state
            for heartbeat in self.heartbeats
            for status in heartbeat.workload_statuses
            if status.workload_id == workload_id
        ]

    # Calls.

    async def apply(
        self,
        workload_id: str,
        container: Any,
        *,
        revision: str,
        desired: int = agent.DESIRED_STATE_RUNNING,
    ) -> Any:
        request = agent.ApplyWorkloadRequest(
            id=workload_id,
            type=agent.WORKLOAD_TYPE_CONTAINER,
            revision_id=revision,
            desired_state=desired,
            spec=agent.WorkloadSpec(container=container),
        )
        return await self._call("ApplyWorkload", request)

    async def delete(self, workload_id: str) -> Any:
        request = agent.DeleteWorkloadRequest(id=workload_id)
        return await self._call("DeleteWorkload", request)

    async def status(self, workload_id: str) -> Any:
        """None: the agent reported a missing workload."""
        request = agent.GetWorkloadStatusRequest(id=workload_id)
        try:
            response = await self._call("GetWorkloadStatus", request)
        except grpc.aio.AioRpcError as err:
            if "not found" in (err.details() or ""):
                return None
            raise
        return response.status

    async def listed(self) -> dict[str, Any]:
        response = await self._call("ListWorkloads", agent.ListWorkloadsRequest())
        return {status.id: status for status in response.workloads}

    # Waiting.

    async def poll_until(self, workload_id: str, actual: int) -> Any:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while True:
                status = await self.status(workload_id)
                if status is not None and status.actual_state == actual:
                    return status
                await asyncio.sleep(0.05)

    async def poll_until_not_found(self, workload_id: str) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while await self.status(workload_id) is not None:  # noqa: ASYNC110 - it can only poll
                await asyncio.sleep(0.05)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not holds():  # noqa: ASYNC110 - received messages are in lists
                await asyncio.sleep(0.05)

    async def _call(self, method: str, request: object) -> Any:
        endpoint = self.registrations[-1].grpc_endpoint
        async with grpc.aio.insecure_channel(endpoint) as channel:
            return await getattr(agent.stub(channel), method)(request, timeout=CALL_SECONDS)
