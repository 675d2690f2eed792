"""Parses and formats durations: 15s, 3m, 1m30s, 500ms, or plain seconds."""

import re
from datetime import timedelta

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
_PLAIN = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def parse_duration(text: str) -> timedelta:
    """Raises ValueError that says what was expected."""
    text = text.strip()
    if _PLAIN.fullmatch(text):
        text += "s"
    if _WHOLE.fullmatch(text):
        try:
            return timedelta(
                seconds=sum(
                    float(count) * _UNIT_SECONDS[unit] for count, unit in _PART.findall(text)
                )
            )
        except OverflowError:
            raise ValueError("expected a duration of less than a billion days") from None
    raise ValueError("expected a duration such as 15s, 3m, 500ms or plain seconds")


def format_duration(span: timedelta) -> str:
    """A text that `parse_duration` reads back as the same duration."""
    seconds = span.total_seconds()
    if 0 < seconds < 1:
        return f"{_plain(seconds * 1000)}ms"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds and seconds % size == 0:
            return f"{_plain(seconds / size)}{unit}"
    return f"{_plain(seconds)}s"


def _plain(count: float) -> str:
    return f"{count:.6f}".rstrip("0").rstrip(".")
