"""Entry point of persysctl: parse the command line, run the command, turn errors into exit codes."""

import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType

from persys.cli.framework.command_table import COMPLETE
from persys.cli.framework.exit_codes import ExitCode, report_error
from persys.errors import PersysError


def main() -> None:
    # No garbage collection, and os._exit at the end: each saves a tenth of the run time of a short command.
    # Commands that run for long enable the collector again.
    gc.disable()
    # grpc always imports grpc.aio, which persysctl never uses and which costs another tenth.
    sys.modules.setdefault("grpc.aio", ModuleType("grpc.aio"))
    if sys.stdout is not None and (sys.stdout.isatty() or sys.stderr.isatty()):
        from persys.cli.framework.terminal import protect  # only on a terminal: start-up time

        protect()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass  # the reader, for example head, has closed the pipe
    os._exit(code)


def run(argv: Sequence[str]) -> int:
    words = list(argv)
    try:
        if words[:1] == [COMPLETE.name]:
            return _function(COMPLETE.run)(words[1:])
        from persys.cli.framework.parser import parse

        options = parse(words)
        return _function(options.run)(options)
    except PersysError as err:
        return report_error(err)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        return ExitCode.OK
    except SystemExit as end:
        # argparse has printed the error or the help.
        return end.code if isinstance(end.code, int) else ExitCode.OK


def _function(run: str) -> Callable[[object], int]:
    module, _, name = run.partition(":")
    function: Callable[[object], int] = getattr(import_module(f"persys.cli.{module}"), name)
    return function


if __name__ == "__main__":
    main()
