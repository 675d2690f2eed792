"""Small changes to valid input, so that it passes the first checks and reaches the code behind them.

A document is a tree of mappings, lists and scalars. A change replaces, moves, repeats, renames or removes one
part of it, often with a part of another document. Texts and bytes are truncated, repeated and flipped too.
"""

import json
import re
from collections.abc import Sequence
from copy import deepcopy
from random import Random
from typing import Any

import yaml

LONG_DIGITS = "9" * 5000
# Texts that parsers often mishandle: invalid numbers, other scripts, control characters, lengths.
TEXTS = (
    "", " ", "a", "0", "-0", "-1", "1.5", "1e999", "nan", "inf", "0x10", "0o17", "017", "1_000", "²", "١٢",
    LONG_DIGITS, "9" * 400, "9" * 400 + ".5", "9" * 20, "1:2:3", "80:80:80", "0-0", "1-70000", "65536:1",
    "true", "null", "~", "no", "=", "<<", "*a", "&a b", "!!binary x", "!!python/object:os.system x",
    "{}", "[]",
    "{{}", "${", "$", "$$", "${A:-${B:-${C:-${D}}}}", "${A:?no}", "$(id)", "`id`", "%s%n", "secret://x",
    "secret://vault/a#b", "secret://", "/", "//", "/..", "../../etc/passwd", "/proc/self/root", "/dev/sda",
    "~root", "a/b", "a\\b", "C:\\x", "http://x@y:z/", "git@h:r", "ext::sh -c id", "file:///etc/passwd",
    "-", "--",
    "--help", "\x00", "a\x00b", "\x1b[2J", "\r\n", "a\nb", "\t", "\x7f", "\x85", "\u2028", "\u202e",
    "\ufeff",
    "\ufffe", "\U0001f9e8", "é" * 40, "I\u0307", "ſ", "x" * 63, "x" * 64, "x" * 256, "x" * 5000,
    "x" * 70_000,
    "container:x", "service:x", "host", "local", "bind", "rshared", "10.0.0.0/8", "::1", "[::1]:80",
    "1h", "9999999h",
    "2026-99-99", "0001-01-01", "9999-12-31T23:59:59Z", "%2e%2e", "%00", "%ff", "\ud800",
)  # fmt: skip
NUMBERS = (
    0, 1, -1, 2, 255, 65535, 65536, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1,
    10**30, 0.5, 1e308,
    float("inf"), float("nan"), -0.0,
)  # fmt: skip
DIGITS = (
    "²",
    "١",
    LONG_DIGITS,
    "9" * 400,
    "0" * 400,
    "-1",
    "1.5",
    "0x1",
    "1_0",
    "",
    "65536",
    "99999999999",
)
DEPTH = 80
MANY = 2000
PLACES_MAX = 1500
TEXT_LENGTH_MAX = 200_000
_NUMBER = re.compile(r"\d+")


def a_scalar(random: Random) -> Any:
    return random.choice((random.choice(TEXTS), random.choice(NUMBERS), True, False, None))


def changed(random: Random, document: Any, others: Sequence[Any] = ()) -> Any:
    """A copy of the document with a few changes. Parts may come from `others`."""
    root = [deepcopy(document)]
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        places = _places(root)
        if len(places) > PLACES_MAX:
            break
        holder, key = random.choice(places)
        _change(random, root, holder, key, others)
    return root[0]


