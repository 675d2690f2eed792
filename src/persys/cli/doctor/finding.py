"""The result of one check: its level, what was found and the fix."""

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"  # works now, but only partly or not for long
    FAIL = "fail"


class Finding(NamedTuple):
    level: Level
    check: str
    what: str
    cure: str = ""  # the fix; JSON output has this name


def ok(check: str, what: str) -> Finding:
    return Finding(Level.OK, check, what)


def warn(check: str, what: str, fix: str) -> Finding:
    return Finding(Level.WARN, check, what, fix)


def fail(check: str, what: str, fix: str) -> Finding:
    return Finding(Level.FAIL, check, what, fix)
