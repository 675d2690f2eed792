"""Other document formats that `apply` accepts, and the line numbers of fields.

`workload get -o yaml` prints the intent and the status of a workload in one document. A document with a
`status` is read as such a view: `workload_id`, `desired_state` and `spec` are used, other keys are ignored.

A Compose file is recognised by its `services` and applied as one stack.
"""

import re
from collections.abc import Mapping
from typing import Any

from persys.core.bounded_yaml import TAG, MappingNode, Node, ScalarNode, SequenceNode, text_node
from persys.core.numbers import whole_number
from persys.errors import InvalidError
from persys.wire.specfile.strict import (
    Position,
    SpecFileError,
    entries,
    error_at,
    position_of,
    text_of,
)

_OF_INTENT = frozenset({"workload_id", "workloadId", "desired_state", "desiredState", "spec"})
_STATUS = "status"
_SERVICES = "services"
_IN_COMPOSE = "spec.compose.inline_yaml"
# A name, ['a key'] of a mapping, or [0].
_QUOTED = r"""\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]"""
STEP = re.compile(rf"(?P<name>[^.\[\]]+)|(?P<key>{_QUOTED})|\[(?P<index>\d+)\]")
_FIELD = re.compile(
    rf"(?P<field>[A-Za-z_](?:{_QUOTED}|[\w.\[\]-])*): (?P<problem>.+)",
    re.S,
)
_LINE = re.compile(r"line (\d+): ")
_INNER_LINE = re.compile(r"(?:^|: )(line (\d+): )")
_NOT_IN_AN_ID = re.compile(r"[^a-z0-9]+")
_ID_LENGTH_MAX = 63


def position_of_field(root: Node, field: str) -> Position:
    """The position of a field such as `spec.container.ports[0]`, or of its nearest parent in the document.

    That is the value if it is a single one, else the key. A document without a `spec` has the fields of the
    spec at the top level.
    """
    node, place = root, root
    for step in _steps(root, field):
        found = child(node, step)
        if found is None:
            return position_of(place)
        node, place = found
    return position_of(node if isinstance(node, ScalarNode) and node.value else place)


def located(root: Node, field: str, problem: str) -> tuple[Position, str]:
    """The position of an error in the file, and its text without the line number inside a text block."""
    inner = _INNER_LINE.search(problem)
    block = _at(root, field)
    if inner is None or not isinstance(block, ScalarNode) or block.style != "|":
        return position_of_field(root, field), problem
    text = problem[: inner.start(1)] + problem[inner.end(1) :]
    return Position(block.start_mark.line + 1 + int(inner[2])), text


def has_field(root: Node, field: str) -> bool:
    return _at(root, field) is not None


def _at(root: Node, field: str) -> Node | None:
    node: Node | None = root
    for step in _steps(root, field):
        found = child(node, step) if node is not None else None
        node = found[0] if found else None
    return node


def _steps(root: Node, field: str) -> list[str | int]:
    steps = [step_of(found) for found in STEP.finditer(field)]
    if steps == ["workload_id"] and _has(root, "id"):
        return ["id"]
    return steps[1:] if steps[:1] == ["spec"] and not _has(root, "spec") else steps


def step_of(found: re.Match[str]) -> str | int:
    if found["index"]:
        return int(found["index"])
    return found["name"] or re.sub(r"\\(.)", r"\1", found["key"][2:-2])


def split_field(text: str) -> tuple[str, str]:
    """The field and the problem of an error text; the field is empty if the text has none."""
    found = _FIELD.fullmatch(text)
    return (found["field"], found["problem"]) if found else ("", text)


def is_view(node: Node) -> bool:
    return _has(node, _STATUS) and (_has(node, "workload_id") or _has(node, "workloadId"))


def intent_of_view(view: Node) -> MappingNode:
    """The document without the keys that only describe the workload."""
    pairs = [(key, value) for key, value in entries(view, "") if key.value in _OF_INTENT]
    for _, value in pairs:
        _rewrite_modes(value)
    return MappingNode(view.tag, pairs, view.start_mark, view.end_mark)


