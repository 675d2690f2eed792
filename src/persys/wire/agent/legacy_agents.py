"""Interprets the messages of third-party agents, which send text where ours send codes.

Only this module matches on message texts.
"""

from collections.abc import Mapping

from persys.model.spec import WorkloadType
from persys.model.status import Failure, FailureReason

# The zero time of Go in Unix seconds, which these agents send for unset times.
ZERO_TIME_SECONDS = -62_135_596_800

RUNTIME_NOT_AVAILABLE = "RuntimeNotAvailable"

# Word -> (reason, whether a retry can succeed).
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

# Causes outside the workload. When an agent stops retrying, the scheduler retries later.
_OUTSIDE = frozenset(
    {
        FailureReason.IMAGE_PULL_FAILED,
        FailureReason.INSUFFICIENT_RESOURCES,
        FailureReason.NETWORK_ERROR,
        FailureReason.STORAGE_ERROR,
    }
)


# Prefixes of the status text of an unusable runtime. Any other text, such as a version, means healthy.
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
    """The workload types whose runtime HealthCheck reports as unusable."""
    return frozenset(
        kind
        for kind in WorkloadType
        if runtime_status.get(kind.value, "").strip().lower().startswith(_UNHEALTHY)
    )


# Words in task errors of agents that send no reason. The first match wins.
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
    """The failure reason derived from an error text."""
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
    """These agents report a delete that found nothing as failed. The workload is absent then."""
    return task_id.startswith("delete-") and "workload not found" in text.lower()


def failure(word: str, text: str, *, code: str, terminal: bool) -> Failure:
    """The failure for a reason word and an error text. `terminal`: the agent does not retry.

    Our agents send a code with failures that must not be retried.
    """
    # A reason derived from a text is a guess: it must not end the retries.
    reason, retryable = _FAILURE_WORDS.get(word.upper(), (cause(text), True))
    if not code and says_runtime_not_available(text):
        code = RUNTIME_NOT_AVAILABLE
    final = terminal and (bool(code) or reason not in _OUTSIDE)
    return Failure(reason, text, retryable=retryable and not final, code=code)
