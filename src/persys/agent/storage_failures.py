"""Maps operating system errors to failures of a workload. They are retryable."""

from persys.infra.aio.path_calls import PathTimeoutError
from persys.model.status import Failure, FailureReason

PATH_TIMEOUT = "PathTimeout"


def storage_failure(what: str, err: OSError | PathTimeoutError) -> Failure:
    """`what`: the operation or the resource that failed."""
    if isinstance(err, PathTimeoutError):
        return Failure(FailureReason.STORAGE_ERROR, f"{what}: {err}", code=PATH_TIMEOUT)
    if isinstance(err, TimeoutError | ConnectionError):
        reason = err.strerror or str(err) or "no response in time"
        return Failure(FailureReason.RUNTIME_ERROR, f"{what}: {reason}")
    named = f"{err.filename}: " if err.filename else ""
    return Failure(FailureReason.STORAGE_ERROR, f"{what}: {named}{err.strerror or err}")
