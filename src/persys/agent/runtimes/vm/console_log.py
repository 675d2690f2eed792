"""Reads the serial console log of a VM, which virtlogd writes.

virtlogd rotates the file and names older files .0, .1 and so on, newest first. A restarted VM appends to the
same log. The log has no timestamps and does not separate runs.
"""

import asyncio
import os
import re
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from persys.core.agent.describe import LOG_TAIL_BYTES_MAX
from persys.errors import RefusedError
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError

# Colours, cursor movement and other control sequences of firmware and boot loaders.
CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[ -/]+[0-~]|[0-Z\\-~])|[\x00-\x08\x0b-\x1f\x7f]")


def tail_of(path: Path) -> str:
    """The end of the log, or "" if there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 2 * LOG_TAIL_BYTES_MAX))
            written = file.read()
    except OSError:
        return ""
    return CONTROL.sub("", written.decode("utf-8", "replace"))


LOOK_SECONDS = 0.25
PIECE_BYTES = 32 * 1024
TAIL_BYTES_MAX = 4 * 1024 * 1024
ALL_BYTES_MAX = 64 * 1024 * 1024  # limit without `follow`
_KEPT_MAX = 100  # rotated files
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*)?[ -/]*$")


async def lines(
    path: Path, paths: PathCalls, *, tail: int, follow: bool, over: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """Log output in chunks, without terminal control sequences. `tail` 0: all.

    With `follow` it ends when `over` returns True and all output was read. Raises RefusedError.
    """
    try:
        async with _reading(path, paths, follows=True) as reader:
            async for piece in _begin(reader, path, paths, tail):
                yield piece
            while follow:
                ends = over()  # before the read, so that output until then is not lost
                piece = await paths.run(path, reader.more)
                if piece:
                    yield piece
                elif ends:
                    return
                else:
                    await asyncio.sleep(LOOK_SECONDS)
    except OSError as err:
        raise RefusedError(f"cannot read the console log: {err.strerror}") from err


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
    """The existing log in chunks, oldest first.

    The total is limited: a guest that writes faster than the log is read would never let it end.
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
        with suppress(PathTimeoutError):  # close waits for a read that hangs
            await paths.run(path, reader.close)


class _Reader:
    """Reads a file from the start. With `follows` it continues in the next file after rotation. Blocks."""

    def __init__(self, path: Path, *, follows: bool) -> None:
        self._path = path
        self._follows = follows
        self._file: BinaryIO | None = None
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._rest = ""

    def older(self) -> list[Path]:
        """Rotated files, oldest first."""
        names = (self._path.with_name(f"{self._path.name}.{n}") for n in range(_KEPT_MAX))
        return [path for path in reversed(list(names)) if path.exists()]

    def more(self) -> bytes:
        """The next chunk, or b"" if there is none yet."""
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
        if not piece and self._follows and self._was_rotated():
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

    def _was_rotated(self) -> bool:
        """Whether this file was rotated."""
        if self._file is None:
            return False
        try:
            return not os.path.samestat(os.fstat(self._file.fileno()), self._path.stat())
        except FileNotFoundError:
            return False
