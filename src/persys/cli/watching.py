"""Print once, or with --watch again on every change until interrupted."""

import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from time import sleep
from typing import TypeVar

from persys.cli.exits import Exit
from persys.cli.terminal import unfiltered
from persys.errors import UnavailableError

T = TypeVar("T")

_INTERVAL_SECONDS = 1
_CLEAR = "\x1b[H\x1b[2J"


def show(fetch: Callable[[], T], render: Callable[[T], str], *, watch: bool) -> Exit:
    found = fetch()
    if not watch:
        _print(render(found))
        return Exit.OK
    with suppress(KeyboardInterrupt):  # the user ends the watch
        _watch(found, fetch, render)
    return Exit.OK


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
                print(f"no answer, retrying: {err}", file=sys.stderr)
            silent = True
        else:
            silent = False


def _print(text: str) -> None:
    if text:
        print(text, flush=True)
