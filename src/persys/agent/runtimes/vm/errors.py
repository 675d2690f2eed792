"""Maps errors of VMs to a Failure by libvirt's error code, never by its message."""

from persys.agent.runtimes.vm.libvirt import LibvirtError
from persys.agent.runtimes.vm.libvirt_import import load
from persys.errors import PersysError
from persys.model.status import Failure, FailureReason

NAME_TAKEN = "NameTaken"

_CODES = {
    FailureReason.INVALID_SPEC: (
        "VIR_ERR_XML_ERROR",
        "VIR_ERR_XML_DETAIL",
        "VIR_ERR_XML_INVALID_SCHEMA",
        "VIR_ERR_INVALID_ARG",
        "VIR_ERR_CONFIG_UNSUPPORTED",
        "VIR_ERR_ARGUMENT_UNSUPPORTED",
    ),
    FailureReason.NETWORK_ERROR: ("VIR_ERR_NO_NETWORK", "VIR_ERR_INVALID_NETWORK"),
    FailureReason.STORAGE_ERROR: (
        "VIR_ERR_NO_STORAGE_POOL",
        "VIR_ERR_NO_STORAGE_VOL",
        "VIR_ERR_INVALID_STORAGE_POOL",
        "VIR_ERR_INVALID_STORAGE_VOL",
        "VIR_ERR_STORAGE_POOL_BUILT",
        "VIR_ERR_STORAGE_VOL_EXIST",
    ),
}


class MachineError(PersysError):
    """A VM cannot be created or started as specified."""

    def __init__(self, reason: FailureReason, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.failure = Failure(reason, message, retryable=reason.retryable, code=code)


def failure_of(err: LibvirtError, otherwise: FailureReason) -> Failure:
    """`otherwise` is the reason for unspecific error codes."""
    libvirt = load()
    for reason, names in _CODES.items():
        if err.code in {getattr(libvirt, name, None) for name in names}:
            return Failure(reason, err.message, retryable=reason.retryable)
    return Failure(otherwise, err.message, retryable=otherwise.retryable)


def is_code(err: LibvirtError, *names: str) -> bool:
    libvirt = load()
    return err.code in {getattr(libvirt, name) for name in names}
