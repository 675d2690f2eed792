"""Errors, by what the caller can do about them.

PersysError
├── RefusedError           the request is wrong; change it
│   ├── InvalidError       a field is wrong; `field` names it
│   │   └── MissingFieldError  a required field is empty
│   ├── NotFoundError      the object does not exist
│   ├── DeniedError        the identity has no permission; use another one
│   ├── SupersededError    another host is registered as this node; stop workloads with data
│   ├── OutOfRangeError    the requested range is not stored; start from another one
│   ├── SettingsError      a setting of the process is invalid
│   └── ProviderRefusedError  quota, credentials or image of a provider; a person must act
├── ConflictError          the record has changed; read again and decide again
├── StaleEpochError        a newer assignment exists; the sender must stop
├── FencedError            another scheduler is the leader; this process must not write
├── DefectError            a defect of this program stopped the request; report it
└── UnavailableError       no response, the outcome is unknown; try later
    ├── StoreUnavailableError
    │   ├── FrozenError    the mode allows no writes; wait, or complete the recovery
    │   └── CompactedError the requested history was compacted; read everything again
    ├── AgentUnreachableError
    ├── RuntimeUnavailableError
    └── ProviderUnavailableError
        └── ProviderThrottledError  nothing was changed; wait for `retry_after`
"""

from datetime import timedelta


class PersysError(Exception):
    """The root of all expected errors."""


class RefusedError(PersysError):
    """The request is wrong; change it."""


class InvalidError(RefusedError):
    """A field has an invalid value."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


class MissingFieldError(InvalidError):
    """A required field is empty."""

    def __init__(self, field: str) -> None:
        super().__init__(field, "is missing")


class NotFoundError(RefusedError):
    """The object does not exist. The text always contains the words 'not found': peers match them."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} not found: {name}")


class DeniedError(RefusedError):
    """The identity has no permission. `reason` is a machine-readable code, or empty."""

    def __init__(self, text: str, *, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class OutOfRangeError(RefusedError):
    """The requested range is no longer stored, or does not exist yet; start from another one."""


class SettingsError(RefusedError):
    """A setting of the process is invalid."""


class ProviderRefusedError(RefusedError):
    """A provider of machines refused: quota, credentials, image. A person must act; nothing was created."""


class ConflictError(PersysError):
    """The record has changed; read again and decide again."""


class QuarantinedError(ConflictError):
    """A stored record cannot be read, so it is not overwritten. An operator must repair it."""


class SupersededError(RefusedError):
    """Another machine is registered as this node, and both are alive."""


class StaleEpochError(PersysError):
    """A newer assignment of this workload exists, or it was deleted."""

    def __init__(self, text: str, *, known_epoch: int = 0, deleted: bool = False) -> None:
        super().__init__(text)
        self.known_epoch = known_epoch
        self.deleted = deleted


class FencedError(PersysError):
    """Another scheduler is the leader."""


class DefectError(PersysError):
    """The work for one request failed unexpectedly. The log has the traceback."""


class UnavailableError(PersysError):
    """No response, so the state is unknown. It never means absence."""


class StoreUnavailableError(UnavailableError):
    """The store did not accept the write or did not respond."""


class FrozenError(StoreUnavailableError):
    """The control plane is degraded or in recovery mode: nothing was written."""


class CompactedError(StoreUnavailableError):
    """The requested history was compacted; read everything again."""


class AgentUnreachableError(UnavailableError):
    """The agent did not respond."""


class RuntimeUnavailableError(UnavailableError):
    """The runtime (Docker, libvirt) did not respond."""


class ProviderUnavailableError(UnavailableError):
    """A provider of machines did not respond, or the outcome of a call is unknown."""


class ProviderThrottledError(ProviderUnavailableError):
    """A provider limits the rate of calls. The call changed nothing."""

    def __init__(self, text: str, *, retry_after: timedelta) -> None:
        super().__init__(text)
        self.retry_after = retry_after
