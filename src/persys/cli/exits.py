"""How a command ended, as a number that scripts can rely on."""

from enum import IntEnum

from persys.errors import InvalidError, PersysError, SettingsError, UnavailableError


class Exit(IntEnum):
    OK = 0
    FAILED = 1  # the workload failed, or the request was refused
    USAGE = 2  # the command line or the spec is wrong
    TIMED_OUT = 3  # what was waited for did not happen in time
    UNREACHABLE = 4  # no answer, so nothing is known
    INTERRUPTED = 130


class SetUpError(PersysError):
    """This machine could not be made ready; the text says what was tried and what to do."""


class UsageError(PersysError):
    """The command line asks for something that does not exist."""


def exit_of(err: PersysError) -> Exit:
    match err:
        case InvalidError() | SettingsError() | UsageError():
            return Exit.USAGE
        case UnavailableError():
            return Exit.UNREACHABLE
        case _:
            return Exit.FAILED
