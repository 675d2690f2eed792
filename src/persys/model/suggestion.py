"""A suggestion of an automation policy and its decision. Stored, so that it is applied only once."""

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
    action: SuggestedAction | None = None  # None: missing or unknown
    desired_state: str = ""  # as submitted
    desired_replicas: int = 0
    replica_delta: int = 0
    policy_id: str = ""
    policy_name: str = ""
    reason: str = ""

    def asks_the_same_as(self, other: "Suggestion") -> bool:
        """Whether both request the same change. Policy and reason may differ."""
        return self._request() == other._request()

    def _request(self) -> tuple[str, SuggestedAction | None, str, int, int]:
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
    applied_action: str = ""  # empty when it was rejected
    submitted_by: str = ""
    decided_by: str = ""  # who approved or rejected it
    pending_until: datetime | None = None

    def is_pending(self, now: datetime) -> bool:
        return self.pending_until is not None and now < self.pending_until
