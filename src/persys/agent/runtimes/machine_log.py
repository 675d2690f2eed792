"""What a machine writes on its serial console, read from the log that virtlogd keeps.

virtlogd starts a new file when one has grown enough, and calls the ones before .0, .1 and so on, the newest
first. A machine goes on in the same log when it starts again. There are no times in it, and no runs.
"""

import asyncio
import os
import re
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from persys.agent.runtimes.machine_console import CONTROL
from persys.errors import RefusedError

LOOK_SECONDS = 0.25
PIECE_BYTES = 32 * 1024
TAIL_BYTES_MAX = 4 * 1024 * 1024
_KEPT_MAX = 100  # files that are looked for
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*)?[ -/]*$")


async def lines(
    path: Path, *, tail: int, follow: bool, over: Callable[[], bool]
) -> AsyncGenerator[bytes, None]:
    """In pieces, without what only a terminal understands. `tail` 0: all.

    A follower is left only when `over` says that nothing more will come. Raises RefusedError.
    """
    reader = _Reader(path)
    try:
        with ExitStack() as stack:
            stack.callback(reader.close)
            async for piece in _begin(reader, tail):
                yield piece
            while follow:
                ends = over()  # asked before the look: what came until then is still told
                piece = await asyncio.to_thread(reader.more)
                if piece:
                    yield piece
                elif ends:
                    return
                else:
                    await asyncio.sleep(LOOK_SECONDS)
    except OSError as err:
        raise RefusedError(f"the console's log cannot be read: {err.strerror}") from err


async def _begin(reader: "_Reader", tail: int) -> AsyncGenerator[bytes, None]:
    if not tail:
        for path in await asyncio.to_thread(reader.older):
            yield _plain(await asyncio.to_thread(_content, path))
        while piece := await asyncio.to_thread(reader.more):
            yield piece
        return
    end = b""
    for path in await asyncio.to_thread(reader.older):
        end = (end + _plain(await asyncio.to_thread(_content, path)))[-TAIL_BYTES_MAX:]
    while piece := await asyncio.to_thread(reader.more):
        end = (end + piece)[-TAIL_BYTES_MAX:]
    yield b"".join(end.splitlines(keepends=True)[-tail:])


def _plain(data: bytes) -> bytes:
    return CONTROL.sub("", data.decode("utf-8", "replace")).encode()


class _Reader:
    """The present file, from its beginning; when virtlogd has begun another, that one."""

    def __init__(self, path: Path) -> None:
        self._path = path
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
        if not piece and self._is_over():
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


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""  # virtlogd has just thrown the oldest away
