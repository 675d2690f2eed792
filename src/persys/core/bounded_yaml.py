"""Reads YAML within limits. No other module imports the YAML library.

A few hundred bytes of YAML can describe more values than any machine can visit: aliases and merge keys
multiply, deep nesting exhausts the stack, long numbers take quadratic time. Every text is therefore first
read as a stream of events, which allocates nothing per alias, and its size after expansion is computed
while it is read. Only a text within its limits is composed into nodes or loaded into values.

The cost of a text within limits is proportional to `YamlLimits.nodes_max`. A server calls these functions
on a thread.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from persys.errors import InvalidError

Node = yaml.Node
ScalarNode = yaml.ScalarNode
SequenceNode = yaml.SequenceNode
MappingNode = yaml.MappingNode

TAG = "tag:yaml.org,2002:"
MERGE_TAG = f"{TAG}merge"
NULL_TAG = f"{TAG}null"

# A number or date with more characters than this is not one. Python converts long numbers in quadratic time.
_NUMBER_LENGTH_MAX = 64
_KEY_SHOWN_MAX = 64
_UNICODE_BREAKS = frozenset("\x85\u2028\u2029")
_PATH_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class YamlLimits:
    """What one text may contain. `nodes_max` counts keys and values after aliases are expanded."""

    bytes_max: int = 1024 * 1024
    nodes_max: int = 50_000
    depth_max: int = 64
    documents_max: int = 1


DEFAULT_LIMITS = YamlLimits()


class YamlError(InvalidError):
    """The text is not YAML or exceeds a limit. `field` is the path inside it.

    `field` is empty for an error of the whole text. `line` and `column` count from 1; 0: unknown.
    """

    def __init__(self, path: str, problem: str, *, line: int = 0, column: int = 0) -> None:
        super().__init__(path, problem)
        self.line = line
        self.column = column

    def __str__(self) -> str:
        at = f"line {self.line}: " if self.line else ""
        path = f"{self.field}: " if self.field else ""
        return f"{at}{path}{self.problem}"


def check(text: str, limits: YamlLimits = DEFAULT_LIMITS) -> None:
    """Raise YamlError unless the text is YAML within the limits, without a duplicate key."""
    if len(text) > limits.bytes_max or len(text.encode(errors="replace")) > limits.bytes_max:
        raise YamlError("", f"larger than {limits.bytes_max} bytes")
    meter = _Meter(limits)
    for event in _events(text):
        meter.add(event)


def load(text: str, limits: YamlLimits = DEFAULT_LIMITS) -> object:
    """The plain values of one document: dict, list, str, int, float, bool, date, bytes or None."""
    check(text, limits)
    return _loaded(text, _ValueLoader)


def load_texts(text: str, limits: YamlLimits = DEFAULT_LIMITS) -> object:
    """Like `load`, but every scalar is the text that was written."""
    check(text, limits)
    return _loaded(text, yaml.CBaseLoader)


def load_mapping(text: str, limits: YamlLimits = DEFAULT_LIMITS) -> dict[str, object]:
    """Like `load`, for a text whose top level is a mapping or empty. Keys become text."""
    found = load(text, limits)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise YamlError("", "expected a mapping of keys to values")
    return {str(key): value for key, value in found.items()}


def compose(text: str, limits: YamlLimits = DEFAULT_LIMITS) -> Node | None:
    """The root node of one document, or None for an empty text. Merge keys are not resolved."""
    check(text, limits)
    try:
        root: Node | None = yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as err:
        raise _translated(err, text) from err
    return root


def compose_all(text: str, limits: YamlLimits) -> list[Node]:
    """The root nodes of all documents, with merge keys resolved."""
    check(text, limits)
    loader = yaml.CSafeLoader(text)
    found: list[Node] = []
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None, "check_node said that there is one"
            _resolve_merges(loader, node)
            found.append(node)
    except yaml.YAMLError as err:
        raise _translated(err, text) from err
    finally:
        loader.dispose()
    return found


def scalars(text: str, limits: YamlLimits = DEFAULT_LIMITS) -> Iterator[tuple[str, int]]:
    """Every scalar with its line, keys included, in the order of the text. Aliases are not followed."""
    check(text, limits)
    for event in _events(text):
        if isinstance(event, yaml.ScalarEvent):
            yield event.value, _line(event)


def dump(value: object, *, width: int | None = None, blocks: bool = False) -> str:
    """Write plain values as YAML, with keys in the order given. It reads back as the same values.

    With `blocks` a text of several lines is written as a literal block (|) where YAML allows it.
    """
    dumper = _BlockDumper if blocks else yaml.SafeDumper
    text: str = yaml.dump(value, None, dumper, sort_keys=False, allow_unicode=True, width=width)
    if _UNICODE_BREAKS.intersection(text):
        # Readers disagree on whether these break a line, so they are written as escapes.
        text = yaml.dump(value, None, dumper, sort_keys=False, allow_unicode=False, width=width)
    return text


class _BlockDumper(yaml.SafeDumper):
    """Writes texts of several lines as literal blocks."""


def _block_text(dumper: yaml.SafeDumper, text: str) -> ScalarNode:
    return dumper.represent_scalar(f"{TAG}str", text, style="|" if "\n" in text else None)


_BlockDumper.add_representer(str, _block_text)


def value_of(node: Node) -> object:
    """The plain value of a node whose merge keys are resolved, as `load` returns it."""
    loader = _ValueLoader("")
    try:
        found: object = loader.construct_document(node)
    except yaml.YAMLError as err:
        raise _translated(err, "") from err
    except (ValueError, TypeError) as err:
        raise YamlError("", f"not YAML: {err}", line=node.start_mark.line + 1) from err
    finally:
        loader.dispose()
    return found


def retag(node: ScalarNode, text: str) -> None:
    """Replace the text of a scalar. An unquoted one gets the type that the new text has in YAML."""
    node.value = text
    if not node.style:
        resolver: Any = yaml.resolver.Resolver()  # its methods have no types
        node.tag = resolver.resolve(ScalarNode, text, (True, False))


def relabel(node: Node, label: str) -> None:
    """Mark a node and all below it as coming from `label` instead of the text of a file."""
    waiting, seen = [node], {id(node)}
    while waiting:
        found = waiting.pop()
        found.start_mark = found.end_mark = _mark(label)
        if isinstance(found, MappingNode):
            children = [part for pair in found.value for part in pair]
        else:
            children = list(found.value) if isinstance(found, SequenceNode) else []
        for child in children:
            if id(child) not in seen:
                seen.add(id(child))
                waiting.append(child)


def mapping_node(label: str) -> MappingNode:
    """An empty mapping that comes from `label`."""
    return MappingNode(f"{TAG}map", [], _mark(label), _mark(label))


def _mark(label: str) -> yaml.Mark:
    return yaml.Mark(label, 0, 0, 0, None, 0)


def text_node(text: str, like: Node) -> ScalarNode:
    """A scalar at the place of another node."""
    return ScalarNode(f"{TAG}str", text, like.start_mark, like.end_mark)


@dataclass(slots=True)
class _Collection:
    """A mapping or sequence whose end has not been read yet."""

    is_mapping: bool
    anchor: str | None
    nodes_before: int
    keys: set[str] = field(default_factory=set)
    place: str = ""
    children: int = 0

    @property
    def expects_key(self) -> bool:
        return self.is_mapping and self.children % 2 == 0


class _Meter:
    """Measures a stream of events against limits, in time proportional to the events."""

    def __init__(self, limits: YamlLimits) -> None:
        self._limits = limits
        self._open: list[_Collection] = []
        self._sizes: dict[str, int] = {}  # of the nodes that anchors name, expanded
        self._nodes = 0
        self._documents = 0

    def add(self, event: yaml.Event) -> None:
        match event:
            case yaml.DocumentStartEvent():
                self._documents += 1
                self._sizes.clear()
                if self._documents > self._limits.documents_max:
                    raise self._error(event, _too_many_documents(self._limits.documents_max))
            case yaml.AliasEvent():
                self._begin_child(event, key=None)
                self._count(event, self._size_of(event))
            case yaml.ScalarEvent():
                self._begin_child(event, key=event.value)
                self._count(event, 1)
                if event.anchor is not None:
                    self._sizes[event.anchor] = 1
            case yaml.CollectionStartEvent():
                self._begin_child(event, key=None)
                self._count(event, 1)
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                self._open.append(_Collection(is_mapping, event.anchor, self._nodes - 1))
                if len(self._open) > self._limits.depth_max:
                    problem = f"nested more than {self._limits.depth_max} levels deep"
                    raise self._error(event, problem)
            case yaml.CollectionEndEvent():
                ended = self._open.pop()
                if ended.anchor is not None:
                    self._sizes[ended.anchor] = self._nodes - ended.nodes_before

    def _begin_child(self, event: yaml.Event, key: str | None) -> None:
        """A node begins: note its place in the collection around it. `key` is its text if it has one."""
        if not self._open:
            return
        parent = self._open[-1]
        if parent.expects_key:
            parent.place = (key or "")[:_KEY_SHOWN_MAX]
            if key is not None and key in parent.keys:
                raise self._error(event, "given twice")
            if key is not None:
                parent.keys.add(key)
        elif not parent.is_mapping:
            parent.place = f"[{parent.children}]"
        parent.children += 1

    def _size_of(self, alias: yaml.AliasEvent) -> int:
        assert alias.anchor is not None, "an alias names an anchor"
        if any(collection.anchor == alias.anchor for collection in self._open):
            raise self._error(alias, f"*{alias.anchor[:_KEY_SHOWN_MAX]} contains itself")
        size = self._sizes.get(alias.anchor)
        if size is None:
            raise self._error(alias, f"not YAML: undefined alias {alias.anchor[:_KEY_SHOWN_MAX]}")
        return size

    def _count(self, event: yaml.Event, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > self._limits.nodes_max:
            problem = f"more than {self._limits.nodes_max} values after aliases are expanded"
            raise self._error(event, problem)

    def _error(self, event: yaml.Event, problem: str) -> YamlError:
        path = ""
        for place in (collection.place for collection in self._open):
            path += place if place.startswith("[") or not path else f".{place}"
        column = event.start_mark.column + 1 if event.start_mark is not None else 0
        return YamlError(path[:_PATH_SHOWN_MAX], problem, line=_line(event), column=column)


class _ValueLoader(yaml.CSafeLoader):
    """The safe loader with a length limit for numbers and dates."""

    def construct_object(self, node: Node, deep: bool = False) -> object:
        is_text = not isinstance(node, ScalarNode) or node.tag in (f"{TAG}str", f"{TAG}binary")
        if not is_text and len(node.value) > _NUMBER_LENGTH_MAX:
            raise yaml.constructor.ConstructorError(
                None, None, f"expected at most {_NUMBER_LENGTH_MAX} characters", node.start_mark
            )
        found: object = super().construct_object(node, deep=deep)
        return found


def _loaded(text: str, loader: type[yaml.CSafeLoader] | type[yaml.CBaseLoader]) -> object:
    try:
        found: object = yaml.load(text, Loader=loader)  # noqa: S506 - both loaders make plain values
    except yaml.YAMLError as err:
        raise _translated(err, text) from err
    except (ValueError, TypeError) as err:  # a date such as 2026-99-99, a mapping as a key
        raise YamlError("", f"not YAML: {err}") from err
    return found


def _events(text: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as err:
        raise _translated(err, text) from err
    except UnicodeEncodeError as err:
        raise YamlError("", "not YAML: not valid Unicode text") from err


def _resolve_merges(loader: yaml.CSafeLoader, root: Node) -> None:
    """Expand merge keys (<<) in place; a key of the mapping itself beats a merged one."""
    waiting, seen = [root], {id(root)}
    while waiting:
        node = waiting.pop()
        if isinstance(node, MappingNode):
            if any(key.tag == MERGE_TAG for key, _ in node.value):
                _merge(loader, node)
            children = [part for pair in node.value for part in pair]
        else:
            children = list(node.value) if isinstance(node, SequenceNode) else []
        for child in children:
            if id(child) not in seen:
                seen.add(id(child))
                waiting.append(child)


def _merge(loader: yaml.CSafeLoader, node: MappingNode) -> None:
    own = [pair for pair in node.value if pair[0].tag != MERGE_TAG]
    mine = {str(key.value) for key, _ in own}
    loader.flatten_mapping(node)
    merged = node.value[: len(node.value) - len(own)]
    last = {str(key.value): (key, value) for key, value in merged if str(key.value) not in mine}
    node.value = [*last.values(), *own]


def _translated(err: yaml.YAMLError, text: str) -> YamlError:
    mark = getattr(err, "problem_mark", None)
    problem = getattr(err, "problem", None) or " ".join(str(err).split())
    # The library places an unexpected end on the line after the last one.
    line = min(mark.line, text.count("\n")) + 1 if mark is not None else 0
    column = mark.column + 1 if mark is not None and mark.line + 1 == line else 0
    return YamlError("", f"not YAML: {problem}", line=line, column=column)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0


def _too_many_documents(most: int) -> str:
    return "more than one YAML document" if most == 1 else f"more than {most} YAML documents"
