"""Traversal of untrusted YAML with line numbers. Aliases and merge keys are followed within a budget.

A few hundred bytes of nested aliases can expand to billions of items. A document that exceeds the budget is
refused.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from persys.core.agent.compose_policy import Json
from persys.core.bounded_yaml import (
    MERGE_TAG,
    NULL_TAG,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    compose,
    text_node,
)
from persys.errors import InvalidError
from persys.wire.compose.interpolation import VariableError

VISITS_MAX = 50_000
_NO = ("false", "no", "off")


class YamlItem(NamedTuple):
    """A YAML value with its path from the root and its line."""

    node: Node
    path: str
    line: int

    def error(self, problem: str) -> InvalidError:
        return InvalidError(self.path, f"line {self.line}: {problem}")

    @property
    def is_empty(self) -> bool:
        return self.node.tag == NULL_TAG or self.node.value in ("", [])


class YamlReader:
    """Reads mappings, lists and scalars. `text_of` converts the text of each scalar."""

    def __init__(self, text_of: Callable[[str], str]) -> None:
        self._text_of = text_of
        self._visits = 0
        self._merged: dict[int, dict[str, tuple[int, Node]]] = {}

    def root(self, text: str) -> YamlItem:
        node = compose(text)
        assert node is not None, "checked before: it is a mapping"
        return YamlItem(node, "", 1)

    def mapping(self, item: YamlItem) -> dict[str, YamlItem]:
        """The values by key. An empty item has none; anything but a mapping is refused."""
        if item.is_empty:
            return {}
        if not isinstance(item.node, MappingNode):
            raise item.error("expected a mapping")
        pairs = self._pairs(item.node, item, ())
        self._count(len(pairs), item)
        before = f"{item.path}." if item.path else ""
        return {key: YamlItem(node, before + key, line) for key, (line, node) in pairs.items()}

    def sequence(self, item: YamlItem) -> list[YamlItem]:
        """The items of a list. A scalar counts as a list of one item."""
        if item.is_empty:
            return []
        if isinstance(item.node, ScalarNode):
            return [item]
        if not isinstance(item.node, SequenceNode):
            raise item.error("expected a list")
        self._count(len(item.node.value), item)
        return [
            YamlItem(node, f"{item.path}[{index}]", node.start_mark.line + 1)
            for index, node in enumerate(item.node.value)
        ]

    def text(self, item: YamlItem) -> str:
        if not isinstance(item.node, ScalarNode):
            raise item.error("expected a single value")
        try:
            return "" if item.node.tag == NULL_TAG else self._text_of(str(item.node.value))
        except VariableError as err:
            raise item.error(str(err)) from err

    def text_at(self, parts: Mapping[str, YamlItem], key: str) -> str:
        return self.text(parts[key]) if key in parts else ""

    def mapping_at(self, parts: Mapping[str, YamlItem], key: str) -> dict[str, YamlItem]:
        return self.mapping(parts[key]) if key in parts else {}

    def sequence_at(self, parts: Mapping[str, YamlItem], key: str) -> list[YamlItem]:
        return self.sequence(parts[key]) if key in parts else []

    def plain(self, item: YamlItem) -> Json:
        """The value without line numbers. "false", "no" and "off" are False, as in Compose."""
        if item.is_empty:
            return None
        if isinstance(item.node, MappingNode):
            return {key: self.plain(part) for key, part in self.mapping(item).items()}
        if isinstance(item.node, SequenceNode):
            return [self.plain(part) for part in self.sequence(item)]
        text = self.text(item)
        return False if text.lower() in _NO else text

    def names(self, item: YamlItem) -> Iterator[YamlItem]:
        """The names in a mapping, or in a list of `name` or `name=value`, as in Compose labels."""
        if isinstance(item.node, MappingNode):
            for name, value in self.mapping(item).items():
                yield value._replace(path=f"{item.path}.{name}", node=text_node(name, value.node))
        else:
            yield from self.sequence(item)

    def _pairs(
        self, node: MappingNode, item: YamlItem, above: tuple[int, ...]
    ) -> dict[str, tuple[int, Node]]:
        known = self._merged.get(id(node))
        if known is not None:
            return known
        if id(node) in above:
            raise item.error("merges itself")
        own: dict[str, tuple[int, Node]] = {}
        merged: dict[str, tuple[int, Node]] = {}
        for key, value in node.value:
            if key.tag == MERGE_TAG:
                for source in value.value if isinstance(value, SequenceNode) else [value]:
                    if not isinstance(source, MappingNode):
                        raise item.error("<< expects a mapping")
                    pairs = self._pairs(source, item, (*above, id(node)))
                    self._count(len(pairs), item)
                    merged = pairs | merged  # the first mapping with a key wins
            elif not isinstance(key, ScalarNode):
                raise item.error("expected plain keys")
            else:
                own[str(key.value)] = (key.start_mark.line + 1, value)
        self._merged[id(node)] = merged | own
        return self._merged[id(node)]

    def _count(self, visits: int, item: YamlItem) -> None:
        self._visits += visits
        if self._visits > VISITS_MAX:
            raise item.error(f"expands to more than {VISITS_MAX} values")
