"""Conditions on a node's labels and facts: parse, evaluate and format them.

    zone = eu           zone != eu          zone in (eu, us)      zone notin (eu, us)     gpu exists
    node.memory_mb > 8000                   node.cpu_millicores < 4000
    rack ~ r[0-9]+      node.agent_version version >=1.2,<2

If the label is missing, only `!=` and `notin` hold. `~` matches the whole value.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from warnings import catch_warnings, simplefilter

from persys.errors import InvalidError
from persys.model.placement import Constraint, Operator

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


TEXT_LENGTH_MAX = 512
VALUES_MAX = 64
_CONSTRAINT = re.compile(
    r"(?P<key>[^\s=!<>~(),]+)\s*"
    r"(?:(?P<symbol>==|!=|=|>|<|~)|\s(?P<word>in|notin|not\s+in|exists|version)(?![^\s(<>=!]))"
    r"\s*(?P<rest>.*)",
    re.DOTALL,
)
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,9})?")
_VERSION = re.compile(r"v?([0-9]{1,9}(?:\.[0-9]{1,9}){0,7})")
_COMPARISON = re.compile(r"(>=|<=|==|!=|=|>|<)?\s*(v?[0-9]{1,9}(?:\.[0-9]{1,9}){0,7})")
_COMPARE = {">=": ge, "<=": le, ">": gt, "<": lt, "=": eq, "!=": ne}


def parse(text: str, field: str) -> Constraint:
    """Raises InvalidError that says what is wrong."""
    if len(text) > TEXT_LENGTH_MAX:
        raise InvalidError(field, f"has {len(text)} characters: expected at most {TEXT_LENGTH_MAX}")
    found = _CONSTRAINT.fullmatch(text.strip())
    if found is None:
        raise InvalidError(
            field,
            f"invalid constraint {text!r}: expected KEY OPERATOR VALUE, for example 'zone = eu' or "
            "'gpu exists'",
        )
    key, rest = found["key"], found["rest"].strip()
    operator = _operator(found["symbol"] or found["word"])
    return Constraint(key, operator, _values(operator, rest, field))


def holds(constraint: Constraint, labels: Mapping[str, str]) -> bool:
    return holds_for(constraint, labels.get(constraint.key))


def holds_for(constraint: Constraint, value: str | None) -> bool:
    """Whether it holds for this value of the label; None: the label is missing."""
    if value is None:
        return constraint.operator in (Operator.DIFFERS, Operator.NOT_IN)
    wanted = constraint.values
    match constraint.operator:
        case Operator.EXISTS:
            return True
        case Operator.EQUALS | Operator.IN:
            return value in wanted
        case Operator.DIFFERS | Operator.NOT_IN:
            return value not in wanted
        case Operator.ABOVE:
            return _NUMBER.fullmatch(value) is not None and float(value) > float(wanted[0])
        case Operator.BELOW:
            return _NUMBER.fullmatch(value) is not None and float(value) < float(wanted[0])
        case Operator.MATCHES:
            short = len(value) <= MATCHED_LENGTH_MAX
            return short and compiled(wanted[0]).fullmatch(value) is not None
        case Operator.VERSION:
            return _version_holds(wanted, value)


def written(constraint: Constraint) -> str:
    """The text of a constraint; `parse` reads it back as the same."""
    head = f"{constraint.key} {constraint.operator}"
    match constraint.operator:
        case Operator.EXISTS:
            return head
        case Operator.IN | Operator.NOT_IN:
            return f"{head} ({', '.join(constraint.values)})"
        case _:
            return f"{head} {','.join(constraint.values)}"


def _operator(word: str) -> Operator:
    if word == "==":
        return Operator.EQUALS
    return Operator.NOT_IN if word.startswith("not") else Operator(word)


def _values(operator: Operator, rest: str, field: str) -> tuple[str, ...]:
    if operator is Operator.EXISTS:
        if rest:
            raise InvalidError(field, f"invalid value {rest!r}: 'exists' takes no value")
        return ()
    if not rest:
        raise InvalidError(field, f"missing value: {operator.value!r} needs one")
    match operator:
        case Operator.IN | Operator.NOT_IN:
            return _listed(operator, rest, field)
        case Operator.ABOVE | Operator.BELOW:
            if not _NUMBER.fullmatch(rest):
                raise InvalidError(
                    field, f"invalid value {rest!r}: expected a number after {operator.value!r}"
                )
        case Operator.MATCHES:
            check_pattern(rest, field)
        case Operator.VERSION:
            return _comparisons(rest, field)
    return (rest,)


def _listed(operator: Operator, rest: str, field: str) -> tuple[str, ...]:
    values = tuple(value.strip() for value in rest[1:-1].split(","))
    if (
        rest[0] != "("
        or rest[-1] != ")"
        or not all(values)
        or any(set("()") & set(v) for v in values)
    ):
        raise InvalidError(
            field,
            f"invalid value {rest!r}: expected a list after {operator.value!r}, such as (a, b)",
        )
    if len(values) > VALUES_MAX:
        raise InvalidError(field, f"has {len(values)} values: expected at most {VALUES_MAX}")
    return values


def _comparisons(rest: str, field: str) -> tuple[str, ...]:
    values = []
    for part in rest.split(","):
        found = _COMPARISON.fullmatch(part.strip())
        if found is None:
            raise InvalidError(
                field,
                f"invalid version {part.strip()!r}: expected comparisons such as >=1.2,<2",
            )
        sign = "=" if found[1] in (None, "==") else found[1]
        values.append(sign + found[2].removeprefix("v"))
    return tuple(values)


def _version_holds(wanted: tuple[str, ...], value: str) -> bool:
    found = _VERSION.match(value)
    if found is None:
        return False
    for comparison in wanted:
        number = comparison.lstrip("<>=!")
        compare = _COMPARE[comparison.removesuffix(number)]
        if not compare(_parts(found[1]), _parts(number)):
            return False
    return True


def _parts(version: str) -> tuple[int, ...]:
    """1.2 and 1.2.0 are the same version."""
    return tuple(int(part) for part in version.split(".")) + (0,) * (7 - version.count("."))
