"""What a machine writes on its serial console, read from the log that virtlogd keeps.

virtlogd starts a new file when one has grown enough, and calls the ones before .0, .1 and so on, the newest
first. A machine goes on in the same log when it starts again. There are no times in it, and no runs.
"""

import asyncio
import os
import re
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from persys.agent.runtimes.machine_console import CONTROL
from persys.errors import RefusedError
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError

LOOK_SECONDS = 0.25
PIECE_BYTES = 32 * 1024
TAIL_BYTES_MAX = 4 * 1024 * 1024
ALL_BYTES_MAX = 64 * 1024 * 1024  # told to a reader who does not follow
_KEPT_MAX = 100  # files that are looked for
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*)?[ -/]*$")


async def lines(
    path: Path, paths: PathCalls, *, tail: int, follow: bool, over: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """In pieces, without what only a terminal understands. `tail` 0: all.

    A follower is left only when `over` says that nothing more will come. Raises RefusedError.
    """
    try:
        async with _reading(path, paths, follows=True) as reader:
            async for piece in _begin(reader, path, paths, tail):
                yield piece
            while follow:
                ends = over()  # asked before the look: what came until then is still told
                piece = await paths.run(path, reader.more)
                if piece:
                    yield piece
                elif ends:
                    return
                else:
                    await asyncio.sleep(LOOK_SECONDS)
    except OSError as err:
        raise RefusedError(f"the console's log cannot be read: {err.strerror}") from err


async def _begin(
    reader: "_Reader", path: Path, paths: PathCalls, tail: int
) -> AsyncGenerator[bytes, None]:
    end = b""
    async for piece in _all(reader, path, paths):
        if not tail:
            yield piece
        else:
            end = (end + piece)[-TAIL_BYTES_MAX:]
    if tail:
        yield b"".join(end.splitlines(keepends=True)[-tail:])


async def _all(reader: "_Reader", path: Path, paths: PathCalls) -> AsyncGenerator[bytes, None]:
    """All that there is now, the oldest first, in pieces.

    No more than is kept of a log: a guest that writes as fast as its log is read would not let it end.
    """
    left = ALL_BYTES_MAX
    for older in await paths.run(path, reader.older):
        async with _reading(older, paths, follows=False) as before:
            while left > 0 and (piece := await paths.run(path, before.more)):
                left -= len(piece)
                yield piece
    while left > 0 and (piece := await paths.run(path, reader.more)):
        left -= len(piece)
        yield piece


@asynccontextmanager
async def _reading(path: Path, paths: PathCalls, *, follows: bool) -> AsyncIterator["_Reader"]:
    reader = _Reader(path, follows=follows)
    try:
        yield reader
    finally:
        with suppress(PathTimeoutError):  # closing waits for a read that does not return
            await paths.run(path, reader.close)


class _Reader:
    """A file from its beginning; if it `follows`, then the next one that virtlogd has begun. Blocks."""

    def __init__(self, path: Path, *, follows: bool) -> None:
        self._path = path
        self._follows = follows
        self._file: BinaryIO | None = None
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def older(self) -> list[Path]:
        """The files before, the oldest first."""
        names = (self._path.with_name(f"{self._path.name}.{n}") for n in range(_KEPT_MAX))
        return [path for path in reversed(list(names)) if path.exists()]

    def more(self) -> bytes:
        """Empty: there is no more now."""
        while piece := self._next():
            text = self._rest + self._decode(piece)
            unfinished = _UNFINISHED.search(text)
            end = unfinished.start() if unfinished else len(text)
            self._rest = text[end:]
            if shown := CONTROL.sub("", text[:end]):
                return shown.encode()
        return b""

    def _next(self) -> bytes:
        piece = self._read()
        if not piece and self._follows and self._is_over():
            self.close()
            piece = self._read()
        return piece

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self) -> bytes:
        if self._file is None:
            try:
                self._file = self._path.open("rb")
            except FileNotFoundError:
                return b""
        return self._file.read(PIECE_BYTES)

    def _is_over(self) -> bool:
        """Whether this file is not the present one any more."""
        if self._file is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False
