"""Compares read responses with the store: no response may be older than its reported age."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from persys.model.ids import WorkloadId
from persys.model.workload import Desired
from persys.sim.checks.acknowledged import State, Stored, state_of
from persys.sim.checks.store_mirror import Mirror

# Until a commit is in memory: after the store's response, or after the watch event.
SLACK_SECONDS = 1.0


@dataclass(slots=True)
class Reads:
    """The stored states of each workload, and when each was replaced."""

    mirror: Mirror
    _now: dict[WorkloadId, State] = field(default_factory=dict)
    _past: dict[WorkloadId, list[tuple[State, float]]] = field(default_factory=dict)

    def committed(self, workload_ids: Iterable[WorkloadId], now: float) -> None:
        for workload_id in workload_ids:
            old = self._now.get(workload_id)
            new = state_of(self.mirror.workload(workload_id))
            if old != new:
                self._past.setdefault(workload_id, []).append((old, now))
                self._now[workload_id] = new

    def forget(self) -> None:
        """The store was lost: only memory is left to read from."""
        self._now.clear()
        self._past.clear()

    def too_old(self, views: Iterable[Any], *, age_seconds: float, now: float) -> str:
        """The first state that is older than allowed; empty if there is none."""
        shown = {
            WorkloadId(view.workload_id): Stored(
                view.revision_id, Desired(view.desired_state.lower())
            )
            for view in views
        }
        since = now - age_seconds - SLACK_SECONDS
        for workload_id, state in sorted(self._now.items()):
            seen = shown.get(workload_id)
            recent = (old for old, ended_at in self._past[workload_id] if ended_at >= since)
            if seen != state and seen not in recent:
                return f"{workload_id} was returned as {seen} at age {age_seconds:.1f}s, but is {state}"
        return ""