def _change(random: Random, root: Any, holder: Any, key: Any, others: Sequence[Any]) -> None:
    value = holder[key]
    match random.randrange(11):
        case 0:
            holder[key] = a_scalar(random)
        case 1:
            del holder[key]
            if not root:
                root.append(None)
        case 2:
            if isinstance(holder, dict):
                del holder[key]
            _add(random, holder, random.choice((*TEXTS, *_keys(root))), value)
        case 3:
            source, at = random.choice(_places(root))
            holder[key] = deepcopy(source[at])
        case 4 if others:
            source, at = random.choice(_places([random.choice(others)]))
            holder[key] = deepcopy(source[at])
        case 5 if others and isinstance(holder, dict):
            for name, other in _pairs(random.choice(others)):
                if random.random() < 0.2:
                    holder[name] = deepcopy(other)
        case 6:
            holder[key] = [value]
        case 7:
            holder[key] = {random.choice(TEXTS): value}
        case 8:
            _add(random, holder, random.choice(TEXTS), a_scalar(random))
        case 9 if isinstance(value, list):
            holder[key] = value * random.choice((2, 50, MANY if len(repr(value)) < 200 else 2))
        case 9 if isinstance(value, dict):
            value.update(
                {f"k{number}": a_scalar(random) for number in range(random.choice((2, 200)))}
            )
        case 10 if isinstance(value, str):
            holder[key] = a_text_like(random, value)
        case 10 if isinstance(value, int | float):
            holder[key] = random.choice((str(value), -value, value * 10**9, *NUMBERS))
        case 9 | 10:
            for _ in range(random.choice((2, DEPTH))):
                value = {"a": value} if random.random() < 0.5 else [value]
            holder[key] = value
        case _:
            holder[key] = a_scalar(random)


def _add(random: Random, holder: Any, name: str, value: Any) -> None:
    if isinstance(holder, dict):
        holder[name] = value
    else:
        holder.insert(random.randint(0, len(holder)), value)


def _places(root: Any) -> list[tuple[Any, Any]]:
    """Every part of a tree, as its container and its key."""
    found: list[tuple[Any, Any]] = []
    waiting = [root]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            found.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return found


def _keys(root: Any) -> list[str]:
    return [key for _, key in _places(root) if isinstance(key, str)]


def _pairs(document: Any) -> list[tuple[str, Any]]:
    return [(key, holder[key]) for holder, key in _places([document]) if isinstance(key, str)]


def a_text_like(random: Random, text: str) -> str:
    """The text with a part removed, inserted or repeated."""
    begin = random.randint(0, len(text))
    end = min(len(text), begin + random.choice((0, 1, 1, 3, 20)))
    numbers = list(_NUMBER.finditer(text))
    if numbers and random.random() < 0.4:
        number = random.choice(numbers)
        return text[: number.start()] + random.choice(DIGITS) + text[number.end() :]
    match random.randrange(6):
        case 0:
            return text[:begin]
        case 1:
            return text[:begin] + text[end:]
        case 2:
            return text[:end] + text[begin:]
        case 3:
            return (text * random.choice((2, 100)))[:TEXT_LENGTH_MAX]
        case 4:
            return text.swapcase()
        case _:
            return text[:begin] + random.choice(TEXTS) + text[end:]


def bytes_like(random: Random, data: bytes) -> bytes:
    """The bytes with a flipped bit, a removed or repeated part, or a number at one of its limits."""
    at = random.randint(0, max(0, len(data) - 1))
    length = random.choice((1, 1, 2, 4, 8, 64))
    match random.randrange(7):
        case 0 | 1:
            return flipped(data, random.randrange(max(1, len(data) * 8)))
        case 2:
            return data[:at]
        case 3:
            return data[:at] + data[at + length :]
        case 4:
            return data[: at + length] + data[at:]
        case 5:
            return data[:at] + random.randbytes(length) + data[at + length :]
        case _:
            limit = random.choice((b"\xff", b"\x00", b"\x7f", b"\x80")) * length
            return data[:at] + limit + data[at + length :]


def flipped(data: bytes, bit: int) -> bytes:
    changed_data = bytearray(data)
    if changed_data:
        changed_data[bit // 8] ^= 1 << bit % 8
    return bytes(changed_data)


def as_yaml(random: Random, document: Any) -> str:
    """The document as YAML or JSON, sometimes with damage or aliases."""
    text = json.dumps(document, indent=random.choice((None, 1)))
    if random.random() < 0.5 and "\\ud800" not in text:
        is_plain = random.random() < 0.5
        text = yaml.dump(document, Dumper=yaml.CDumper, sort_keys=False, allow_unicode=is_plain)
    if random.random() < 0.15:
        text = a_text_like(random, text)
    if random.random() < 0.05:
        text = f"x-a: &a {{k: v}}\nx-b: &b {{<<: [*a, *a]}}\n{text}"
    return text
