"""Makes untrusted text safe to show on a terminal.

Output of a workload or node may contain escape sequences that move the cursor, rewrite the screen, set the
title, inject input, or reorder text. Every control character is made visible, as with `cat -v`. In logs,
sequences that only set a colour are kept, and are reset at the end of the line.
"""

import codecs
import re

# Tab and newline stay. C1 controls are escape sequences of one character; the rest reorders text.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_COLOUR = re.compile("\x1b\\[[0-9;:]{0,40}m")
_UNFINISHED = re.compile("(\x1b(\\[[0-9;:]{0,40})?|\r)\\Z")
_PARTS_OF_A_LINE = re.compile("(\x1b\\[[0-9;:]{0,40}m|\r?\n)")
_RESET = "\x1b[0m"
_RESETS = frozenset({"\x1b[m", _RESET})
_DELETE = "\x7f"


def visible(text: str) -> str:
    """The text with every control character but tab and newline in visible form: ESC is `^[`."""
    return _UNSAFE.sub(_shown, text)


def is_safe(text: str) -> bool:
    return _UNSAFE.search(text) is None


class LogFilter:
    """Filters one log stream, whose chunks may end inside a character or a sequence."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""
        self._is_coloured = False

    def feed(self, data: bytes) -> bytes:
        """The filtered chunk. An incomplete sequence at its end is held until the rest arrives."""
        text = self._held + self._decoder.decode(data)
        unfinished = _UNFINISHED.search(text)
        self._held = unfinished[0] if unfinished is not None else ""
        return self._filtered(text[: len(text) - len(self._held)]).encode()

    def finish(self) -> bytes:
        """The rest at the end of the log."""
        held, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return (self._filtered(held) + self._reset()).encode()

    def _filtered(self, text: str) -> str:
        return "".join(map(self._part, _PARTS_OF_A_LINE.split(text)))

    def _part(self, part: str) -> str:
        if part in ("\n", "\r\n"):
            return f"{self._reset()}\n"
        if _COLOUR.fullmatch(part):
            self._is_coloured = part not in _RESETS
            return part
        return visible(part)

    def _reset(self) -> str:
        was_coloured, self._is_coloured = self._is_coloured, False
        return _RESET if was_coloured else ""


def _shown(found: re.Match[str]) -> str:
    character = found[0]
    if character < " ":
        return f"^{chr(ord(character) + 64)}"
    if character == _DELETE:
        return "^?"
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
