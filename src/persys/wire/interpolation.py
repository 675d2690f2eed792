"""Variables in a Compose file: $NAME, ${NAME}, ${NAME:-default} and their kin, as Compose puts values in.

Only what the spec's own env says is known. The agent gives Compose nothing else either, so that a port that
the scheduler counted is the port that is opened.
"""

import re
from collections.abc import Mapping

from persys.errors import RefusedError

_DEPTH_MAX = 8
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r":?[-?+]")


class VariableError(RefusedError):
    """A variable is written in a way that Compose refuses, or is one that must be set and is not."""


def interpolated(text: str, env: Mapping[str, str]) -> str:
    return _expand(text, env, 0) if "$" in text else text


def _expand(text: str, env: Mapping[str, str], depth: int) -> str:
    if depth > _DEPTH_MAX:
        raise VariableError("variables are nested too deeply")
    parts, at = [], 0
    while (dollar := text.find("$", at)) >= 0:
        parts.append(text[at:dollar])
        value, at = _value(text, dollar + 1, env, depth)
        parts.append(value)
    parts.append(text[at:])
    return "".join(parts)


def _value(text: str, at: int, env: Mapping[str, str], depth: int) -> tuple[str, int]:
    """What stands for the variable whose `$` is just before `at`, and where the text goes on."""
    if text.startswith("$", at):
        return "$", at + 1
    if text.startswith("{", at):
        end = _closing(text, at)
        return _braced(text[at + 1 : end], env, depth), end + 1
    name = _NAME.match(text, at)
    if name is None:
        raise VariableError("a single $ begins a variable; write $$ for the sign itself")
    return env.get(name[0], ""), name.end()


def _closing(text: str, at: int) -> int:
    depth = 0
    for index in range(at, len(text)):
        if text[index] == "{":
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if not depth:
                return index
    raise VariableError("${ has no closing }")


def _braced(inner: str, env: Mapping[str, str], depth: int) -> str:
    name = _NAME.match(inner)
    if name is None:
        raise VariableError(f"${{{inner[:40]}}} names no variable")
    found, rest = env.get(name[0]), inner[name.end() :]
    if not rest:
        return found or ""
    operator = _OPERATOR.match(rest)
    if operator is None:
        raise VariableError(f"${{{inner[:40]}}} is no way to write a variable")
    word = rest[operator.end() :]
    is_there = bool(found) if operator[0].startswith(":") else found is not None
    match operator[0][-1]:
        case "-":
            return (found or "") if is_there else _expand(word, env, depth + 1)
        case "+":
            return _expand(word, env, depth + 1) if is_there else ""
        case _:
            if not is_there:
                raise VariableError(f"variable {name[0]} is not set: {word or 'it must be'}")
            return found or ""
