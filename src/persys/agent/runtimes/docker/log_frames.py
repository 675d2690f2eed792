"""Docker's log stream format: frames of stdout and stderr, each with a header.

If timestamps are requested, every frame begins with one: 30 characters and a space.
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
    """The size in a frame header exceeds the limit."""


class Frames:
    """Splits a byte stream into frames."""

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
                raise FrameTooLargeError(
                    f"frame of {after - body} bytes is larger than {FRAME_BYTES_MAX} bytes"
                )
            if after > end:
                break
            found.append(Frame(STREAMS.get(content[start], "stdout"), content[body:after]))
            start = after
        self._rest = content[start:]
        return found


def encode_frames(frames: Iterable[Frame]) -> bytes:
    """Encode frames in Docker's format."""
    return b"".join(
        bytes((_STDERR if frame.stream == "stderr" else 1, 0, 0, 0))
        + len(frame.data).to_bytes(4)
        + frame.data
        for frame in frames
    )


def timestamp(frame: Frame) -> bytes:
    """The timestamp at the start of a frame."""
    return frame.data.partition(b" ")[0]


def without_timestamp(frame: Frame) -> Frame:
    return Frame(frame.stream, frame.data.partition(b" ")[2])


def merge_frames(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Merge consecutive frames of the same output."""
    stream, parts = "", list[bytes]()
    for frame in frames:
        if frame.stream != stream and parts:
            yield Frame(stream, b"".join(parts))
            parts.clear()
        stream = frame.stream
        parts.append(frame.data)
    if parts:
        yield Frame(stream, b"".join(parts))
