"""Variable interpolation of Compose files: $NAME, ${NAME}, ${NAME:-default} and the other forms of Compose.

Only variables of the spec's env are defined. The agent passes no others to Compose, so the ports that the
scheduler counts are the ports that are opened.
"""

import re
from collections.abc import Mapping

from persys.errors import RefusedError

_DEPTH_MAX = 8
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r":?[-?+]")


class VariableError(RefusedError):
    """The syntax of a variable is invalid, or a required variable is not set.

    `variable` is its name, or empty if the name is invalid.
    """

    def __init__(self, text: str, *, variable: str = "") -> None:
        super().__init__(text)
        self.variable = variable


def interpolated(text: str, env: Mapping[str, str]) -> str:
    return _expand(text, env, 0) if "$" in text else text


def replace_variables(text: str, env: Mapping[str, str]) -> str:
    """Replace only ${NAME} and its other forms. $${NAME} is the text ${NAME}; other dollar signs stay.

    Unlike in Compose, a variable that is not set and has no default is an error.
    """
    parts, at = [], 0
    while (dollar := text.find("${", at)) >= 0:
        if dollar > at and text[dollar - 1] == "$":
            parts.append(f"{text[at : dollar - 1]}${{")
            at = dollar + 2
            continue
        end = _closing(text, dollar + 1)
        inner = text[dollar + 2 : end]
        if _NAME.fullmatch(inner) and inner not in env:
            problem = f"variable {inner} is not set: set it, or write $${{{inner}}} for the text"
            raise VariableError(problem, variable=inner)
        parts += (text[at:dollar], _braced(inner, env, 0))
        at = end + 1
    return "".join((*parts, text[at:]))


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
    """The value of the variable whose `$` is just before `at`, and the position after it."""
    if text.startswith("$", at):
        return "$", at + 1
    if text.startswith("{", at):
        end = _closing(text, at)
        return _braced(text[at + 1 : end], env, depth), end + 1
    name = _NAME.match(text, at)
    if name is None:
        raise VariableError("invalid variable after $: write $$ for a literal dollar sign")
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
        raise VariableError(f"invalid variable ${{{inner[:40]}}}: expected a name after ${{")
    found, rest = env.get(name[0]), inner[name.end() :]
    if not rest:
        return found or ""
    operator = _OPERATOR.match(rest)
    if operator is None:
        expected = "expected an operator such as :-, ? or + after the name"
        raise VariableError(f"invalid variable ${{{inner[:40]}}}: {expected}")
    word = rest[operator.end() :]
    is_there = bool(found) if operator[0].startswith(":") else found is not None
    match operator[0][-1]:
        case "-":
            return (found or "") if is_there else _expand(word, env, depth + 1)
        case "+":
            return _expand(word, env, depth + 1) if is_there else ""
        case _:
            if not is_there:
                problem = f"variable {name[0]} is not set: {word or 'it is required'}"
                raise VariableError(problem, variable=name[0])
            return found or ""
