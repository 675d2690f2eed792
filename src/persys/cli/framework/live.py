"""Output that changes: `--wait` as a live table, the steps of a long command, and `--watch`.

Without a terminal each change is printed as a line. rich is slow to import, so only a terminal imports it.
"""

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import sleep
from typing import TYPE_CHECKING, NamedTuple, Protocol, TextIO, TypeVar

from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.terminal import unfiltered
from persys.core.terminal import visible
from persys.errors import UnavailableError

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")


class LiveState(NamedTuple):
    """What a workload or node is doing now. `share` is the part of the work that is done, if it is known."""

    text: str
    detail: str = ""
    share: float | None = None
    ticks: bool = False  # the detail changes all the time

    @property
    def headline(self) -> str:
        return self.text if self.share is None else f"{self.text} {self.share * 100:.0f} %"

    @property
    def milestone(self) -> tuple[str, str, int]:
        """What has to change for a new line of output: progress counts in quarters."""
        quarter = 0 if self.share is None else int(self.share * _MILESTONES)
        return self.text, "" if self.ticks else self.detail, quarter


Update = Callable[[Mapping[str, LiveState]], None]
"""Takes the state of each workload or node."""
_MILESTONES = 4
_BAR_WIDTH = 24
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
def live_view(*, quiet: bool, lines: bool = True) -> Iterator[Update]:
    """`quiet`: standard output is only for the result, so changes go to standard error.

    Without `lines` nothing is printed unless standard output is a terminal.
    """
    if sys.stdout.isatty() and not quiet:
        with _table() as update:
            yield update
    elif lines:
        yield _lines(sys.stderr if quiet else sys.stdout)
    else:
        yield lambda states: None


def _lines(stream: TextIO) -> Update:
    shown: dict[str, tuple[str, str, int]] = {}

    def update(states: Mapping[str, LiveState]) -> None:
        for name, state in states.items():
            if shown.get(name) != state.milestone:
                detail = state.detail and f" ({state.detail})"
                print(f"{name}: {state.headline}{detail}", file=stream, flush=True)
                shown[name] = state.milestone

    return update


@contextmanager
def _table() -> Iterator[Update]:
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    spinners: dict[str, Spinner] = {}

    def bar(state: LiveState) -> "RenderableType":
        if state.share is None:
            return Text("")
        return ProgressBar(total=1.0, completed=state.share, width=_BAR_WIDTH)

    def draw(states: Mapping[str, LiveState]) -> Table:
        table = Table.grid(padding=(0, 2))
        for name in ("spinner", "name", "state"):
            table.add_column(name, no_wrap=True)
        for name, state in states.items():
            spinner = spinners.setdefault(name, Spinner("dots"))
            cells = [Text(visible(text)) for text in (name, state.headline)]
            detail = Text(visible(state.detail), style="dim", no_wrap=True, overflow="ellipsis")
            table.add_row(spinner, *cells, bar(state), detail)
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
