"""Images as the agent's contract asks for them. How far one is, is told now and then, and at its end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from persys.agent.images import ImageStore
from persys.errors import InvalidError, PersysError, RefusedError
from persys.infra.together import together
from persys.model.image import Image
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.image import agent_view, checked_name, checked_sha256

COMING_MAX = 8
TELL_SECONDS = 0.5
DRAIN_SECONDS = 10.0

Inputs = AsyncIterator[agent_pb2.AddImageRequest]
Write = Callable[[agent_pb2.ImageProgress], Awaitable[None]]


class ImageDoor:
    def __init__(self, store: ImageStore) -> None:
        self._store = store
        self._coming = 0

    def list(self) -> agent_pb2.ListImagesResponse:
        seen = self._store.seen()
        return agent_pb2.ListImagesResponse(
            images=[agent_view(image, used_by) for image, used_by in seen]
        )

    def remove(self, name: str) -> agent_pb2.RemoveImageResponse:
        """Refused with OK, so that it is told from a node that does not answer."""
        try:
            self._store.remove(name)
        except PersysError as err:
            return agent_pb2.RemoveImageResponse(success=False, message=str(err))
        return agent_pb2.RemoveImageResponse(success=True, message="removed")

    async def add(self, inputs: Inputs, write: Write) -> None:
        first = await anext(inputs, None)
        if first is None or not first.HasField("start"):
            raise InvalidError("start", "is missing; an image begins with it")
        start = first.start
        checked_name(start.name)
        checked_sha256(start.sha256)
        if start.size_bytes < 0:
            raise InvalidError("size_bytes", f"is {start.size_bytes}; expected 0 or more")
        with self._place():
            await self._take(start, inputs, write)

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._coming >= COMING_MAX:
            raise RefusedError(f"this node takes {COMING_MAX} images at once already")
        self._coming += 1
        try:
            yield
        finally:
            self._coming -= 1

    async def _take(self, start: agent_pb2.AddImageStart, inputs: Inputs, write: Write) -> None:
        progress = agent_pb2.ImageProgress(size_bytes=start.size_bytes)
        await write(progress)

        def told(got: int, size: int) -> None:
            progress.received_bytes, progress.size_bytes = got, size

        async with together() as group:
            telling = group.create_task(_tell(progress, write))
            try:
                image = await self._add(start, inputs, told)
            except PersysError as err:
                telling.cancel()
                await write(agent_pb2.ImageProgress(problem=str(err)))
                await _drain(inputs)
                raise
            telling.cancel()
        await write(
            agent_pb2.ImageProgress(
                received_bytes=image.size_bytes,
                size_bytes=image.size_bytes,
                image=agent_view(image),
            )
        )

    async def _add(
        self, start: agent_pb2.AddImageStart, inputs: Inputs, told: Callable[[int, int], None]
    ) -> Image:
        if start.url:
            return await self._store.add_from(start.name, start.url, sha256=start.sha256, told=told)
        return await self._store.add(
            start.name, _bytes(inputs), sha256=start.sha256, size=start.size_bytes, told=told
        )


async def _bytes(inputs: Inputs) -> AsyncGenerator[bytes, None]:
    async for one in inputs:
        if one.HasField("start"):
            raise InvalidError("start", "came twice")
        yield one.data


async def _drain(inputs: Inputs) -> None:
    """Whose sending fails may not hear why. So it is heard out until it has ended, for a while."""
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in inputs:
                pass


async def _tell(progress: agent_pb2.ImageProgress, write: Write) -> None:
    """Also when nothing has changed: silence would look like the end of the node."""
    while True:
        await asyncio.sleep(TELL_SECONDS)
        await write(progress)
