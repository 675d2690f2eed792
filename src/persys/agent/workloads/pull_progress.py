"""Reports the progress of image pulls, and records which images this agent has pulled.

Progress is reported at most once a second per workload: the scheduler extends the apply timeout of a node
that reports progress.
"""

import structlog

from persys.agent.journal.changes import Change
from persys.agent.journal.recorder import Ledger
from persys.agent.journal.records import Entry, Image
from persys.agent.journal.store import State
from persys.agent.metrics import Metrics
from persys.agent.ports import PullWatch
from persys.core.agent.pull_progress import Download, Layers
from persys.errors import StoreUnavailableError
from persys.infra.clock import Clock
from persys.model.status import Failure

log = structlog.get_logger()

TELL_SECONDS = 1.0
COMMIT_DEADLINE_SECONDS = 5.0


class Pulls:
    def __init__(self, state: State, ledger: Ledger, clock: Clock, metrics: Metrics) -> None:
        self._state = state
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics

    def watch(self, entry: Entry) -> "Pull":
        return Pull(entry, self._state, self._ledger, self._clock, self._metrics)


class Pull(PullWatch):
    """One image pull. Implements agent.ports.PullWatch."""

    def __init__(
        self, entry: Entry, state: State, ledger: Ledger, clock: Clock, metrics: Metrics
    ) -> None:
        self._entry = entry
        self._state = state
        self._ledger = ledger
        self._clock = clock
        self._metrics = metrics
        self._began: float | None = None
        self._reported_at = float("-inf")
        self._fetching: Layers | Download | None = None

    def queued(self, why: str) -> None:
        self._ledger.under_way(self._entry, "Pulling", f"waiting: {why}")

    def began(self) -> None:
        self._began = self._clock.monotonic()

    def progress(self, fetching: Layers | Download) -> None:
        self._fetching = fetching
        now = self._clock.monotonic()
        if now - self._reported_at < TELL_SECONDS:
            return
        self._reported_at = now
        self._ledger.under_way(self._entry, "Pulling", fetching.told())

    async def fetched(self, image: str, image_id: str) -> None:
        now = self._clock.now()
        try:
            change = Change(images=[Image(image, image_id, now, now)])
            await self._state.commit(change, deadline_seconds=COMMIT_DEADLINE_SECONDS)
        except StoreUnavailableError as err:
            # The image is then never garbage collected, because its origin is unknown.
            log.warning("image.not_kept", image=image, reason=str(err))

    def ended(self, failure: Failure | None) -> None:
        """Count the pull, unless the image was already present."""
        if self._began is not None:
            outcome = failure.reason.value if failure is not None else "completed"
            byte_count = self._fetching.bytes_got if self._fetching is not None else 0
            self._metrics.pulls.ended(outcome, self._clock.monotonic() - self._began, byte_count)
