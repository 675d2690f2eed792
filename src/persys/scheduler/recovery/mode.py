"""The mode of the control plane. The committer sets it from the state of the store; all others read it."""

from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from persys.core.recovery.mode import ModeCondition, Outcome, after
from persys.errors import FrozenError
from persys.infra.clock import Clock
from persys.model.cluster import Mode, ModeState
from persys.model.event import Event, EventKind

log = structlog.get_logger()

UNWRITTEN_MAX = 32


class ModeTracker:
    def __init__(self, clock: Clock, *, on_normal: Callable[[], None]) -> None:
        self._clock = clock
        self.condition = ModeCondition()
        self._since = clock.now()
        self._confirmed_at = clock.monotonic()
        self._unwritten: list[Event] = []
        self._unwritten_omitted = 0
        self._on_normal = on_normal

    @property
    def state(self) -> ModeState:
        return ModeState(self.condition.mode, self._since, self.condition.reason)

    @property
    def is_frozen(self) -> bool:
        return self.condition.mode is not Mode.NORMAL

    @property
    def in_recovery(self) -> bool:
        return self.condition.mode is Mode.RECOVERY

    def take(self, outcome: Outcome) -> None:
        before, self.condition = self.condition, after(self.condition, outcome)
        if not self.is_frozen:
            self._confirmed_at = self._clock.monotonic()
        if self.condition.mode is before.mode:
            return
        now = self._clock.now()
        self._since = now
        mode = self.condition.mode
        why = outcome.reason or before.reason
        level = log.info if mode is Mode.NORMAL else log.warning
        level("mode.changed", mode=mode, before=before.mode, reason=why)
        if mode is Mode.NORMAL:
            self._on_normal()
        else:
            self._note(_event(now, mode, why))

    def confirm(self) -> None:
        """The store has just replied to this leader: memory equals the store.

        Ignored in a frozen mode: there a reply does not tell the outcome of unanswered writes.
        """
        if not self.is_frozen:
            self._confirmed_at = self._clock.monotonic()

    def data_age(self) -> timedelta:
        """Since the last successful access to the store, when memory and store were equal.

        0 in normal mode: there is no other writer.
        """
        if not self.is_frozen:
            return timedelta()
        return timedelta(seconds=self._clock.monotonic() - self._confirmed_at)

    def refusal(self) -> FrozenError:
        mode, reason = self.condition.mode, self.condition.reason
        return FrozenError(f"the control plane is in {mode} mode and refuses changes: {reason}")

    def history(self, why: str) -> list[Event]:
        """The unwritten events of the outage and its end. At most UNTOLD_MAX + 1 events."""
        if self._unwritten_omitted:
            why = f"{why}; {self._unwritten_omitted} earlier mode changes were not recorded"
        return [*self._unwritten, _event(self._clock.now(), Mode.NORMAL, why)]

    def events_written(self) -> None:
        self._unwritten.clear()
        self._unwritten_omitted = 0

    def _note(self, event: Event) -> None:
        """Keep the first and the newest events: all are stored in one transaction of bounded size."""
        self._unwritten.append(event)
        if len(self._unwritten) > UNWRITTEN_MAX:
            del self._unwritten[UNWRITTEN_MAX // 2]
            self._unwritten_omitted += 1


def _event(at: datetime, mode: Mode, why: str) -> Event:
    return Event(at, EventKind.MODE_CHANGED, f"{mode}: {why}")
