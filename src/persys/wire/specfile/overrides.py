"""Changes to the documents of a spec file before they are validated: variables and `--set`.

Variables are replaced in the values of a parsed document, never in its text: a value cannot add keys. Only
`${NAME}` and its forms with a default are replaced, so that `$NAME` in a shell command stays. A Compose file
has its own variables; it gets the values as the `env` of its stack.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from persys.core.bounded_yaml import (
    TAG,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    YamlError,
    compose,
    mapping_node,
    relabel,
    retag,
    text_node,
)
from persys.errors import InvalidError
from persys.wire.compose.interpolation import VariableError, replace_variables
from persys.wire.specfile.document import STEP, step_of
from persys.wire.specfile.strict import SET_OPTION, Position, SpecFileError, position_of

_IN_COMPOSE = re.compile(
    r"\$\$|\$\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)(?P<form>:?[-?+])?|\$(?P<plain>[A-Za-z_][A-Za-z0-9_]*)"
)
_PROFILES = "COMPOSE_PROFILES"
_ENV_FILE = ".env"


@dataclass(frozen=True, slots=True)
class Assignment:
    """One `--set`: where, and the value as YAML."""

    label: str
    steps: tuple[str | int, ...]
    value: str


@dataclass(frozen=True, slots=True)
class Overrides:
    variables: Mapping[str, str] | None = None  # None: variables are not replaced
    file_variables: Mapping[str, str] = field(default_factory=dict)  # those of them from a file
    assignments: tuple[Assignment, ...] = ()


UNCHANGED = Overrides()


def parse_assignment(text: str) -> Assignment:
    """`container.image=nginx:1.27`, `container.ports[0]=80`. Raises InvalidError."""
    steps: list[str | int] = []
    at = 0
    while found := STEP.match(text, at):
        name = found["name"]
        if name and "=" in name:
            name = name.partition("=")[0]
            if not name:
                break
            steps.append(name)
            at += len(name)
            break
        steps.append(step_of(found))
        at = found.end() + text.startswith(".", found.end())
        if text.startswith("=", at):
            break
    if not steps or not text.startswith("=", at) or isinstance(steps[0], int):
        expected = "expected PATH=VALUE, for example container.image=nginx:1.27"
        raise InvalidError(SET_OPTION, f"invalid assignment {text!r}: {expected}")
    return Assignment(f"{SET_OPTION} {text}", tuple(steps), text[at + 1 :])


def assign(root: Node, assignments: Sequence[Assignment]) -> None:
    """Set the values in a document. Missing mappings are created; an index may be the end of a list."""
    for one in assignments:
        node = root
        for step, after in zip(one.steps[:-1], one.steps[1:], strict=True):
            node = _enter(node, step, one, _empty(one, after))
        _put(node, one.steps[-1], one, _value(one))


def _empty(one: Assignment, after: str | int) -> Node:
    """An empty collection for the next step."""
    mapping = mapping_node(one.label)
    if isinstance(after, str):
        return mapping
    return SequenceNode(f"{TAG}seq", [], mapping.start_mark, mapping.end_mark)


def _value(one: Assignment) -> Node:
    try:
        found = compose(one.value)
    except YamlError as err:
        raise _refused(one, f"invalid value {one.value!r}: {err.problem}") from err
    node = found if found is not None else text_node("", mapping_node(one.label))
    relabel(node, one.label)
    return node


def _enter(node: Node, step: str | int, one: Assignment, empty: Node) -> Node:
    """The child of a step. One that is missing or has no value is replaced by `empty`."""
    found: Node | None = None
    if isinstance(step, int):
        items = node.value if isinstance(node, SequenceNode) else []
        found = items[step] if step < len(items) else None
    elif isinstance(node, MappingNode):
        found = next((value for key, value in node.value if key.value == step), None)
    if found is not None and (found.value or not isinstance(found, ScalarNode)):
        return found
    _put(node, step, one, empty)
    return empty


def _put(node: Node, step: str | int, one: Assignment, value: Node) -> None:
    if isinstance(step, int):
        if not isinstance(node, SequenceNode):
            raise _refused(one, f"[{step}] is below a value that is not a list")
        if step > len(node.value):
            raise _refused(one, f"[{step}] is after the end of a list of {len(node.value)} items")
        node.value[step : step + 1] = [value]
        return
    if not isinstance(node, MappingNode):
        raise _refused(one, f"{step} is below a value that is not a mapping")
    for index, (key, _) in enumerate(node.value):
        if key.value == step:
            node.value[index] = (key, value)
            return
    node.value.append((text_node(step, value), value))


def _refused(one: Assignment, problem: str) -> SpecFileError:
    field = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in one.steps)
    return SpecFileError(field.lstrip("."), problem, at=Position(option=one.label))


def interpolate(root: Node, text: str, variables: Mapping[str, str]) -> None:
    """Replace ${NAME} in every value of a document. `text` is the file, for positions of errors."""
    lines = text.split("\n")
    for node, path in _scalars(root):
        if "${" not in node.value:
            continue
        try:
            retag(node, replace_variables(node.value, variables))
        except VariableError as err:
            at = _position(node, f"${{{err.variable}", lines)
            raise SpecFileError(path or "file", str(err), at=at) from err


def _scalars(root: Node) -> Iterator[tuple[ScalarNode, str]]:
    """Every value with its path; keys are not values. An aliased value is visited once."""
    waiting, seen = [(root, "")], {id(root)}
    while waiting:
        node, path = waiting.pop()
        children: list[tuple[Node, str]] = []
        if isinstance(node, ScalarNode):
            yield node, path
        elif isinstance(node, MappingNode):
            children = [(part, f"{path}.{key.value}".lstrip(".")) for key, part in node.value]
        elif isinstance(node, SequenceNode):
            children = [(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        for found in reversed(children):
            if id(found[0]) not in seen:
                seen.add(id(found[0]))
                waiting.append(found)


def _position(node: Node, wanted: str, lines: Sequence[str]) -> Position:
    """Where a text is within the lines of a value."""
    start, end = node.start_mark, node.end_mark
    for number in range(start.line, min(end.line + 1, len(lines))):
        column = lines[number].find(wanted, start.column if number == start.line else 0)
        if column >= 0:
            return Position(number + 1, column + 1)
    return position_of(node)


class MissingVariable(NamedTuple):
    """A variable of a Compose file that has neither a value nor a default."""

    name: str
    at: Position


def compose_variables(
    root: Node, text: str, overrides: Overrides
) -> tuple[dict[str, str], list[MissingVariable]]:
    """The variables that a Compose file uses, and those that are missing."""
    lines = text.split("\n")
    variables = overrides.variables or {}
    env = {name: variables[name] for name in (_PROFILES,) if name in variables}
    missing: dict[str, MissingVariable] = {}
    for node, _ in _scalars(root):
        if node.value == _ENV_FILE:
            env |= overrides.file_variables  # the file .env of a stack contains its env
        for found in _IN_COMPOSE.finditer(node.value):
            name = found["braced"] or found["plain"]
            if name in variables:
                env[name] = variables[name]
            elif name and not found["form"]:
                at = _position(node, found[0], lines)
                missing.setdefault(name, MissingVariable(name, at))
    return env, list(missing.values())
