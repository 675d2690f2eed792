"""Escapes control characters in output to a terminal.

The entry point of persysctl replaces sys.stdout and sys.stderr with these streams, so that commands need not
handle it. Live views, exec and console use `unfiltered`. A pipe or a file receives every byte unchanged.
"""

import sys
from typing import IO, Any, TextIO, cast

from persys.core.terminal import visible


class SafeStream:
    """A text stream whose `write` escapes control characters. All other calls go to the stream."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        self.unfiltered.write(visible(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


def protect() -> None:
    """Replace stdout and stderr by safe streams where they are terminals. Repeatable."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty() and not isinstance(stream, SafeStream):
            setattr(sys, name, SafeStream(stream))


def unfiltered(stream: IO[str]) -> TextIO:
    """The underlying stream, for control sequences of this program."""
    found = stream.unfiltered if isinstance(stream, SafeStream) else stream
    return cast("TextIO", found)  # sys.stdout is one
