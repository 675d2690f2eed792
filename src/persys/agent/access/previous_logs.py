"""Stores the log tail of a replaced container: Docker deletes the log together with the container.

The tail is stored only when a new revision replaces an old one, and is deleted with the workload.
"""

import asyncio
import shutil
from collections import deque
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from urllib.parse import quote

import structlog

from persys.agent.runtimes.docker.exec_logs import DockerAccess
from persys.agent.runtimes.docker.log_frames import Frame, Frames, packed
from persys.core.secrets import redacted, values_of
from persys.errors import PersysError, UnavailableError
from persys.infra.aio.path_calls import PathCalls
from persys.infra.files import write_whole
from persys.model.ids import WorkloadId
from persys.model.workload import Desired, Order

log = structlog.get_logger()

KEPT_BYTES_MAX = 256 * 1024
_LINES_MAX = 2000
_DEADLINE_SECONDS = 5.0


class Past:
    def __init__(self, root: Path, access: DockerAccess, paths: PathCalls) -> None:
        self._root = root
        self._paths = paths
        self._access = access

    async def keep(self, order: Order) -> None:
        """Store the log tails before a removal. Best effort: a log that cannot be read is skipped."""
        if order.desired is Desired.DELETED:
            return
        workload_id = order.workload_id
        try:
            async with asyncio.timeout(_DEADLINE_SECONDS):
                for part in await self._access.parts(workload_id):
                    if part.tty:
                        continue
                    end = End(_LINES_MAX, KEPT_BYTES_MAX)
                    async for frames in self._access.frames(part, tail=_LINES_MAX, stamped=True):
                        end.add(frames)
                    path = self._path(workload_id, part.service)
                    content = packed(_without(values_of(order), end.frames))
                    await self._paths.run(path, partial(write_whole, path, content))
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

    async def forget(self, workload_id: WorkloadId) -> None:
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


class End:
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