def is_compose(node: Node) -> bool:
    return _has(node, _SERVICES) and not any(
        _has(node, key) for key in ("id", "workload_id", "workloadId", "spec")
    )


def compose_document(
    text: str, node: Node, *, stack_id: str, directory: str, env: Mapping[str, str]
) -> MappingNode:
    """The stack of a Compose file, in the flat format.

    Its id is `stack_id`, the file's `name` or the directory name.
    """
    found = child(node, "name")
    name = text_of(found[0], "name") if found else ""
    if not stack_id and "$" in name:
        assert found is not None, "it has a name"
        raise error_at(found[0], "name", "contains a variable; set --id")
    workload_id = stack_id or _as_id(name) or _as_id(directory)
    if not workload_id:
        raise error_at(node, "id", "missing; a Compose file without a name needs --id")
    return _as_node(
        {
            "id": workload_id,
            "type": "compose",
            "compose": {
                "source_type": "inline",
                "inline_yaml": _without_name(text, node),
                "env": env,
            },
        },
        node,
    )


def _as_node(value: Mapping[str, Any], like: Node) -> MappingNode:
    """Nested mappings of texts as nodes at the place of another node."""
    pairs = [
        (
            text_node(key, like),
            _as_node(part, like) if isinstance(part, Mapping) else text_node(part, like),
        )
        for key, part in value.items()
    ]
    return MappingNode(f"{TAG}map", pairs, like.start_mark, like.end_mark)


def compose_error(err: InvalidError, node: Node) -> SpecFileError:
    """The error of a stack with the field and line of its Compose file."""
    field, problem = err.field, err.problem
    if field.endswith(_IN_COMPOSE.removeprefix("spec.")):
        inner, problem = split_field(err.problem)
        field = inner or "file"
    at = position_of_field(node, field)
    if named := _LINE.match(problem):
        line, problem = int(named[1]), problem[named.end() :]
        at = at if at.line == line else Position(line)
    return SpecFileError(field, problem, at=at)


def _without_name(text: str, node: Node) -> str:
    """The text without its top-level name, which the workload id replaces. Line numbers do not change."""
    assert isinstance(node, MappingNode)
    lines = text.splitlines(keepends=True)
    for key, value in node.value:
        if key.value == "name" and isinstance(value, ScalarNode) and not node.flow_style:
            named = range(key.start_mark.line, value.end_mark.line + (value.end_mark.column > 0))
            return "".join("\n" if at in named else line for at, line in enumerate(lines))
    return text


def _has(node: Node, key: str) -> bool:
    return child(node, key) is not None


def child(node: Node, step: str | int) -> tuple[Node, Node] | None:
    """The child node, and its key; the key of an item of a list is the item itself."""
    if isinstance(step, int):
        items = node.value if isinstance(node, SequenceNode) else []
        return (items[step], items[step]) if step < len(items) else None
    if not isinstance(node, MappingNode):
        return None
    wanted = step.replace("_", "").lower()
    pairs = [(value, key) for key, value in node.value if isinstance(key, ScalarNode)]
    exact = [pair for pair in pairs if pair[1].value == step]
    same = [pair for pair in pairs if pair[1].value.replace("_", "").lower() == wanted]
    return next(iter(exact or same), None)


def _rewrite_modes(spec: Node) -> None:
    """Rewrite file modes: views print decimal numbers, specs expect octal as in chmod."""
    files = child(spec, "container")
    found = child(files[0], "files") if files else None
    items = found[0].value if found and isinstance(found[0], SequenceNode) else []
    for item in items:
        mode = child(item, "mode")
        if mode is None or not isinstance(mode[0], ScalarNode):
            continue
        number = whole_number(mode[0].value)
        if number is not None and str(number) == mode[0].value:  # otherwise it is octal already
            mode[0].value = f"0{number:o}"


def _as_id(name: str) -> str:
    return _NOT_IN_AN_ID.sub("-", name.lower()).strip("-")[:_ID_LENGTH_MAX].rstrip("-")
