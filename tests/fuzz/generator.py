"""Random input for the fuzzers: protobuf messages, YAML documents, bytes. One seed is one input.

Values are edge cases: limits of integers, very long strings, control characters, dates out of range. A
message is either generated completely, or a valid one with a few changed fields.
"""

import json
import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

DEPTH_MAX = 6
REPEATED_MAX = 4
CROWD = 1500  # length of a long list

INTEGERS = (0, 1, -1, 2, 80, 65535, 65536, 2**31 - 1, -(2**31), 2**53, 2**63 - 1, -(2**63))
DOUBLES = (0.0, 1.0, -1.0, 1e308, -1e308, math.nan, math.inf, -math.inf, 5e-324)
WORDS = (
    "", "a", "web", "n1", "container", "compose", "vm", "Running", "Stopped", "deleted", "tcp", "local",
    "always", "nginx", "10.0.0.1", "1s", "/data", "../../etc/passwd", "a/b/c", "-", "--help", "secret://x",
    "secret://vault/a#b", "spiffe://x/admin/y", "host:99999", "[::1]:0", "%2e%2e", "${VAR:-${VAR}}", "$(id)",
    "\x00", "a\x00b", "\x1b[2J", "\r\n\r\n", "\u202eevil", "é" * 40, "🧨", "\ufffe", "x" * 64, "x" * 256,
    "x" * 5000, "x" * 70_000, "null", "{}", "[]", "&a [*a]",
)  # fmt: skip
SCALARS: dict[int, Callable[[Random], Any]] = {
    FieldDescriptor.CPPTYPE_STRING: lambda random: random.choice(WORDS),
    FieldDescriptor.CPPTYPE_BOOL: lambda random: random.random() < 0.5,
    FieldDescriptor.CPPTYPE_DOUBLE: lambda random: random.choice(DOUBLES),
    FieldDescriptor.CPPTYPE_FLOAT: lambda random: random.choice(DOUBLES),
    FieldDescriptor.CPPTYPE_ENUM: lambda random: random.choice((0, 1, 2, 3, 4, 5, 99, 2**31 - 1)),
}
RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def a_message(random: Random, kind: Any, depth: int = 0) -> Any:
    """A message of this type. Every field may be unset, an edge case or an ordinary value."""
    message = GetMessageClass(kind)()
    for field in kind.fields:
        if depth >= DEPTH_MAX or random.random() < 0.4:
            continue
        _fill(random, message, field, depth)
    return message


def a_change(random: Random, message: Message) -> None:
    """Change a few fields of a message, at any depth."""
    for _ in range(random.choice((1, 1, 2, 5))):
        target = random.choice(list(_nested(message)))
        fields: list[Any] = list(target.DESCRIPTOR.fields)
        if fields:
            field = random.choice(fields)
            target.ClearField(field.name)
            _fill(random, target, field, 1)


def some_bytes(random: Random) -> bytes:
    return random.choice(
        (b"", b"\xff" * 8, b"\x0a\xff\xff\xff\xff\x0f", random.randbytes(random.randint(1, 400)))
    )


def _nested(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for one in value if field.is_repeated else [value]:
            yield from _nested(one)


def _fill(random: Random, message: Message, field: FieldDescriptor, depth: int) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        _fill_map(random, getattr(message, field.name), field)
    elif field.is_repeated:
        count = CROWD if random.random() < 0.01 else random.randint(0, REPEATED_MAX)
        for _ in range(count):
            value = _value(random, field, depth)
            getattr(message, field.name).append(value)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(_value(random, field, depth))
    else:
        setattr(message, field.name, _value(random, field, depth))


def _fill_map(random: Random, entries: Any, field: FieldDescriptor) -> None:
    assert field.message_type is not None
    value = field.message_type.fields_by_name["value"]
    for number in range(CROWD if random.random() < 0.01 else random.randint(0, REPEATED_MAX)):
        key = random.choice((*WORDS, f"k{number}"))
        if value.message_type is None:
            entries[key] = _value(random, value, DEPTH_MAX)
        else:
            entries[key].CopyFrom(_value(random, value, DEPTH_MAX))


def _value(random: Random, field: FieldDescriptor, depth: int) -> Any:
    if field.message_type is not None:
        return a_message(random, field.message_type, depth + 1)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return some_bytes(random)
    if field.cpp_type in RANGES:
        least, most = RANGES[field.cpp_type]
        return min(max(random.choice(INTEGERS), least), most)
    return SCALARS[field.cpp_type](random)


def a_document(random: Random, keys: tuple[str, ...], depth: int = 0) -> Any:
    """A tree of mappings, lists and scalars; some keys are those of the format."""
    kind = random.random()
    if depth >= DEPTH_MAX or kind < 0.3:
        return random.choice((*WORDS[:40], *INTEGERS, 1.5, True, None))
    if kind < 0.45:
        return [a_document(random, keys, depth + 1) for _ in range(random.randint(0, 4))]
    return {
        random.choice((*keys, *WORDS[:20])): a_document(random, keys, depth + 1)
        for _ in range(random.randint(0, 6))
    }


def a_text(random: Random, keys: tuple[str, ...]) -> str:
    """YAML that is well-formed, damaged, or full of aliases."""
    text = json.dumps(a_document(random, keys), indent=random.choice((None, 1)))
    match random.randrange(6):
        case 0:
            cut = random.randint(0, len(text))
            return (
                text[:cut]
                + random.choice(("", "}", "\t", "\x00", "*a", "!!python/object:x"))
                + text[cut:]
            )
        case 1:
            return "a: &a [x]\n" + "".join(
                f"{chr(98 + n)}: &{chr(98 + n)} [*{chr(97 + n)}, *{chr(97 + n)}, *{chr(97 + n)}]\n"
                for n in range(12)
            )
        case 2:
            return "a: &a {k: v}\n" + "".join(
                f"{chr(98 + n)}: &{chr(98 + n)} {{<<: [*{chr(97 + n)}, *{chr(97 + n)}], n{n}: 1}}\n"
                for n in range(20)
            )
        case 3:
            return "[" * random.choice((10, 200, 5000)) + "]" * 10
        case _:
            return text
