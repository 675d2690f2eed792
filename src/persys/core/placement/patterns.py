"""Checks patterns of users, which are matched against every node: only patterns with a bounded cost.

Python's regular expressions can take exponential time. So only a few repeats are allowed, no repeated groups,
no lookaround and no backreferences, and values longer than usual labels never match.
"""

import re
from functools import lru_cache
from warnings import catch_warnings, simplefilter

from persys.errors import InvalidError

PATTERN_LENGTH_MAX = 128
MATCHED_LENGTH_MAX = 64
# A pattern is tried in at most 2^18 ways: each repeat has 2^6 lengths, each alternative has two.
_COST_MAX, _COST_OF_REPEAT = 18, 6
# Escaped, a class, the opening of a group, a repeat, or any one character.
_PIECE = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?:)?|\{[0-9,]+\}\??|[*+?]\??|.", re.DOTALL
)


def check_pattern(pattern: str, field: str) -> None:
    """Raises InvalidError for an invalid pattern, or one that could take too long."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidError(
            field,
            f"the pattern has {len(pattern)} characters: expected at most {PATTERN_LENGTH_MAX}",
        )
    try:
        with catch_warnings():
            # Python warns of patterns whose meaning it may change.
            simplefilter("error")
            compiled(pattern)
    except (re.error, OverflowError, FutureWarning, DeprecationWarning) as err:
        raise InvalidError(
            field, f"invalid pattern {pattern!r}: expected a regular expression: {err}"
        ) from err
    if (cost := _cost(pattern)) is None or cost > _COST_MAX:
        raise InvalidError(
            field,
            f"invalid pattern {pattern!r}: it could take too long; use at most three of * + {{}}, few of ? "
            "and |, no repeated groups, no lookaround and no backreferences",
        )


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _cost(pattern: str) -> int | None:
    """The power of two that bounds the ways to match; None if there is no such bound."""
    cost, before = 0, ""
    for piece in _PIECE.findall(pattern):
        refers_back = piece[0] == "\\" and piece[1:].isdigit()
        looks_around = piece[0] == "?" and before == "("
        repeats = piece[0] in "*+" or (piece[0] == "{" and len(piece) > 1)
        if refers_back or looks_around or (repeats and before == ")"):
            return None
        if repeats:
            cost += _COST_OF_REPEAT
        elif piece[0] in "?|":
            cost += 1
        before = piece
    return cost
