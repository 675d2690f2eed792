"""Durations as people write them: 15s, 3m, 1m30s, 500ms, or plain seconds."""

import re
from datetime import timedelta

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_WHOLE = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_PLAIN = re.compile(r"\d+(?:\.\d+)?")


def parse_duration(text: str) -> timedelta:
    """Raises ValueError saying what was expected."""
    text = text.strip()
    if _PLAIN.fullmatch(text):
        return timedelta(seconds=float(text))
    if _WHOLE.fullmatch(text):
        return timedelta(
            seconds=sum(float(count) * _UNIT_SECONDS[unit] for count, unit in _PART.findall(text))
        )
    raise ValueError("expected a duration such as 15s, 3m, 500ms or plain seconds")


def format_duration(span: timedelta) -> str:
    seconds = span.total_seconds()
    if seconds and seconds < 1:
        return f"{seconds * 1000:g}ms"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds and seconds % size == 0:
            return f"{seconds / size:g}{unit}"
    return f"{seconds:g}s"
