"""Log output of containers and stacks.

A follower continues across restarts of a container: it resumes after the last timestamp it has seen. The
previous run is the output of the present container before its last start; for a container that was replaced,
the saved log tail.
"""

import asyncio
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import quote

import structlog

from persys.agent.runtimes.docker.exec_logs import (
    ContainerPart,
    DockerAccess,
    unix_nanos,
    unix_seconds,
)
from persys.agent.runtimes.docker.log_frames import (
    Frame,
    Frames,
    encode_frames,
    merge_frames,
    timestamp,
    without_timestamp,
)
from persys.core.secrets import redacted, values_of
from persys.errors import NotFoundError, PersysError, UnavailableError
from persys.infra.aio.path_calls import PathCalls
from persys.infra.aio.task_group import task_group
from persys.infra.atomic_files import write_file
from persys.model.ids import WorkloadId
from persys.model.workload import Desired, Order
from persys.wire.gen.agent.v1 import agent_pb2

log = structlog.get_logger()

TAIL_STORED_BYTES_MAX = 256 * 1024
_LINES_MAX = 2000
_DEADLINE_SECONDS = 5.0
# Poll interval for restarts: Docker does not report them to a follower.
LOOK_SECONDS = 0.25
_ABOUT_TO_RUN = ("created", "restarting")
TAIL_BYTES_MAX = 4 * 1024 * 1024
Write = Callable[[agent_pb2.LogChunk], Awaitable[None]]


class Logs:
    def __init__(self, access: DockerAccess, previous_logs: "PreviousLogs") -> None:
        self._access = access
        self._previous_logs = previous_logs

    async def write(
        self, workload_id: WorkloadId, request: agent_pb2.LogsRequest, write: Write
    ) -> None:
        """Write the requested log to the caller. Raises NotFoundError if there is no such container."""
        parts = await self._access.parts(workload_id)
        if request.service:
            parts = [part for part in parts if part.service == request.service]
        if not parts:
            what = f"service {request.service} of {workload_id}" if request.service else workload_id
            raise NotFoundError("container", what)
        write_part = self._write_previous if request.previous else self._write_present
        write_lock = asyncio.Lock()  # a gRPC call can write one message at a time
        async with task_group() as group:
            for part in parts:
                writer = _Writer(part, write, write_lock, stamped=request.timestamps)
                group.create_task(write_part(workload_id, part, request, writer))

    async def _write_present(
        self,
        workload_id: WorkloadId,
        part: ContainerPart,
        request: agent_pb2.LogsRequest,
        writer: "_Writer",
    ) -> None:
        # Timestamps mark where to resume after a restart. TTY output has no frames with timestamps.
        stamped = not part.tty and (request.follow or request.timestamps)
        since, tail = _since(request), request.tail
        now: ContainerPart | None = part
        while now is not None:
            async with aclosing(
                self._access.frames(
                    now,
                    follow=request.follow,
                    since=since,
                    tail=tail,
                    stamped=stamped or request.timestamps,
                )
            ) as portions:
                async for frames in portions:
                    if frames:
                        since, tail = writer.after(frames, since, stamped=stamped), 0
                        await writer.write(frames, stamped=stamped)
            now = await self._next_run(now) if request.follow and stamped else None

    async def _next_run(self, part: ContainerPart) -> ContainerPart | None:
        """The restarted container; None: it does not run again."""
        now = await self._access.part(part.id)
        while now is not None and now.status in _ABOUT_TO_RUN:
            await asyncio.sleep(LOOK_SECONDS)
            now = await self._access.part(part.id)
        return now if now is not None and now.started_at != part.started_at else None

    async def _write_previous(
        self,
        workload_id: WorkloadId,
        part: ContainerPart,
        request: agent_pb2.LogsRequest,
        writer: "_Writer",
    ) -> None:
        stamped = not part.tty
        tail = LogTail(request.tail, TAIL_BYTES_MAX) if request.tail else None
        any_received = False
        if until := part.before_current_run():
            async with aclosing(
                self._access.frames(part, since=_since(request), until=until, stamped=stamped)
            ) as portions:
                async for frames in portions:
                    any_received = any_received or bool(frames)
                    if tail is not None:
                        tail.add(frames)
                    else:
                        await writer.write(frames, stamped=stamped)
        if not any_received:
            stored = _frames_since(
                await self._previous_logs.frames(workload_id, part.service), request
            )
            if tail is not None:
                tail.add(stored)
            else:
                await writer.write(stored, stamped=stamped)
        if tail is not None:
            await writer.write(tail.frames, stamped=stamped)


