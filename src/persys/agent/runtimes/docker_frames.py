"""What containers write, as Docker sends it: both outputs in one stream of frames, each with a header.

With time stamps asked for, every frame begins with one: 30 characters and a space.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_HEADER_BYTES = 8
_STDERR = 2
FRAME_BYTES_MAX = 4 * 1024 * 1024
STREAMS = {0: "stdout", 1: "stdout", _STDERR: "stderr"}


class Frame(NamedTuple):
    stream: str
    data: bytes


class FrameTooLargeError(ValueError):
    """A header says more than is kept."""


class Frames:
    """Bytes in, whole frames out."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Frame]:
        """Raises FrameTooLargeError."""
        content = self._rest + chunk if self._rest else chunk
        start, end = 0, len(content)
        found = []
        while start + _HEADER_BYTES <= end:
            body = start + _HEADER_BYTES
            after = body + int.from_bytes(content[start + 4 : body])
            if after - body > FRAME_BYTES_MAX:
                raise FrameTooLargeError(f"a frame of {after - body} bytes")
            if after > end:
                break
            found.append(Frame(STREAMS.get(content[start], "stdout"), content[body:after]))
            start = after
        self._rest = content[start:]
        return found


def packed(frames: Iterable[Frame]) -> bytes:
    """As Docker would send them."""
    return b"".join(
        bytes((_STDERR if frame.stream == "stderr" else 1, 0, 0, 0))
        + len(frame.data).to_bytes(4)
        + frame.data
        for frame in frames
    )


def stamp(frame: Frame) -> bytes:
    """The time stamp that a frame begins with."""
    return frame.data.partition(b" ")[0]


def without_stamp(frame: Frame) -> Frame:
    return Frame(frame.stream, frame.data.partition(b" ")[2])


def joined(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Frames in a row from the same output as one."""
    stream, parts = "", list[bytes]()
    for frame in frames:
        if frame.stream != stream and parts:
            yield Frame(stream, b"".join(parts))
            parts.clear()
        stream = frame.stream
        parts.append(frame.data)
    if parts:
        yield Frame(stream, b"".join(parts))
