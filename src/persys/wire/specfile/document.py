"""Other document formats that `apply` accepts, and the line numbers of fields.

`workload get -o yaml` prints the intent and the status of a workload in one document. A document with a
`status` is read as such a view: `workload_id`, `desired_state` and `spec` are used, other keys are ignored.

A Compose file is recognised by its `services` and applied as one stack.
"""

import re

from persys.core.bounded_yaml import MappingNode, Node, ScalarNode, SequenceNode
from persys.core.numbers import whole_number
from persys.errors import InvalidError
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile.strict import SpecFileError, entries, text_of

_OF_INTENT = frozenset({"workload_id", "workloadId", "desired_state", "desiredState", "spec"})
_STATUS = "status"
_SERVICES = "services"
_IN_COMPOSE = "spec.compose.inline_yaml"
# A name, ['a key'] of a mapping, or [0].
_QUOTED = r"""\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]"""
_STEP = re.compile(rf"(?P<name>[^.\[\]]+)|(?P<key>{_QUOTED})|\[(?P<index>\d+)\]")
_FIELD = re.compile(
    rf"(?P<field>[A-Za-z_](?:{_QUOTED}|[\w.\[\]-])*): (?P<problem>.+)",
    re.S,
)
_LINE = re.compile(r"line (\d+): ")
_INNER_LINE = re.compile(r"(?:^|: )(line (\d+): )")
_NOT_IN_AN_ID = re.compile(r"[^a-z0-9]+")
_ID_LENGTH_MAX = 63


def line_of(root: Node, field: str) -> int:
    """The line of a field such as `spec.container.ports[0]`, or of its nearest parent in the document.

    A document without a `spec` has the fields of the spec at the top level.
    """
    node, line = root, root.start_mark.line + 1
    for step in _steps(root, field):
        found = _child(node, step)
        if found is None:
            break
        node, line = found
    return line


def located(root: Node, field: str, problem: str) -> tuple[int, str]:
    """The line of an error in the file, and its text without the line number inside a text block."""
    line = line_of(root, field)
    inner = _INNER_LINE.search(problem)
    block = _at(root, field)
    if inner is None or not isinstance(block, ScalarNode) or block.style != "|":
        return line, problem
    text = problem[: inner.start(1)] + problem[inner.end(1) :]
    return block.start_mark.line + 1 + int(inner[2]), text


def _at(root: Node, field: str) -> Node | None:
    node: Node | None = root
    for step in _steps(root, field):
        found = _child(node, step) if node is not None else None
        node = found[0] if found else None
    return node


def _steps(root: Node, field: str) -> list[str | int]:
    steps = [_step(found) for found in _STEP.finditer(field)]
    return steps[1:] if steps[:1] == ["spec"] and not _has(root, "spec") else steps


def _step(found: re.Match[str]) -> str | int:
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


def compose_request(
    text: str, node: Node, *, stack_id: str, directory: str
) -> control_pb2.ApplyWorkloadRequest:
    """The stack of a Compose file. Its id is `stack_id`, the file's `name` or the directory name."""
    found = _child(node, "name")
    name = text_of(found[0], "name") if found else ""
    if not stack_id and "$" in name:
        raise SpecFileError("name", "contains a variable; set --id", line=found[1] if found else 0)
    workload_id = stack_id or _as_id(name) or _as_id(directory)
    if not workload_id:
        problem = "missing; a Compose file without a name needs --id"
        raise SpecFileError("id", problem, line=node.start_mark.line + 1)
    request = control_pb2.ApplyWorkloadRequest(workload_id=workload_id)
    request.spec.type = "compose"
    request.spec.compose.source_type = "inline"
    request.spec.compose.inline_yaml = _without_name(text, node)
    return request


def compose_error(err: InvalidError, node: Node) -> SpecFileError:
    """The error of a stack with the field and line of its Compose file."""
    field, problem = err.field, err.problem
    if field.endswith(_IN_COMPOSE.removeprefix("spec.")):
        inner, problem = split_field(err.problem)
        field = inner or "file"
    if named := _LINE.match(problem):
        return SpecFileError(field, problem[named.end() :], line=int(named[1]))
    return SpecFileError(field, problem, line=line_of(node, field))


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
    return _child(node, key) is not None


def _child(node: Node, step: str | int) -> tuple[Node, int] | None:
    """The child node, and the line of its key."""
    if isinstance(step, int):
        items = node.value if isinstance(node, SequenceNode) else []
        return (items[step], items[step].start_mark.line + 1) if step < len(items) else None
    if not isinstance(node, MappingNode):
        return None
    wanted = step.replace("_", "").lower()
    for key, value in node.value:
        if isinstance(key, ScalarNode) and key.value.replace("_", "").lower() == wanted:
            return value, key.start_mark.line + 1
    return None


def _rewrite_modes(spec: Node) -> None:
    """Rewrite file modes: views print decimal numbers, specs expect octal as in chmod."""
    files = _child(spec, "container")
    found = _child(files[0], "files") if files else None
    items = found[0].value if found and isinstance(found[0], SequenceNode) else []
    for item in items:
        mode = _child(item, "mode")
        if mode is None or not isinstance(mode[0], ScalarNode):
            continue
        number = whole_number(mode[0].value)
        if number is not None and str(number) == mode[0].value:  # otherwise it is octal already
            mode[0].value = f"0{number:o}"


def _as_id(name: str) -> str:
    return _NOT_IN_AN_ID.sub("-", name.lower()).strip("-")[:_ID_LENGTH_MAX].rstrip("-")
