"""Uploads one image to many nodes: each part is sent to all of them before the next is read.

Nothing is buffered, and the slowest node sets the pace. A node that fails or stops replying is reported as a
problem, and the others continue.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

import grpc

from persys.errors import AgentUnreachableError, InvalidError, PersysError, RefusedError
from persys.infra.aio.task_group import task_group
from persys.model.node import Node
from persys.scheduler.dispatch.agent_client import AgentClient
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2

AHEAD_MAX = 4  # parts that a node may be behind the fastest
DRAIN_SECONDS = 10.0
SILENCE_SECONDS = 60.0  # an agent reports progress twice a second

Inputs = AsyncIterator[control_pb2.AddImageRequest]
Write = Callable[[control_pb2.ImageProgress], Awaitable[None]]


async def upload_to_nodes(
    nodes: Iterable[Node],
    agents: AgentClient,
    start: agent_pb2.AddImageStart,
    inputs: Inputs,
    write: Write,
) -> None:
    """Returns when each node has the image or has reported a problem."""
    write_lock = asyncio.Lock()  # a call can write one message at a time

    async def report(progress: control_pb2.ImageProgress) -> None:
        async with write_lock:
            await write(progress)

    uploads = [_Upload(node, agents, report) for node in nodes]
    await report(control_pb2.ImageProgress())
    async with task_group() as group:
        feeding = group.create_task(_feed(uploads, inputs))
        sending = [group.create_task(one.send(start)) for one in uploads]
        await asyncio.wait(sending)
        await report(control_pb2.ImageProgress(done=True))
        # A client whose write fails may not get the reason, so its remaining parts are read for a while.
        await asyncio.wait([feeding], timeout=DRAIN_SECONDS)
        feeding.cancel()


class _Upload:
    """The upload to one node."""

    def __init__(self, node: Node, agents: AgentClient, report: Write) -> None:
        self._node = node
        self._agents = agents
        self._report = report
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue(AHEAD_MAX)
        self._over = False

    async def put(self, part: bytes | None) -> None:
        """None ends the upload."""
        if not self._over:
            await self._parts.put(part)

    async def send(self, start: agent_pb2.AddImageStart) -> None:
        try:
            with self._agents.stream(self._node.id, self._node.endpoint, "AddImage") as open_call:
                await self._relay(open_call(), start)
        except PersysError as err:
            await self._report(
                control_pb2.ImageProgress(node_id=self._node.id, done=True, problem=str(err))
            )
        finally:
            self._over = True
            while not self._parts.empty():  # so that `put` does not block
                self._parts.get_nowait()

    async def _relay(self, call: Any, start: agent_pb2.AddImageStart) -> None:
        begun = asyncio.Event()
        try:
            async with task_group() as group:
                writing = group.create_task(self._write(call, start, begun))
                has_it = False
                while (progress := await _next(call)) is not None:
                    begun.set()
                    if progress.problem:
                        raise RefusedError(progress.problem)
                    has_it = progress.HasField("image")
                    await self._report(_shown(progress, self._node, done=has_it))
                writing.cancel()
        finally:
            call.cancel()
        if not has_it:
            raise AgentUnreachableError("the agent ended the call before the upload was complete")

    async def _write(self, call: Any, start: agent_pb2.AddImageStart, begun: asyncio.Event) -> None:
        """The reader gets the reason when the agent refuses; a failed write carries no reason."""
        with suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
            await call.write(agent_pb2.AddImageRequest(start=start))
            await begun.wait()  # a write after the end would hide the agent's refusal
            while (part := await self._parts.get()) is not None:
                await call.write(agent_pb2.AddImageRequest(data=part))
            await call.done_writing()


async def _feed(uploads: list[_Upload], inputs: Inputs) -> None:
    async for one in inputs:
        if one.HasField("start"):
            raise InvalidError("start", "is repeated: expected it only in the first message")
        for upload in uploads:
            await upload.put(one.data)
    for upload in uploads:
        await upload.put(None)


async def _next(call: Any) -> agent_pb2.ImageProgress | None:
    """None after the last message."""
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            async for progress in call:
                assert isinstance(progress, agent_pb2.ImageProgress)
                return progress
            return None
    except TimeoutError as err:
        raise AgentUnreachableError(
            f"the agent reported no progress for {SILENCE_SECONDS:.0f} s"
        ) from err


def _shown(
    progress: agent_pb2.ImageProgress, node: Node, *, done: bool
) -> control_pb2.ImageProgress:
    return control_pb2.ImageProgress(
        node_id=node.id,
        received_bytes=progress.received_bytes,
        size_bytes=progress.size_bytes,
        done=done,
        sha256=progress.image.sha256,
    )
