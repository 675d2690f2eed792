"""What persys-federation needs from the remote cluster.

A cluster that does not respond, that does not accept changes now or that refuses the token raises
RuntimeUnavailableError: nothing is known then. Refusals of a request raise RefusedError.
"""

from collections.abc import AsyncGenerator, Iterator
from typing import Protocol

from persys.wire.gen.control.v1 import control_pb2 as pb


class Remote(Protocol):
    async def workload(self, workload_id: str) -> pb.WorkloadView | None:
        """None: the cluster is in normal mode and does not have it."""

    async def workloads(self) -> list[pb.WorkloadView]: ...

    async def nodes(self) -> list[pb.NodeView]: ...

    async def mode(self) -> pb.ModeView: ...

    async def images(self) -> set[str]:
        """The names of the VM images of its nodes. Raises RefusedError without permission."""

    async def ensure_normal(self) -> None:
        """Raises RuntimeUnavailableError if the cluster is degraded or in recovery."""

    async def plan(self, request: pb.ApplyWorkloadRequest) -> pb.WorkloadPlan: ...

    async def apply(self, request: pb.ApplyWorkloadRequest) -> pb.ApplyWorkloadResponse: ...

    async def retry(self, workload_id: str) -> pb.RetryWorkloadResponse: ...

    async def delete(self, workload_id: str) -> pb.DeleteWorkloadResponse: ...

    async def put_secret(self, name: str, value: bytes) -> pb.SecretAnswer: ...

    async def delete_secret(self, name: str) -> pb.SecretAnswer: ...

    async def secrets(self) -> list[pb.SecretView]: ...

    async def last_event(self) -> int:
        """The sequence number of the newest event."""

    def events(self, after: int) -> AsyncGenerator[pb.EventView, None]:
        """Events after a sequence number. Raises OutOfRangeError if some of them were deleted."""

    def logs(self, request: pb.LogsRequest) -> AsyncGenerator[pb.LogChunk, None]: ...

    def exec(self, inputs: Iterator[pb.ExecInput]) -> AsyncGenerator[pb.ExecOutput, None]:
        """`inputs` is iterated by another thread, as in the next two."""

    def forward(
        self, inputs: Iterator[pb.ForwardInput]
    ) -> AsyncGenerator[pb.ForwardOutput, None]: ...

    def copy(self, inputs: Iterator[pb.CopyInput]) -> AsyncGenerator[pb.CopyOutput, None]: ...
