"""What an automation policy suggests for a workload, and what became of it. Kept, so that it happens once."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class SuggestedAction(StrEnum):
    SET_DESIRED_STATE = "set_desired_state"
    RETRY_WORKLOAD = "retry_workload"
    DELETE_WORKLOAD = "delete_workload"
    SCALE_REPLICAS = "scale_replicas"


class Suggestion(Struct, frozen=True):
    id: str
    target_workload: str = ""
    action: SuggestedAction | None = None  # None: none that is known
    desired_state: str = ""  # as it was said
    desired_replicas: int = 0
    replica_delta: int = 0
    policy_id: str = ""
    policy_name: str = ""
    reason: str = ""

    def asks_the_same_as(self, other: "Suggestion") -> bool:
        """Whether both ask for the same deed. Who suggests it and why may be told in other words."""
        return self._deed() == other._deed()

    def _deed(self) -> tuple[str, SuggestedAction | None, str, int, int]:
        return (
            self.target_workload,
            self.action,
            self.desired_state.lower(),
            self.desired_replicas,
            self.replica_delta,
        )


class Ruling(Struct, frozen=True):
    """The decision about a suggestion, the same each time it is submitted.

    With `pending_until` it is rejected for now and can be approved until then.
    """

    suggestion: Suggestion
    accepted: bool
    decided_at: datetime
    reason: str = ""
    applied_action: str = ""  # what was done; empty when it was rejected
    submitted_by: str = ""
    decided_by: str = ""  # who approved or rejected it
    pending_until: datetime | None = None

    def is_pending(self, now: datetime) -> bool:
        return self.pending_until is not None and now < self.pending_until
