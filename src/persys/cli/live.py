"""Shows the progress of a wait: a live table on a terminal, one line per change elsewhere."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from persys.cli.terminal import unfiltered
from persys.core.terminal import visible

Update = Callable[[Mapping[str, tuple[str, str]]], None]
"""Takes the state and the reason of each workload."""


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
