"""Calls to the remote cluster, through its scheduler or gateway, from an event loop.

The clients are synchronous, so calls run in threads. A cluster that does not respond, or that does not accept
the token, raises RuntimeUnavailableError: nothing is known then.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from google.protobuf.message import Message

from persys.client.grpc.channel import translated_errors
from persys.errors import (
    DeniedError,
    NotFoundError,
    PersysError,
    RuntimeUnavailableError,
    UnavailableError,
)
from persys.federation.connection import Connection
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.gen.control.v1.control_pb2_grpc import AgentControlStub

CALL_SECONDS = 10.0
CALLS_MAX = 32
STREAMS_MAX = 128
BUFFERED_MAX = 16
NORMAL = "normal"

Response = TypeVar("Response")


class RemoteCluster:
    """Implements ports.Remote."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._calls = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="remote-call")
        self._streams = ThreadPoolExecutor(STREAMS_MAX, thread_name_prefix="remote-stream")

    def close(self) -> None:
        self._calls.shutdown(wait=False, cancel_futures=True)
        self._streams.shutdown(wait=False, cancel_futures=True)

    @property
    def _name(self) -> str:
        return self._connection.address

    @property
    def _stub(self) -> AgentControlStub:
        return self._connection.stub

    async def workload(self, workload_id: str) -> pb.WorkloadView | None:
        """None: the cluster does not have it. A cluster in recovery has lost its records."""
        request = pb.GetWorkloadRequest(workload_id=workload_id)
        try:
            found: pb.GetWorkloadResponse = await self._read(self._stub.GetWorkload, request)
        except NotFoundError:
            await self.ensure_normal()
            return None
        return found.workload

    async def ensure_normal(self) -> None:
        """Raises RuntimeUnavailableError if the cluster is degraded or in recovery."""
        mode = await self.mode()
        if mode.mode != NORMAL:
            raise RuntimeUnavailableError(f"{self._name} is in {mode.mode} mode: {mode.reason}")

    async def mode(self) -> pb.ModeView:
        return await self._read(self._stub.GetMode, pb.GetModeRequest())

    async def images(self) -> set[str]:
        found: pb.ListImagesResponse = await self._call(
            self._stub.ListImages, pb.ListImagesRequest()
        )
        return {image.name for image in found.images}

    async def nodes(self) -> list[pb.NodeView]:
        found: pb.ListNodesResponse = await self._read(self._stub.ListNodes, pb.ListNodesRequest())
        return list(found.nodes)

    async def workloads(self) -> list[pb.WorkloadView]:
        request = pb.ListWorkloadsRequest()
        found: pb.ListWorkloadsResponse = await self._read(self._stub.ListWorkloads, request)
        return list(found.workloads)

    async def plan(self, request: pb.ApplyWorkloadRequest) -> pb.WorkloadPlan:
        wanted = pb.PlanWorkloadsRequest(workloads=[request])
        found: pb.PlanWorkloadsResponse = await self._call(self._stub.PlanWorkloads, wanted)
        return found.plans[0]

    async def apply(self, request: pb.ApplyWorkloadRequest) -> pb.ApplyWorkloadResponse:
        return await self._call(self._stub.ApplyWorkload, request)

    async def retry(self, workload_id: str) -> pb.RetryWorkloadResponse:
        request = pb.RetryWorkloadRequest(workload_id=workload_id)
        return await self._call(self._stub.RetryWorkload, request)

    async def delete(self, workload_id: str) -> pb.DeleteWorkloadResponse:
        request = pb.DeleteWorkloadRequest(workload_id=workload_id)
        return await self._call(self._stub.DeleteWorkload, request)

    async def put_secret(self, name: str, value: bytes) -> pb.SecretAnswer:
        return await self._call(self._stub.PutSecret, pb.PutSecretRequest(name=name, value=value))

    async def delete_secret(self, name: str) -> pb.SecretAnswer:
        return await self._call(self._stub.DeleteSecret, pb.DeleteSecretRequest(name=name))

    async def secrets(self) -> list[pb.SecretView]:
        request = pb.ListSecretsRequest()
        found: pb.ListSecretsResponse = await self._read(self._stub.ListSecrets, request)
        return list(found.secrets)

    async def last_event(self) -> int:
        request = pb.ListEventsRequest(limit=1)
        found: pb.ListEventsResponse = await self._read(self._stub.ListEvents, request)
        return found.last_sequence

    def events(self, after: int) -> AsyncGenerator[pb.EventView, None]:
        request = pb.WatchEventsRequest(after_sequence=after, bookmarks=True)
        return self._stream(lambda: self._stub.WatchEvents(request))

    def logs(self, request: pb.LogsRequest) -> AsyncGenerator[pb.LogChunk, None]:
        return self._stream(lambda: self._stub.StreamLogs(request))

    def exec(self, inputs: Iterator[pb.ExecInput]) -> AsyncGenerator[pb.ExecOutput, None]:
        """`inputs` is iterated by another thread."""
        return self._stream(lambda: self._stub.Exec(inputs))

    def forward(self, inputs: Iterator[pb.ForwardInput]) -> AsyncGenerator[pb.ForwardOutput, None]:
        return self._stream(lambda: self._stub.PortForward(inputs))

    def copy(self, inputs: Iterator[pb.CopyInput]) -> AsyncGenerator[pb.CopyOutput, None]:
        return self._stream(lambda: self._stub.CopyFiles(inputs))

    async def _read(self, method: Callable[..., Response], request: Message) -> Response:
        """A caller without permission to read knows nothing."""
        try:
            return await self._call(method, request)
        except DeniedError as err:
            raise RuntimeUnavailableError(f"{self._name}: {err}") from err

    async def _call(self, method: Callable[..., Response], request: Message) -> Response:
        """Raises RuntimeUnavailableError, NotFoundError and the refusals of the cluster."""
        loop, opened = asyncio.get_running_loop(), self._connection.opened

        def call() -> Response:
            with translated_errors():
                return method(request, timeout=CALL_SECONDS)

        try:
            return await loop.run_in_executor(self._calls, call)
        except PersysError as err:
            if isinstance(err, UnavailableError):
                self._connection.failed(opened)
            raise self._meaning(err) from err

    def _meaning(self, err: PersysError) -> PersysError:
        if isinstance(err, UnavailableError) or _is_unauthenticated(err):
            return RuntimeUnavailableError(f"{self._name}: {err}")
        return err

    async def _stream(self, open_stream: Callable[[], Iterable[Any]]) -> AsyncGenerator[Any, None]:
        """The messages of a stream, read by a thread that waits while the buffer is full."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[object] = asyncio.Queue(BUFFERED_MAX)
        opened: list[Iterable[Any]] = []

        def put(item: object) -> None:
            asyncio.run_coroutine_threadsafe(queue.put(item), loop).result()

        def read() -> None:
            try:
                with translated_errors():
                    stream = open_stream()
                    opened.append(stream)
                    for item in stream:
                        put(item)
                put(None)
            except PersysError as err:
                put(err)
            except RuntimeError:
                return  # the event loop is closed

        reading = loop.run_in_executor(self._streams, read)
        try:
            while (item := await queue.get()) is not None:
                if isinstance(item, PersysError):
                    raise self._meaning(item) from item
                yield item
        finally:
            while (
                not reading.done()
            ):  # it may still open the stream, or wait for space in the buffer
                for stream in opened:
                    if hasattr(stream, "cancel"):
                        stream.cancel()
                while not queue.empty():
                    queue.get_nowait()
                await asyncio.wait({reading}, timeout=0.05)


def _is_unauthenticated(err: PersysError) -> bool:
    """Whether the token or the certificate is not valid (any more)."""
    return isinstance(err, DeniedError) and bool(err.reason)
