"""Whether the journal can be written: what the last write came to, and how long the present one has taken.

A journal on a full or broken disk takes no orders. What runs goes on, and the node says so.
"""

import structlog

log = structlog.get_logger()

STALL_SECONDS = 10.0  # after which a write counts as hanging


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
        """`problem`: why nothing was written; "" if all was."""
        self._began_at = None
        if problem and not self._problem:
            log.error("journal.failed", reason=problem)
        elif self._problem and not problem:
            log.info("journal.recovered")
        self._problem = problem

    def stalled(self, now: float) -> str:
        """Why no write can be expected to end soon; "" otherwise."""
        if self._began_at is None or now - self._began_at < STALL_SECONDS:
            return ""
        return f"journal: no answer from its disk for {now - self._began_at:.0f} s"

    def problem(self, now: float) -> str:
        """Why nothing can be written; "" if the last write succeeded."""
        return self.stalled(now) or (f"journal: {self._problem}" if self._problem else "")
