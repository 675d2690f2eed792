"""`persysctl exec` and `persysctl console`: run a command in a workload, or attach to the console of a VM.

With -t the local terminal is in raw mode until the end, so that every key, including Ctrl-C, goes to the
command. Ctrl-] detaches from a console, because the guest receives all other keys.
"""

import gc
import os
import select
import signal
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from persys.cli.commands.lookup import of_one_workload
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import UsageError
from persys.cli.framework.terminal import unfiltered
from persys.errors import UnavailableError
from persys.wire.gen.control.v1.control_pb2 import ExecInput, ExecStart, TerminalSize

_STDIN = 0
_CHUNK_BYTES = 32 * 1024
_DETACH_KEY = b"\x1d"  # Ctrl-]


def run(options: Namespace) -> int:
    if not options.command:
        raise UsageError("the command is missing: expected `persysctl exec WORKLOAD -- COMMAND`")
    if options.tty and options.stdin and not os.isatty(_STDIN):
        raise UsageError("-t with -i needs a terminal as standard input")
    start = ExecStart(
        workload_id=options.id, service=options.service, command=options.command, tty=options.tty
    )
    return _run_session(options, start, raw=options.tty and options.stdin, stdin=options.stdin)


def console(options: Namespace) -> int:
    start = ExecStart(workload_id=options.id, console=True, force=options.force)
    return _run_session(options, start, raw=os.isatty(_STDIN), stdin=True)


def _run_session(options: Namespace, start: ExecStart, *, raw: bool, stdin: bool) -> int:
    gc.enable()
    with (
        scheduler_client(options) as client,
        of_one_workload(client, start.workload_id),
        _terminal(raw=raw) as resized,
    ):
        started = Event()
        for output in client.exec(_inputs(start, resized, started, stdin=stdin)):
            if start.console and not started.is_set():
                print(
                    f"attached to the console of {start.workload_id}; detach with Ctrl-]\r",
                    file=unfiltered(sys.stderr),
                )
            started.set()
            for stream, data in ((sys.stdout, output.stdout), (sys.stderr, output.stderr)):
                if data:
                    stream.buffer.write(data)
                    stream.flush()
            if output.HasField("exit"):
                return output.exit.code
        raise UnavailableError("the session ended without an exit code")


def _inputs(start: ExecStart, resized: int, started: Event, *, stdin: bool) -> Iterator[ExecInput]:
    """The inputs of the session. A thread of gRPC iterates over them and blocks for the next one."""
    if start.tty and (size := _size()) is not None:
        start.size.CopyFrom(size)
    yield ExecInput(start=start)
    started.wait()
    if not stdin:
        yield ExecInput(stdin_closed=True)
    watched = [resized, _STDIN] if stdin else [resized]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if resized in ready:
            os.read(resized, _CHUNK_BYTES)
            if (size := _size()) is not None:
                yield ExecInput(resize=size)
        if _STDIN in ready:
            data = os.read(_STDIN, _CHUNK_BYTES)
            leaves = start.console and _DETACH_KEY in data
            if leaves:
                data = data[: data.index(_DETACH_KEY)]
            if data:
                yield ExecInput(stdin=data)
            if leaves:
                return
            if not data:
                watched = [resized]
                yield ExecInput(stdin_closed=True)


@contextmanager
def _terminal(*, raw: bool) -> Iterator[int]:
    """Yield a pipe that becomes readable when the terminal is resized."""
    resized, resize_writer = os.pipe()
    os.set_blocking(resize_writer, False)
    if not raw:
        yield resized
        return
    import termios
    import tty

    before = termios.tcgetattr(_STDIN)
    previous_handler = signal.signal(signal.SIGWINCH, lambda *_: os.write(resize_writer, b"."))
    try:
        tty.setraw(_STDIN)
        yield resized
    finally:
        termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, previous_handler)


def _size() -> TerminalSize | None:
    try:
        size = os.get_terminal_size(_STDIN)
    except OSError:
        return None
    return TerminalSize(rows=size.lines, columns=size.columns)
