"""Which refusals become events: enough to see what happens, too few to fill a store.

In a window of a minute each pair of who and method is told once, and only so many pairs; what is left out is
counted, and told as a number when the window ends. That line then stands for the next window, so that no pair
is ever told of more than once in one.
"""

from msgspec import Struct

WINDOW_SECONDS = 60.0
TOLD_MAX = 10


class Denial(Struct, frozen=True):
    who: str  # role and name; empty: nobody who is known
    role: str
    method: str
    peer: str
    reason: str  # a word
    text: str

    @property
    def line(self) -> str:
        who = self.who or "somebody unknown"
        return f"{who} at {self.peer} was refused {self.method} ({self.reason}): {self.text}"


class Ration:
    def __init__(self, window: float = WINDOW_SECONDS, told_max: int = TOLD_MAX) -> None:
        self._window = window
        self._told_max = told_max
        self._told: dict[tuple[str, str], int] = {}  # left out since
        self._others = 0
        self.ends_at: float | None = None  # None: no window is open

    def take(self, denial: Denial, now: float) -> str | None:
        """What to tell of it now, if anything. Windows that are over are closed by `close`."""
        if self.ends_at is None:
            self.ends_at = now + self._window
        pair = (denial.who, denial.method)
        if pair in self._told:
            self._told[pair] += 1
        elif len(self._told) < self._told_max:
            self._told[pair] = 0
            return denial.line
        else:
            self._others += 1
        return None

    def close(self, now: float) -> list[str]:
        """What to tell at the end of a window; nothing before it."""
        if self.ends_at is None or now < self.ends_at:
            return []
        left_out = {pair: count for pair, count in self._told.items() if count}
        lines = [_more(who, method, count) for (who, method), count in left_out.items()]
        if self._others:
            lines.append(f"{self._others} more calls were refused in the last minute")
        self._told = dict.fromkeys(left_out, 0)
        self._others = 0
        self.ends_at = now + self._window if lines else None
        return lines


def _more(who: str, method: str, count: int) -> str:
    return f"{who or 'somebody unknown'} was refused {method}: {count} more in the last minute"
