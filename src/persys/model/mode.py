"""How far the control plane trusts its store. Only in normal mode is anything written."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class Mode(StrEnum):
    NORMAL = "normal"
    DEGRADED = "degraded"  # the store gives no answer, or takes no writes
    RECOVERY = "recovery"  # the store answers and what it held is gone


class ModeState(Struct, frozen=True):
    mode: Mode
    since: datetime
    reason: str = ""


class ClusterMarker(Struct, frozen=True):
    """Written once when a cluster begins. A store without it is new, or has lost everything."""

    uid: str
    created_at: datetime
    accepted: tuple[str, ...] = ()  # uids of clusters whose loss an operator accepted
    proof_key: str = ""  # the first key of the cluster for proofs of assignment
