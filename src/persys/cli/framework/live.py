"""Output that changes: `--wait` as a live table, the steps of a long command, and `--watch`.

Without a terminal each change is printed as a line. rich is slow to import, so only a terminal imports it.
"""

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import sleep
from typing import Protocol, TextIO, TypeVar

from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.terminal import unfiltered
from persys.core.terminal import visible
from persys.errors import UnavailableError

T = TypeVar("T")
Update = Callable[[Mapping[str, tuple[str, str]]], None]
"""Takes the state and the reason of each workload."""
_INTERVAL_SECONDS = 1
_CLEAR = "\x1b[H\x1b[2J"


def print_or_watch(fetch: Callable[[], T], render: Callable[[T], str], *, watch: bool) -> ExitCode:
    """Print once, or with `watch` again on every change until interrupted."""
    found = fetch()
    if not watch:
        _print(render(found))
        return ExitCode.OK
    with suppress(KeyboardInterrupt):  # the user ends the watch
        _watch(found, fetch, render)
    return ExitCode.OK


def _watch(found: T, fetch: Callable[[], T], render: Callable[[T], str]) -> None:
    gc.enable()
    terminal = sys.stdout.isatty()
    shown: object = None
    silent = False
    while True:
        text = render(found)
        # A terminal is updated when an age changes too; elsewhere only a new answer is printed.
        current: object = text if terminal else found
        if current != shown:
            if terminal:
                unfiltered(sys.stdout).write(_CLEAR)
            _print(text)
            shown = current
        sleep(_INTERVAL_SECONDS)
        try:
            found = fetch()
        except UnavailableError as err:
            if not silent:
                print(f"no response, retrying: {err}", file=sys.stderr)
            silent = True
        else:
            silent = False


def _print(text: str) -> None:
    if text:
        print(text, flush=True)


@contextmanager
def live_view(*, quiet: bool) -> Iterator[Update]:
    """`quiet`: standard output is only for the result, so changes go to standard error."""
    if sys.stdout.isatty() and not quiet:
        with _table() as update:
            yield update
    else:
        yield _lines(sys.stderr if quiet else sys.stdout)


def _lines(stream: TextIO) -> Update:
    shown: dict[str, tuple[str, str]] = {}

    def update(states: Mapping[str, tuple[str, str]]) -> None:
        for workload_id, (state, why) in states.items():
            if shown.get(workload_id) != (state, why):
                print(f"{workload_id}: {state}{why and f' ({why})'}", file=stream, flush=True)
                shown[workload_id] = (state, why)

    return update


@contextmanager
def _table() -> Iterator[Update]:
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    spinners: dict[str, Spinner] = {}

    def draw(states: Mapping[str, tuple[str, str]]) -> Table:
        table = Table.grid(padding=(0, 2))
        for workload_id, (state, why) in states.items():
            spinner = spinners.setdefault(workload_id, Spinner("dots"))
            table.add_row(
                spinner,
                *(Text(visible(text)) for text in (workload_id, state)),
                Text(visible(why), style="dim"),
            )
        return table

    console = Console(file=unfiltered(sys.stdout))
    with Live(draw({}), console=console, transient=True, refresh_per_second=8) as live:
        yield lambda states: live.update(draw(states))


class Progress(Protocol):
    def step(self, text: str) -> None:
        """A step that may take a while has started."""

    def done(self, text: str) -> None:
        """A step is complete."""


class LineProgress:
    """One line per step, for logs and pipes."""

    def step(self, text: str) -> None:
        print(f"..  {text}", flush=True)

    def done(self, text: str) -> None:
        print(f"ok  {text}", flush=True)


@contextmanager
def show_progress() -> Iterator[Progress]:
    if not sys.stdout.isatty():
        yield LineProgress()
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    with console.status("starting") as status:

        class Spinner:
            def step(self, text: str) -> None:
                status.update(Text(text))

            def done(self, text: str) -> None:
                console.print(Text.assemble(("✓", "green"), " ", text))

        yield Spinner()
