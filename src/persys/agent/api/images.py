"""The image RPCs of the agent: list, add and remove VM images. Progress is reported periodically.

The work runs in a task of the process. If the caller disconnects, an upload fails; a download from a URL
continues to its end.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial

from persys.agent.images.store import ImageStore, OnProgress
from persys.errors import InvalidError, PersysError, RefusedError, UnavailableError
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.task_group import task_group
from persys.model.node import Image
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.spec.image import agent_view, checked_name, checked_sha256

UPLOADS_MAX = 8
PARTS_MAX = 4  # chunks queued for writing
REPORT_SECONDS = 0.5
DRAIN_SECONDS = 10.0
# For a moment, a cancelled call looks like one whose request stream has ended.
END_GRACE_SECONDS = 0.25

Inputs = AsyncIterator[agent_pb2.AddImageRequest]
Write = Callable[[agent_pb2.ImageProgress], Awaitable[None]]


class ImageApi:
    def __init__(self, store: ImageStore, owned: OwnedWork) -> None:
        self._store = store
        self._owned = owned
        self._uploads = 0

    async def list(self) -> agent_pb2.ListImagesResponse:
        seen = await self._store.images_with_users()
        return agent_pb2.ListImagesResponse(
            images=[agent_view(image, used_by) for image, used_by in seen]
        )

    async def remove(self, name: str) -> agent_pb2.RemoveImageResponse:
        """A refusal is returned with status OK, to distinguish it from a node that does not respond."""
        try:
            await self._owned.finish("image.remove", name, partial(self._store.remove, name))
        except PersysError as err:
            return agent_pb2.RemoveImageResponse(success=False, message=str(err))
        return agent_pb2.RemoveImageResponse(success=True, message="removed")

    async def add(self, inputs: Inputs, write: Write) -> None:
        first = await anext(inputs, None)
        if first is None or not first.HasField("start"):
            raise InvalidError("start", "is missing: expected as the first message of an upload")
        start = first.start
        checked_name(start.name)
        checked_sha256(start.sha256)
        if start.size_bytes < 0:
            raise InvalidError(
                "size_bytes",
                f"invalid value {start.size_bytes}: expected 0 (unknown) or a positive number",
            )
        await self._take(start, inputs, write)

    async def _take(self, start: agent_pb2.AddImageStart, inputs: Inputs, write: Write) -> None:
        progress, upload = agent_pb2.ImageProgress(size_bytes=start.size_bytes), _Upload()
        await write(progress)

        def on_progress(got: int, size: int) -> None:
            progress.received_bytes, progress.size_bytes = got, size

        async with task_group() as group:
            reporting = group.create_task(_report(progress, write))
            sending = group.create_task(upload.fill(inputs, start))
            try:
                image = await self._owned.finish(
                    "image.add", start.name, partial(self._add, start, upload, on_progress)
                )
            except PersysError as err:
                reporting.cancel()
                await write(agent_pb2.ImageProgress(problem=str(err)))
                # A client whose send fails may not see the error. So read its remaining messages for a while.
                upload.ignore()
                await asyncio.wait({sending}, timeout=DRAIN_SECONDS)
                raise
            reporting.cancel()
            sending.cancel()
        await write(
            agent_pb2.ImageProgress(
                received_bytes=image.size_bytes,
                size_bytes=image.size_bytes,
                image=agent_view(image),
            )
        )

    async def _add(
        self, start: agent_pb2.AddImageStart, upload: "_Upload", progress: OnProgress
    ) -> Image:
        with self._place():
            if start.url:
                return await self._store.add_from(
                    start.name, start.url, sha256=start.sha256, progress=progress
                )
            return await self._store.add(
                start.name,
                upload.parts(),
                sha256=start.sha256,
                size=start.size_bytes,
                progress=progress,
            )

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._uploads >= UPLOADS_MAX:
            raise RefusedError(
                f"too many uploads: this node accepts at most {UPLOADS_MAX} images at the same time"
            )
        self._uploads += 1
        try:
            yield
        finally:
            self._uploads -= 1


class _Upload:
    """The queue between the caller and the image store. Ends with an error if the caller disconnects."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | PersysError | None] = asyncio.Queue(PARTS_MAX)
        self._accepting = True

    async def fill(self, inputs: Inputs, start: agent_pb2.AddImageStart) -> None:
        try:
            async for one in inputs:
                if one.HasField("start"):
                    raise InvalidError(
                        "start", "was sent twice: expected only as the first message"
                    )
                if self._accepting:
                    await self._queue.put(one.data)
            # With a size or a checksum, an incomplete upload is recognised without waiting.
            if not start.size_bytes and not start.sha256:
                await asyncio.sleep(END_GRACE_SECONDS)
            await self._queue.put(None)
        except PersysError as err:
            self._fail(err)
        except BaseException:
            self._fail(UnavailableError("the client disconnected before the upload was complete"))
            raise

    def ignore(self) -> None:
        """Discard the remaining messages."""
        self._accepting = False
        self._clear()

    async def parts(self) -> AsyncGenerator[bytes, None]:
        while (part := await self._queue.get()) is not None:
            if isinstance(part, PersysError):
                raise part
            yield part

    def _fail(self, err: PersysError) -> None:
        self._clear()
        self._queue.put_nowait(err)

    def _clear(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()


async def _report(progress: agent_pb2.ImageProgress, write: Write) -> None:
    """Report progress, also when it has not changed: it shows that the node is alive."""
    while True:
        await asyncio.sleep(REPORT_SECONDS)
        await write(progress)
