"""Exit codes of persysctl and persys, which scripts rely on."""

import sys
from enum import IntEnum

from persys.errors import InvalidError, PersysError, SettingsError, UnavailableError


class ExitCode(IntEnum):
    OK = 0
    FAILED = 1  # the workload failed, or the request was refused
    USAGE = 2  # the command line or the spec is invalid
    TIMED_OUT = 3  # timed out while waiting
    UNREACHABLE = 4  # no response from the server; the result is unknown
    INTERRUPTED = 130


class SetupError(PersysError):
    """Setup of this machine failed; the text says what was tried and what to do."""


class UsageError(PersysError):
    """The command line names something that does not exist."""


def report_error(err: PersysError) -> ExitCode:
    """Print the error and return its exit code."""
    print(f"error: {err}", file=sys.stderr)
    return exit_code_of(err)


def exit_code_of(err: PersysError) -> ExitCode:
    match err:
        case InvalidError() | SettingsError() | UsageError():
            return ExitCode.USAGE
        case UnavailableError():
            return ExitCode.UNREACHABLE
        case _:
            return ExitCode.FAILED
