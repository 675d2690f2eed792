"""The files that a Compose file refers to: includes, extended files, env files and label files.

They are found before Compose runs, because Compose reads them before it prints a result that could be
checked. The whole text is searched for the keys, also below anchors and extension fields.
"""

from collections.abc import Iterator
from typing import NamedTuple

from persys.core.bounded_yaml import MappingNode, Node, ScalarNode, SequenceNode, compose

PROJECT_DIRECTORY = "project_directory"
# Below `extends` only `file` is a path; a plain text is the name of a service in the same file.
_KEYS = ("env_file", "include", "extends", "label_file")
_NESTED_KEYS = ("env_file", PROJECT_DIRECTORY)
_NOT_PATHS = ("service", "required", "format")
_COMPOSE_FILES = ("include", "extends")


class Reference(NamedTuple):
    key: str
    path: str
    line: int

    @property
    def is_compose_file(self) -> bool:
        return self.key in _COMPOSE_FILES


def references(text: str) -> list[Reference]:
    """Raises InvalidError if the text is not YAML or exceeds a limit."""
    root = compose(text)
    return list(_search(root)) if root is not None else []


def _search(root: Node) -> Iterator[Reference]:
    """Visit every node once, so aliases do not multiply the work."""
    seen: set[int] = set()
    waiting: list[Node] = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, SequenceNode):
            waiting += node.value
        elif isinstance(node, MappingNode):
            for key, value in node.value:
                waiting += (key, value)
                name = key.value if isinstance(key, ScalarNode) else ""
                if name in _KEYS:
                    yield from _paths(name, value, set())


def _paths(key: str, node: Node, seen: set[int]) -> Iterator[Reference]:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, ScalarNode):
        yield Reference(key, str(node.value), node.start_mark.line + 1)
    elif isinstance(node, SequenceNode):
        for item in node.value:
            yield from _paths(key, item, seen)
    elif isinstance(node, MappingNode):
        for name, value in node.value:
            if isinstance(name, ScalarNode) and name.value not in _NOT_PATHS:
                nested = name.value if name.value in _NESTED_KEYS else key
                yield from _paths(nested, value, seen)
