"""A line in the audit history. Past tense, never read by core."""

from datetime import datetime

from msgspec import Struct


class Event(Struct, frozen=True):
    at: datetime
    kind: str  # WorkloadApplied, WorkloadPlaced, NodeLost …
    message: str = ""
    workload_id: str = ""
    node_id: str = ""
    revision: str = ""
    epoch: int = 0
