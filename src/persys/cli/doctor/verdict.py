"""What one look found: how bad it is, what is so, and what to do about it."""

from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    OK = "ok"
    WARN = "warn"  # works now, and will not for long, or not as it should
    FAIL = "fail"


class Finding(NamedTuple):
    level: Level
    check: str
    what: str
    cure: str = ""


def ok(check: str, what: str) -> Finding:
    return Finding(Level.OK, check, what)


def warn(check: str, what: str, cure: str) -> Finding:
    return Finding(Level.WARN, check, what, cure)


def fail(check: str, what: str, cure: str) -> Finding:
    return Finding(Level.FAIL, check, what, cure)
