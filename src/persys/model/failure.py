"""Why a workload could not reach its desired state: a closed set, and whether a retry can help."""

from enum import StrEnum

from msgspec import Struct


class FailureReason(StrEnum):
    IMAGE_PULL_FAILED = "IMAGE_PULL_FAILED"
    IMAGE_NOT_FOUND = "IMAGE_NOT_FOUND"
    INSUFFICIENT_RESOURCES = "INSUFFICIENT_RESOURCES"
    INVALID_SPEC = "INVALID_SPEC"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    NETWORK_ERROR = "NETWORK_ERROR"
    STORAGE_ERROR = "STORAGE_ERROR"
    VM_BOOT_FAILED = "VM_BOOT_FAILED"

    @property
    def retryable(self) -> bool:
        """An invalid spec or a missing image needs a change by a user."""
        return self not in _PERMANENT


_PERMANENT = frozenset({FailureReason.INVALID_SPEC, FailureReason.IMAGE_NOT_FOUND})


class Failure(Struct, frozen=True):
    """A workload could not reach its desired state."""

    reason: FailureReason
    message: str
    retryable: bool = True
    code: str = ""  # more specific than the reason, for example CrashLoop
