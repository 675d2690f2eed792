"""Progress of a long command: a spinner on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    def doing(self, text: str) -> None:
        """A step that may take a while has started."""

    def done(self, text: str) -> None:
        """A step is complete."""


class Lines:
    """One line per step, for logs and pipes."""

    def doing(self, text: str) -> None:
        print(f"..  {text}", flush=True)

    def done(self, text: str) -> None:
        print(f"ok  {text}", flush=True)


@contextmanager
def showing() -> Iterator[Progress]:
    if not sys.stdout.isatty():
        yield Lines()
        return
    from rich.console import Console  # slow to import, so only on a terminal
    from rich.text import Text

    console = Console(highlight=False)
    with console.status("starting") as status:

        class Spinner:
            def doing(self, text: str) -> None:
                status.update(Text(text))

            def done(self, text: str) -> None:
                console.print(Text.assemble(("✓", "green"), " ", text))

        yield Spinner()
