"""Our errors and gRPC's status codes, in one table.

Two things would surprise. Agents in the field say UNKNOWN with the words 'not found' where they mean
NOT_FOUND, so those words are read: the one exception to never looking at a text. And a stale epoch
shares its code with other refusals, so a client gets it back as a plain RefusedError.
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
from persys.wire.foreign import says_not_found

# The first row that fits holds, so a class stands above its parent.
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
    """The error that a peer's answer stands for, to be raised by the client that got it."""
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
        return RefusedError("the peer does not know this request: it is older or of another make")
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
