"""The mapping between our errors and gRPC status codes.

Third-party agents send UNKNOWN with the words 'not found' instead of NOT_FOUND, so these words are matched.
A stale epoch has the same code as other refusals, so a client receives it as a plain RefusedError.
"""

import grpc

from persys.errors import (
    ConflictError,
    DeniedError,
    FencedError,
    InvalidError,
    NotFoundError,
    OutOfRangeError,
    PersysError,
    RefusedError,
    StaleEpochError,
    UnavailableError,
)
from persys.wire.agent.legacy_agents import says_not_found

# The first matching row wins, so a class is above its parent.
_CODES: tuple[tuple[type[PersysError], grpc.StatusCode], ...] = (
    (InvalidError, grpc.StatusCode.INVALID_ARGUMENT),
    (NotFoundError, grpc.StatusCode.NOT_FOUND),
    (OutOfRangeError, grpc.StatusCode.OUT_OF_RANGE),
    (DeniedError, grpc.StatusCode.PERMISSION_DENIED),
    (RefusedError, grpc.StatusCode.FAILED_PRECONDITION),
    (ConflictError, grpc.StatusCode.ABORTED),
    (StaleEpochError, grpc.StatusCode.FAILED_PRECONDITION),
    (FencedError, grpc.StatusCode.UNAVAILABLE),
    (UnavailableError, grpc.StatusCode.UNAVAILABLE),
    (PersysError, grpc.StatusCode.INTERNAL),
)

_REFUSALS = frozenset(
    {
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
    }
)


def grpc_code(err: PersysError) -> grpc.StatusCode:
    if isinstance(err, DeniedError) and err.reason == "token":
        return grpc.StatusCode.UNAUTHENTICATED
    return next(code for kind, code in _CODES if isinstance(err, kind))


def error_from(code: grpc.StatusCode, details: str | None) -> PersysError:
    """The error that a client raises for the status of a response."""
    text = details or code.name
    if code is grpc.StatusCode.NOT_FOUND:
        return _not_found(text)
    if code is grpc.StatusCode.UNKNOWN and says_not_found(text):
        return _not_found(text)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return _invalid(text)
    if code is grpc.StatusCode.OUT_OF_RANGE:
        return OutOfRangeError(text)
    if code is grpc.StatusCode.ABORTED:
        return ConflictError(text)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return RefusedError("not supported by this version of the peer")
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return DeniedError(text)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return DeniedError(text, reason="token")
    if code in _REFUSALS:
        return RefusedError(text)
    return UnavailableError(text)


def _not_found(text: str) -> NotFoundError:
    kind, ours, name = text.partition(" not found: ")
    return NotFoundError(kind, name) if ours else NotFoundError("object", text)


def _invalid(text: str) -> RefusedError:
    field, ours, problem = text.partition(": ")
    return InvalidError(field, problem) if ours else RefusedError(text)
