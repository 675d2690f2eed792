"""Enforces the limits of every field of both contracts: length, count, range and characters.

`check` refuses a request with the path of the first field that exceeds its limit. `trim` is for reports of
nodes, which are never refused for their content: it truncates texts, clamps numbers, drops entries whose
identifying field is invalid, and returns what it changed. Bools, enums and single messages need no limit. A
test fails for a field without a limit.

Messages within the limits can be stored, loaded and encoded again. The decoders check the meaning of values.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from math import isfinite
from operator import attrgetter, ge, le
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from persys.errors import InvalidError
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.limits.table import BYTES, COUNTS, ESSENTIAL, MAPS, NUMBERS, REALS, TEXTS
from persys.wire.spec import checks

Found = TypeVar("Found")

TIME_SECONDS_MIN = -62_135_596_800  # the year 1
TIME_SECONDS_MAX = 253_402_300_799  # the end of the year 9999
NANOS_MAX = 999_999_999

_TIME = Timestamp.DESCRIPTOR.full_name
_INTEGERS = frozenset(
    {
        FieldDescriptor.TYPE_INT32,
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT32,
        FieldDescriptor.TYPE_UINT64,
    }
)
_UNLIMITED = frozenset({FieldDescriptor.TYPE_BOOL, FieldDescriptor.TYPE_ENUM})


@dataclass(slots=True)
class Trimmed:
    """The changes to a report, by message and field."""

    cut: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)  # entries of repeated fields and maps

    def fields(self) -> Counter[str]:
        return self.cut + self.dropped


def check(message: Message, *, items: str = "") -> None:
    """Raises InvalidError with the path of the first field that exceeds its limit.

    `items`: a list whose length is checked here and whose entries are checked by the caller.
    """
    listed = _LIMITS[message.DESCRIPTOR.full_name].get(items)
    if isinstance(listed, RepeatedMessage):
        problem = listed.count_problem(getattr(message, items))
        found = (items, problem) if problem else None
    else:
        found = _violation(message)
    if found is not None:
        path, problem = found
        raise InvalidError(path.removeprefix("."), problem)


def trim(message: Message, only: Collection[str] | None = None) -> Trimmed:
    """Bring a report, or `only` these fields of it, within its limits.

    Raises InvalidError if an identifying field of the whole report exceeds its limit.
    """
    trimmed = Trimmed()
    if (essential := _trim(message, trimmed, only)) is not None:
        path, problem = essential
        raise InvalidError(path.removeprefix("."), problem)
    return trimmed


# A path relative to the message, and the problem.
Violation = tuple[str, str]


@dataclass(frozen=True, slots=True)
class TextRule:
    most: int

    def problem(self, value: str) -> str:
        if len(value) > self.most:
            return f"is {len(value)} characters long; expected at most {self.most}"
        return "must not contain NUL characters" if "\0" in value else ""

    def clamped(self, value: str) -> str:
        return value.replace("\0", "")[: self.most]


@dataclass(frozen=True, slots=True)
class BytesRule:
    most: int

    def problem(self, value: bytes) -> str:
        if len(value) > self.most:
            return f"is {len(value)} bytes long; expected at most {self.most}"
        return ""

    def clamped(self, value: bytes) -> bytes:
        return b""  # a truncated value is useless


@dataclass(frozen=True, slots=True)
class NumberRule:
    least: int
    most: int

    def problem(self, value: int) -> str:
        if self.least <= value <= self.most:
            return ""
        return f"is {value}; expected {self.least} to {self.most}"

    def clamped(self, value: int) -> int:
        return max(self.least, min(value, self.most))


@dataclass(frozen=True, slots=True)
class RealRule:
    least: float
    most: float

    def problem(self, value: float) -> str:
        if self.least <= value <= self.most:
            return ""
        return f"is {value}; expected {self.least:g} to {self.most:g}"

    def clamped(self, value: float) -> float:
        return max(self.least, min(value, self.most)) if isfinite(value) else 0.0


Rule = TextRule | BytesRule | NumberRule | RealRule


@dataclass(frozen=True, slots=True)
class SingleScalar:
    rule: Rule
    essential: bool  # identifies its entry

    def violation(self, value: Any) -> Violation | None:
        return ("", problem) if (problem := self.rule.problem(value)) else None

    def trim(self, message: Message, name: str, value: Any, trimmed: Trimmed) -> Violation | None:
        problem = self.rule.problem(value)
        if not problem:
            return None
        if self.essential:
            return f".{name}", problem
        setattr(message, name, self.rule.clamped(value))
        trimmed.cut[_label(message, name)] += 1
        return None


@dataclass(frozen=True, slots=True)
class RepeatedScalar:
    """Repeated scalars."""

    rule: Rule
    count: int

    def violation(self, value: Any) -> Violation | None:
        if len(value) > self.count:
            return "", _count_problem(len(value), self.count)
        for index, one in enumerate(value):
            if problem := self.rule.problem(one):
                return f"[{index}]", problem
        return None

    def trim(self, message: Message, name: str, value: Any, trimmed: Trimmed) -> Violation | None:
        kept = [one for one in value[: self.count] if not self.rule.problem(one)]
        if len(kept) < len(value):
            trimmed.dropped[_label(message, name)] += len(value) - len(kept)
            value[:] = kept
        return None


@dataclass(frozen=True, slots=True)
class TextMap:
    """A map of texts."""

    key: TextRule
    value: TextRule
    count: int

    def violation(self, value: Any) -> Violation | None:
        if len(value) > self.count:
            return "", _count_problem(len(value), self.count)
        for key, text in value.items():
            problem = self.key.problem(key) or self.value.problem(text)
            if problem:
                return f"[{checks.quoted(key)}]", problem
        return None

    def trim(self, message: Message, name: str, value: Any, trimmed: Trimmed) -> Violation | None:
        for number, (key, text) in enumerate(sorted(value.items())):
            if number >= self.count or self.key.problem(key):
                del value[key]
                trimmed.dropped[_label(message, name)] += 1
            elif self.value.problem(text):
                value[key] = self.value.clamped(text)
                trimmed.cut[_label(message, name)] += 1
        return None


@dataclass(frozen=True, slots=True)
class NestedMessage:
    def violation(self, value: Message) -> Violation | None:
        return _violation(value)

    def trim(
        self, _message: Message, name: str, value: Message, trimmed: Trimmed
    ) -> Violation | None:
        found = _trim(value, trimmed)
        return (f".{name}{found[0]}", found[1]) if found is not None else None


@dataclass(frozen=True, slots=True)
class RepeatedMessage:
    count: int

    def count_problem(self, value: Any) -> str:
        return _count_problem(len(value), self.count) if len(value) > self.count else ""

    def violation(self, value: Any) -> Violation | None:
        if problem := self.count_problem(value):
            return "", problem
        for index, one in enumerate(value):
            if (found := _violation(one)) is not None:
                return f"[{index}]{found[0]}", found[1]
        return None

    def trim(self, message: Message, name: str, value: Any, trimmed: Trimmed) -> Violation | None:
        broken = [
            index
            for index, one in enumerate(value)
            if index >= self.count or _trim(one, trimmed) is not None
        ]
        for index in reversed(broken):
            del value[index]
        if broken:
            trimmed.dropped[_label(message, name)] += len(broken)
        return None


@dataclass(frozen=True, slots=True)
class TimeField:
    def violation(self, value: Timestamp) -> Violation | None:
        if TIME_SECONDS_MIN <= value.seconds <= TIME_SECONDS_MAX and 0 <= value.nanos <= NANOS_MAX:
            return None
        return "", "is out of range; expected a time between the years 1 and 9999"

    def trim(
        self, message: Message, name: str, value: Timestamp, trimmed: Trimmed
    ) -> Violation | None:
        if self.violation(value) is not None:
            message.ClearField(name)
            trimmed.cut[_label(message, name)] += 1
        return None


Limit = SingleScalar | RepeatedScalar | TextMap | NestedMessage | RepeatedMessage | TimeField


@dataclass(frozen=True, slots=True)
class FlatMessage:
    """A fast path for messages without nested messages, which most reports consist of.

    All numbers and all lengths are compared at once; single fields are checked only if that fails.
    """

    numbers: Callable[[Message], tuple[float, ...]]
    least: tuple[float, ...]
    most: tuple[float, ...]
    texts: Callable[[Message], tuple[str, ...]]
    lengths: tuple[int, ...]

    def fits(self, message: Message) -> bool:
        numbers, texts = self.numbers(message), self.texts(message)
        return (
            all(map(le, self.least, numbers))
            and all(map(ge, self.most, numbers))
            and all(map(ge, self.lengths, map(len, texts)))
            and "\0" not in "".join(texts)
        )


def _violation(message: Message) -> Violation | None:
    kind = message.DESCRIPTOR.full_name
    if (flat := _FLAT.get(kind)) is not None and flat.fits(message):
        return None
    limits = _LIMITS[kind]
    for one, value in message.ListFields():
        limit = limits.get(one.name)
        if limit is not None and (found := limit.violation(value)) is not None:
            return f".{one.name}{found[0]}", found[1]
    return None


def _trim(
    message: Message, trimmed: Trimmed, only: Collection[str] | None = None
) -> Violation | None:
    kind = message.DESCRIPTOR.full_name
    if (flat := _FLAT.get(kind)) is not None and flat.fits(message):
        return None
    limits = _LIMITS[kind]
    for one, value in message.ListFields():
        limit = limits.get(one.name)
        if limit is None or (only is not None and one.name not in only):
            continue
        if (found := limit.trim(message, one.name, value, trimmed)) is not None:
            return found
    return None


def _label(message: Message, name: str) -> str:
    return f"{message.DESCRIPTOR.name}.{name}"


def _count_problem(count: int, most: int) -> str:
    return f"has {count} entries; expected at most {most}"


def messages() -> list[Descriptor]:
    """Every message of both contracts."""
    files = (control_pb2.DESCRIPTOR, agent_pb2.DESCRIPTOR)
    return [one for file in files for one in file.message_types_by_name.values()]


def fields_without_limit(message: Descriptor) -> list[str]:
    """The fields that have no limit in the table."""
    return [one.name for one in message.fields if needs_limit(one) and _limit_of(one) is None]


def needs_limit(one: FieldDescriptor) -> bool:
    return one.type not in _UNLIMITED or one.is_repeated


def _limit_of(one: FieldDescriptor) -> Limit | None:
    """The limit, or None if the field needs none or the table has none."""
    if one.type == FieldDescriptor.TYPE_MESSAGE:
        return _limit_of_message(one)
    rule = _rule_of(one)
    if rule is None:
        return None
    if one.is_repeated:
        count = _table_entry(COUNTS, one)
        return RepeatedScalar(rule, count) if count is not None else None
    return SingleScalar(rule, _name_of(one) in ESSENTIAL)


def _limit_of_message(one: FieldDescriptor) -> Limit | None:
    kind = one.message_type
    assert kind is not None
    if kind.GetOptions().map_entry:
        entries = _table_entry(MAPS, one)
        return TextMap(TextRule(entries[0]), TextRule(entries[1]), entries[2]) if entries else None
    if one.is_repeated:
        count = _table_entry(COUNTS, one)
        return RepeatedMessage(count) if count is not None else None
    return TimeField() if kind.full_name == _TIME else NestedMessage()


def _rule_of(one: FieldDescriptor) -> Rule | None:
    if one.type == FieldDescriptor.TYPE_STRING:
        text = _table_entry(TEXTS, one)
        return TextRule(text) if text is not None else None
    if one.type == FieldDescriptor.TYPE_BYTES:
        size = _table_entry(BYTES, one)
        return BytesRule(size) if size is not None else None
    if one.type in _INTEGERS:
        span = _table_entry(NUMBERS, one)
        return NumberRule(*span) if span is not None else None
    if one.type == FieldDescriptor.TYPE_DOUBLE:
        reach = _table_entry(REALS, one)
        return RealRule(*reach) if reach is not None else None
    return None


def _table_entry(table: Mapping[str, Found], one: FieldDescriptor) -> Found | None:
    """The entry for `Message.field`, else the entry for the field name."""
    return table.get(_name_of(one), table.get(one.name))


def _name_of(one: FieldDescriptor) -> str:
    assert one.containing_type is not None
    return f"{one.containing_type.name}.{one.name}"


_LIMITS: dict[str, dict[str, Limit]] = {
    message.full_name: {
        one.name: limit for one in message.fields if (limit := _limit_of(one)) is not None
    }
    for message in messages()
}


def _flat_message(limits: dict[str, Limit]) -> FlatMessage | None:
    """The fast path, or None for a message that has other fields than single numbers, texts and times."""
    spans: dict[str, tuple[float, float]] = {}
    lengths: dict[str, int] = {}
    for name, limit in limits.items():
        match limit:
            case SingleScalar(
                rule=NumberRule(least=low, most=high) | RealRule(least=low, most=high)
            ):
                spans[name] = low, high
            case SingleScalar(rule=TextRule(most=length)):
                lengths[name] = length
            case TimeField():
                spans[f"{name}.seconds"] = TIME_SECONDS_MIN, TIME_SECONDS_MAX
                spans[f"{name}.nanos"] = 0, NANOS_MAX
            case _:
                return None
    return FlatMessage(
        _getter(tuple(spans)),
        tuple(low for low, _ in spans.values()),
        tuple(high for _, high in spans.values()),
        _getter(tuple(lengths)),
        tuple(lengths.values()),
    )


def _getter(names: tuple[str, ...]) -> Callable[[Message], tuple[Any, ...]]:
    if not names:
        return lambda _message: ()
    found = attrgetter(*names)
    return found if len(names) > 1 else lambda message: (found(message),)


_FLAT = {
    name: flat for name, limits in _LIMITS.items() if (flat := _flat_message(limits)) is not None
}
