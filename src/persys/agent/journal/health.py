"""Health of the journal: the result of the last write, and the duration of the current one.

While the disk of the journal is full or broken, the node refuses orders and reports the problem. Running
workloads continue.
"""

import structlog

log = structlog.get_logger()

STALL_SECONDS = 10.0  # after which a write counts as stalled


class JournalHealth:
    def __init__(self) -> None:
        self._problem = ""
        self._began_at: float | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the last write failed."""
        return bool(self._problem)

    def began(self, now: float) -> None:
        self._began_at = now

    def ended(self, problem: str) -> None:
        """`problem`: why the write failed; "" if it succeeded."""
        self._began_at = None
        if problem and not self._problem:
            log.error("journal.failed", reason=problem)
        elif self._problem and not problem:
            log.info("journal.recovered")
        self._problem = problem

    def stalled(self, now: float) -> str:
        """The problem if the current write is stalled; "" otherwise."""
        if self._began_at is None or now - self._began_at < STALL_SECONDS:
            return ""
        return f"journal: no response from its disk for {now - self._began_at:.0f} s"

    def problem(self, now: float) -> str:
        """Why the journal cannot be written; "" if the last write succeeded."""
        return self.stalled(now) or (f"journal: {self._problem}" if self._problem else "")
