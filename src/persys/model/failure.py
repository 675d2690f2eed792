"""Why a workload could not be made so: a closed set, with whether trying again can help."""

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
        """A wrong spec or a missing image stays wrong until somebody changes something."""
        return self not in _PERMANENT


_PERMANENT = frozenset({FailureReason.INVALID_SPEC, FailureReason.IMAGE_NOT_FOUND})


class Failure(Struct, frozen=True):
    """A workload could not be made so."""

    reason: FailureReason
    message: str
    retryable: bool = True
    code: str = ""  # a finer word than the reason, e.g. CrashLoop