class _Writer:
    def __init__(
        self, part: ContainerPart, write: Write, write_lock: asyncio.Lock, *, stamped: bool
    ) -> None:
        self._part = part
        self._write = write
        self._write_lock = write_lock
        self._stamped = stamped

    async def write(self, frames: Iterable[Frame], *, stamped: bool) -> None:
        """`stamped`: whether frames have timestamps, which are removed unless the caller requested them."""
        shown: Iterator[Frame] = iter(frames)
        if stamped and not self._stamped:
            shown = map(without_timestamp, shown)
        for frame in merge_frames(shown):
            chunk = agent_pb2.LogChunk(
                data=frame.data, stream=frame.stream, service=self._part.service
            )
            async with self._write_lock:
                await self._write(chunk)

    def after(self, frames: list[Frame], since: str, *, stamped: bool) -> str:
        if not stamped:
            return since
        return unix_seconds(unix_nanos(timestamp(frames[-1]).decode()) + 1)


def _since(request: agent_pb2.LogsRequest) -> str:
    return unix_seconds(request.since_unix_nanos) if request.since_unix_nanos else ""


def _frames_since(frames: list[Frame], request: agent_pb2.LogsRequest) -> list[Frame]:
    if not request.since_unix_nanos:
        return frames
    since = datetime.fromtimestamp(request.since_unix_nanos / 10**9, UTC)
    written = since.strftime("%Y-%m-%dT%H:%M:%S.%f").encode()
    return [frame for frame in frames if timestamp(frame) >= written]


class PreviousLogs:
    """Stores the log tail of a replaced container: Docker deletes the log together with the container.

    The tail is stored only when a new revision replaces an old one, and is deleted with the workload.
    """

    def __init__(self, root: Path, access: DockerAccess, paths: PathCalls) -> None:
        self._root = root
        self._paths = paths
        self._access = access

    async def save(self, order: Order) -> None:
        """Store the log tails before a removal. Best effort: a log that cannot be read is skipped."""
        if order.desired is Desired.DELETED:
            return
        workload_id = order.workload_id
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                for part in await self._access.parts(workload_id):
                    if part.tty:
                        continue
                    tail = LogTail(_LINES_MAX, TAIL_STORED_BYTES_MAX)
                    async for frames in self._access.frames(part, tail=_LINES_MAX, stamped=True):
                        tail.add(frames)
                    path = self._path(workload_id, part.service)
                    content = encode_frames(_without(values_of(order), tail.frames))
                    await self._paths.run(path, partial(write_file, path, content))
        except (PersysError, OSError, TimeoutError) as err:
            log.warning("past.not_kept", workload_id=workload_id, reason=str(err))

    async def frames(self, workload_id: WorkloadId, service: str) -> list[Frame]:
        """The stored frames, with timestamps; empty if there are none. Raises UnavailableError."""
        path = self._path(workload_id, service)
        try:
            content = await self._paths.run(path, path.read_bytes)
        except FileNotFoundError:
            return []
        except OSError as err:
            raise UnavailableError(f"{path}: {err.strerror}") from err
        return Frames().feed(content)

    async def remove(self, workload_id: WorkloadId) -> None:
        place = self._root / workload_id
        await self._paths.run(place, partial(shutil.rmtree, place, ignore_errors=True))

    def _path(self, workload_id: WorkloadId, service: str) -> Path:
        return self._root / workload_id / f"log-{quote(service, safe='')}"


def _without(values: frozenset[str], frames: Iterable[Frame]) -> Iterable[Frame]:
    """Redact secret values: a container may log them, and they must not be on disk in clear text."""
    if not values:
        return frames
    return [
        frame._replace(
            data=redacted(frame.data.decode("utf-8", "surrogateescape"), values).encode(
                "utf-8", "surrogateescape"
            )
        )
        for frame in frames
    ]


class LogTail:
    """The tail of a log, limited in lines and bytes."""

    def __init__(self, lines_max: int, bytes_max: int) -> None:
        self.frames: deque[Frame] = deque()
        self._lines_max = lines_max
        self._bytes_left = bytes_max

    def add(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            self.frames.append(frame)
            self._bytes_left -= len(frame.data)
            while len(self.frames) > self._lines_max or self._bytes_left < 0:
                self._bytes_left += len(self.frames.popleft().data)
