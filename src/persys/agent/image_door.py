"""Images as the agent's contract asks for them. How far one is, is told now and then, and at its end.

The work belongs to the process: a caller that leaves ends only what it has not sent yet. An image that comes
from an address is fetched to its end.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

from persys.agent.images import ImageStore, Told
from persys.errors import InvalidError, PersysError, RefusedError, UnavailableError
from persys.infra.aio.owned import OwnedWork
from persys.infra.together import together
from persys.model.image import Image
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.image import agent_view, checked_name, checked_sha256

COMING_MAX = 8
PARTS_MAX = 4  # that wait to be written
TELL_SECONDS = 0.5
DRAIN_SECONDS = 10.0
# A call that is cancelled looks for a moment as if its messages had come to their end.
END_GRACE_SECONDS = 0.25

Inputs = AsyncIterator[agent_pb2.AddImageRequest]
Write = Callable[[agent_pb2.ImageProgress], Awaitable[None]]


class ImageDoor:
    def __init__(self, store: ImageStore, owned: OwnedWork) -> None:
        self._store = store
        self._owned = owned
        self._coming = 0

    async def list(self) -> agent_pb2.ListImagesResponse:
        seen = await self._store.seen()
        return agent_pb2.ListImagesResponse(
            images=[agent_view(image, used_by) for image, used_by in seen]
        )

    async def remove(self, name: str) -> agent_pb2.RemoveImageResponse:
        """Refused with OK, so that it is told from a node that does not answer."""
        try:
            await self._owned.finish("image.remove", name, partial(self._store.remove, name))
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
        await self._take(start, inputs, write)

    async def _take(self, start: agent_pb2.AddImageStart, inputs: Inputs, write: Write) -> None:
        progress, upload = agent_pb2.ImageProgress(size_bytes=start.size_bytes), _Upload()
        await write(progress)

        def told(got: int, size: int) -> None:
            progress.received_bytes, progress.size_bytes = got, size

        async with together() as group:
            telling = group.create_task(_tell(progress, write))
            sending = group.create_task(upload.fill(inputs, start))
            try:
                image = await self._owned.finish(
                    "image.add", start.name, partial(self._add, start, upload, told)
                )
            except PersysError as err:
                telling.cancel()
                await write(agent_pb2.ImageProgress(problem=str(err)))
                # Whose sending fails may not hear why. So it is heard out until it has ended, for a while.
                upload.ignore()
                await asyncio.wait({sending}, timeout=DRAIN_SECONDS)
                raise
            telling.cancel()
            sending.cancel()
        await write(
            agent_pb2.ImageProgress(
                received_bytes=image.size_bytes,
                size_bytes=image.size_bytes,
                image=agent_view(image),
            )
        )

    async def _add(self, start: agent_pb2.AddImageStart, upload: "_Upload", told: Told) -> Image:
        with self._place():
            if start.url:
                return await self._store.add_from(
                    start.name, start.url, sha256=start.sha256, told=told
                )
            return await self._store.add(
                start.name, upload.parts(), sha256=start.sha256, size=start.size_bytes, told=told
            )

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._coming >= COMING_MAX:
            raise RefusedError(f"this node takes {COMING_MAX} images at once already")
        self._coming += 1
        try:
            yield
        finally:
            self._coming -= 1


class _Upload:
    """What a caller sends, on its way to the work that takes it. Ends with an error if the caller leaves."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[bytes | PersysError | None] = asyncio.Queue(PARTS_MAX)
        self._is_wanted = True

    async def fill(self, inputs: Inputs, start: agent_pb2.AddImageStart) -> None:
        try:
            async for one in inputs:
                if one.HasField("start"):
                    raise InvalidError("start", "came twice")
                if self._is_wanted:
                    await self._waiting.put(one.data)
            if (
                not start.size_bytes and not start.sha256
            ):  # else a part is known not to be the whole
                await asyncio.sleep(END_GRACE_SECONDS)
            await self._waiting.put(None)
        except PersysError as err:
            self._fail(err)
        except BaseException:
            self._fail(UnavailableError("the sender has left"))
            raise

    def ignore(self) -> None:
        """What still comes is not wanted any more."""
        self._is_wanted = False
        self._clear()

    async def parts(self) -> AsyncGenerator[bytes, None]:
        while (part := await self._waiting.get()) is not None:
            if isinstance(part, PersysError):
                raise part
            yield part

    def _fail(self, err: PersysError) -> None:
        self._clear()
        self._waiting.put_nowait(err)

    def _clear(self) -> None:
        while not self._waiting.empty():
            self._waiting.get_nowait()


async def _tell(progress: agent_pb2.ImageProgress, write: Write) -> None:
    """Also when nothing has changed: silence would look like the end of the node."""
    while True:
        await asyncio.sleep(TELL_SECONDS)
        await write(progress)
