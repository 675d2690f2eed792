"""The mode of the control plane, from the state of its store. Only normal mode allows writes."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class Mode(StrEnum):
    NORMAL = "normal"
    DEGRADED = "degraded"  # the store does not respond, or accepts no writes
    RECOVERY = "recovery"  # the store responds, but its records are gone


class ModeState(Struct, frozen=True):
    mode: Mode
    since: datetime
    reason: str = ""


class ClusterMarker(Struct, frozen=True):
    """Written once when a cluster is created. A store without it is new, or has lost its records."""

    uid: str
    created_at: datetime
    accepted: tuple[str, ...] = ()  # uids of clusters whose loss an operator accepted
    proof_key: str = ""  # the first key of the cluster for proofs of assignment


class Leader(Struct, frozen=True):
    name: str
    endpoint: str = ""  # host:port, for replicas that forward calls to it
