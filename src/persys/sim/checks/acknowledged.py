"""The states of each workload that are allowed in the store, given the requests and responses of users.

A request without a response may or may not have been processed, so it adds states; an acknowledged request
leaves only the states that follow it. None means that the workload does not exist.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from persys.model.ids import WorkloadId
from persys.model.workload import Desired, Workload


@dataclass(frozen=True, slots=True)
class Stored:
    revision: str
    desired: Desired


State = Stored | None


@dataclass(frozen=True, slots=True)
class UserRequest:
    """A user request: apply a revision, or change the desired state."""

    revision: str = ""
    desired: Desired | None = None

    def applied_to(self, old: State) -> State:
        if old is None:
            return Stored(self.revision, Desired.RUNNING) if self.revision else None
        if old.desired is Desired.DELETED:
            return old
        return Stored(self.revision or old.revision, self.desired or old.desired)


def state_of(workload: Workload | None) -> State:
    return Stored(workload.revision, workload.desired) if workload is not None else None


@dataclass(slots=True)
class AllowedStates:
    allowed: dict[WorkloadId, frozenset[State]] = field(default_factory=dict)
    asked_at: dict[WorkloadId, float] = field(default_factory=dict)
    deleted: set[WorkloadId] = field(default_factory=set)  # at least once

    def of(self, workload_id: WorkloadId) -> frozenset[State]:
        return self.allowed.get(workload_id, frozenset({None}))

    def request(self, workload_id: WorkloadId, change: UserRequest, *, now: float) -> None:
        before = self.of(workload_id)
        self.allowed[workload_id] = _with_time(
            before | {change.applied_to(state) for state in before}
        )
        self.asked_at[workload_id] = now
        if change.desired is Desired.DELETED:
            self.deleted.add(workload_id)

    def allow_stored(self, stored: Mapping[WorkloadId, Collection[State]]) -> None:
        """The store was lost: any earlier state may be restored, or none."""
        for workload_id, states in stored.items():
            self.allowed[workload_id] = frozenset({*self.of(workload_id), *states, None})

    def reset(
        self, workload_id: WorkloadId, states: Collection[State], change: UserRequest
    ) -> None:
        """Reset to `states`; one request may still be in flight."""
        self.allowed[workload_id] = _with_time(
            frozenset({*states, *(change.applied_to(state) for state in states)})
        )

    def acknowledge(self, workload_id: WorkloadId, change: UserRequest) -> None:
        after = frozenset(change.applied_to(state) for state in self.of(workload_id))
        if change.desired is not Desired.DELETED:
            after = frozenset(each for each in after if not _is_going(each))
        self.allowed[workload_id] = _with_time(after)


def _with_time(states: frozenset[State]) -> frozenset[State]:
    """A workload that is being deleted may also be gone."""
    if any(state is not None and _is_going(state) for state in states):
        return states | {None}
    return states


def _is_going(state: State) -> bool:
    return state is None or state.desired is Desired.DELETED
