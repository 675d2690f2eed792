"""Rate limit for events of denied calls, so that they cannot fill the store.

In a window of one minute each pair of caller and method is reported once, up to TOLD_MAX pairs. The rest is
counted and reported as a number when the window ends. That line counts for the next window, so no pair is
reported more than once per window.
"""

from msgspec import Struct

WINDOW_SECONDS = 60.0
REPORTED_MAX = 10
_UNKNOWN = "unknown identity"


class Denial(Struct, frozen=True):
    who: str  # role and name; empty: unknown identity
    role: str
    method: str
    peer: str
    reason: str  # a word
    text: str

    @property
    def line(self) -> str:
        who = self.who or _UNKNOWN
        return f"{who} at {self.peer} was denied {self.method} ({self.reason}): {self.text}"


class DenialLimiter:
    def __init__(self, window: float = WINDOW_SECONDS, reported_max: int = REPORTED_MAX) -> None:
        self._window = window
        self._reported_max = reported_max
        self._reported: dict[tuple[str, str], int] = {}  # pair: calls left out since
        self._others = 0
        self.ends_at: float | None = None  # None: no window is open

    def take(self, denial: Denial, now: float) -> str | None:
        """The line to report now, if any. `close` ends a window."""
        if self.ends_at is None:
            self.ends_at = now + self._window
        pair = (denial.who, denial.method)
        if pair in self._reported:
            self._reported[pair] += 1
        elif len(self._reported) < self._reported_max:
            self._reported[pair] = 0
            return denial.line
        else:
            self._others += 1
        return None

    def close(self, now: float) -> list[str]:
        """The lines to report at the end of a window; none before it."""
        if self.ends_at is None or now < self.ends_at:
            return []
        left_out = {pair: count for pair, count in self._reported.items() if count}
        lines = [_more(who, method, count) for (who, method), count in left_out.items()]
        if self._others:
            lines.append(f"{self._others} more calls were denied in the last minute")
        self._reported = dict.fromkeys(left_out, 0)
        self._others = 0
        self.ends_at = now + self._window if lines else None
        return lines


def _more(who: str, method: str, count: int) -> str:
    return f"{who or _UNKNOWN} was denied {method}: {count} more in the last minute"
