"""The trace of a run, and its fingerprint: equal runs have equal fingerprints."""

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

KEPT_MAX = 4_000


@dataclass(frozen=True, slots=True)
class Line:
    at: float
    who: str
    what: str

    def __str__(self) -> str:
        minutes, seconds = divmod(self.at, 60)
        return f"{minutes:3.0f}:{seconds:06.3f}  {self.who:<12} {self.what}"


class Trace:
    """Stores the last lines only; the fingerprint covers all."""

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._hash = hashlib.sha256()
        self.lines: deque[Line] = deque(maxlen=KEPT_MAX)
        self.count = 0

    def add(self, who: str, what: str) -> None:
        line = Line(self._time(), who, what)
        self.lines.append(line)
        self.count += 1
        self._hash.update(f"{line.at:.6f} {who} {what}\n".encode())

    def fingerprint(self) -> str:
        return self._hash.hexdigest()[:16]
