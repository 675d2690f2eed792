"""What agents in the field say in their own words, and what it means.

The only place that reads words in a text: those agents give no code to go by.
"""

from collections.abc import Mapping

from persys.model.failure import Failure, FailureReason
from persys.model.spec import WorkloadType

# The zero time of the language those agents are written in, in Unix seconds.
ZERO_TIME_SECONDS = -62_135_596_800

RUNTIME_NOT_AVAILABLE = "RuntimeNotAvailable"

# The word: its reason, and whether trying again can help.
_FAILURE_WORDS = {
    "INVALID_IMAGE": (FailureReason.IMAGE_NOT_FOUND, False),
    "INVALID_SPECIFICATION": (FailureReason.INVALID_SPEC, False),
    "INVALID_CONFIGURATION": (FailureReason.INVALID_SPEC, False),
    "PORT_BIND_CONFLICT": (FailureReason.NETWORK_ERROR, False),
    "RESOURCE_QUOTA_EXCEEDED": (FailureReason.INSUFFICIENT_RESOURCES, True),
} | {reason.value: (reason, reason.retryable) for reason in FailureReason}

_FULL = FailureReason.INSUFFICIENT_RESOURCES
_NO_IMAGE = FailureReason.IMAGE_NOT_FOUND
_NETWORK = FailureReason.NETWORK_ERROR

# Causes outside the workload. An agent that stops trying leaves it to the scheduler to try again later.
_OUTSIDE = frozenset(
    {
        FailureReason.IMAGE_PULL_FAILED,
        FailureReason.INSUFFICIENT_RESOURCES,
        FailureReason.NETWORK_ERROR,
        FailureReason.STORAGE_ERROR,
    }
)


# How the text of a runtime that cannot be used begins. Any other text, such as a version, is no complaint.
_UNHEALTHY = (
    "disabled",
    "disconnected",
    "down",
    "error",
    "fail",
    "false",
    "missing",
    "no ",
    "not ",
    "not_",
    "offline",
    "runtime not available",
    "stopped",
    "unavailable",
    "unhealthy",
    "unreachable",
)


def unhealthy_types(runtime_status: Mapping[str, str]) -> frozenset[WorkloadType]:
    """The types whose runtime is reported as unusable by HealthCheck."""
    return frozenset(
        kind
        for kind in WorkloadType
        if runtime_status.get(kind.value, "").strip().lower().startswith(_UNHEALTHY)
    )


# Words in the error of a task, of agents that name no reason. The first that occurs counts.
_CAUSES = (
    (("resource_quota_exceeded", "quota exceeded", "insufficient"), _FULL),
    (("manifest unknown", "pull access denied", "repository does not exist"), _NO_IMAGE),
    (("no such image", "invalid reference format"), _NO_IMAGE),
    (("pull",), FailureReason.IMAGE_PULL_FAILED),
    (("no space left", "volume", "mount", "disk"), FailureReason.STORAGE_ERROR),
    (("port is already allocated", "address already in use", "network"), _NETWORK),
    (("domain", "libvirt", "boot"), FailureReason.VM_BOOT_FAILED),
    (("invalid", "unsupported", "malformed"), FailureReason.INVALID_SPEC),
)


def cause(text: str) -> FailureReason:
    """The reason that the text of an error tells."""
    low = text.lower()
    for words, reason in _CAUSES:
        if any(word in low for word in words):
            return reason
    return FailureReason.RUNTIME_ERROR


def says_not_found(text: str) -> bool:
    return "not found" in text.lower()


def says_runtime_not_available(text: str) -> bool:
    """The node cannot run workloads of this type until it registers again."""
    return "runtime not available" in text.lower()


def says_deleted(task_id: str, text: str) -> bool:
    """A delete that found nothing is reported as failed, and means that the workload is gone."""
    return task_id.startswith("delete-") and "workload not found" in text.lower()


def failure(word: str, text: str, *, code: str, terminal: bool) -> Failure:
    """The failure that a word and a text describe. `terminal`: the agent does not try again by itself.

    Our agents send a code with what must not be tried again.
    """
    # A reason that is read from a text is a guess: it must not end the attempts.
    reason, retryable = _FAILURE_WORDS.get(word.upper(), (cause(text), True))
    if not code and says_runtime_not_available(text):
        code = RUNTIME_NOT_AVAILABLE
    final = terminal and (bool(code) or reason not in _OUTSIDE)
    return Failure(reason, text, retryable=retryable and not final, code=code)
