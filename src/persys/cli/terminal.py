"""The streams of a command on a terminal: text of others is shown with its control characters visible.

The outermost frame of persysctl puts these in place of sys.stdout and sys.stderr, so that no command has to
think of it. What this program itself draws, and the sessions of exec and console, use `unfiltered`. A pipe
or a file gets every byte as it came.
"""

import sys
from typing import IO, Any, TextIO, cast

from persys.core.terminal import visible


class SafeStream:
    """A text stream whose `write` makes control characters visible. Everything else is the stream's own."""

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
    """Put safe streams in place of those that are terminals. Repeatable."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None and stream.isatty() and not isinstance(stream, SafeStream):
            setattr(sys, name, SafeStream(stream))


def unfiltered(stream: IO[str]) -> TextIO:
    """The stream itself, for what this program draws."""
    found = stream.unfiltered if isinstance(stream, SafeStream) else stream
    return cast("TextIO", found)  # sys.stdout is one
