"""Damage to stored bytes: a flipped bit, truncation, a value of another key, a newer schema, random bytes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from zlib import crc32

from fuzz.mutation import bytes_like, flipped
from persys.scheduler.state.records import Unreadable, type_of

NEWER = 99


@dataclass(frozen=True)
class Damage:
    key: str
    what: str
    before: bytes
    after: bytes

    @property
    def is_held(self) -> bool:
        """Whether the scheduler must not overwrite the value."""
        kind = type_of(self.key)
        assert kind is not None
        return self.what == "newer" or _says_newer(self.after) or kind.unreadable is Unreadable.HELD


def draw(random: Random, stored: Mapping[str, bytes], key: str) -> Damage:
    """A damaged value that differs from the original."""
    value = stored[key]
    kind = type_of(key)
    others = [one for name, one in stored.items() if type_of(name) is kind and one != value]
    what = random.choice(("flip", "flip", "flip", "cut", "twice", "swap", "newer", "any"))
    after = value
    match what:
        case "flip":
            after = flipped(value, random.randrange(len(value) * 8))
        case "cut":
            after = value[: random.randrange(len(value))]
        case "twice":
            after = value + value
        case "swap" if others:
            after = random.choice(others)
        case "newer":
            after = newer(value)
        case _:
            what, after = "any", bytes_like(random, value)
    if after == value:
        what, after = "cut", value[:-1]
    return Damage(key, what, value, after)


def newer(value: bytes) -> bytes:
    """The record of a later version: intact, with an unknown field."""
    fields = json.loads(value)
    del fields["crc"]
    body = json.dumps({**fields, "schema": NEWER, "a_field_of_the_future": 1})[1:].encode()
    return b'{"crc":"%08x",' % crc32(body) + body


def _says_newer(value: bytes) -> bool:
    """Without a checksum the schema number is trusted."""
    try:
        found = json.loads(value)
    except ValueError:
        return False
    schema = found.get("schema") if isinstance(found, dict) else None
    return isinstance(schema, int) and schema > 2 and not value.startswith(b'{"crc":"')
