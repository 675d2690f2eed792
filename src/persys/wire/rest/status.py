"""The table of errors: the gRPC code and the HTTP status of each, for servers and clients.

The gRPC codes are names, because the REST client does not import grpc: start-up time.
"""

from collections.abc import Mapping
from typing import NamedTuple

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

NOT_IMPLEMENTED = 501


class StatusRow(NamedTuple):
    error: type[PersysError]
    code: str  # gRPC
    sent: int  # the HTTP status that is sent for this error
    read: frozenset[int] = frozenset()  # further statuses that the client raises as this error


# The first match wins, by class, code or status; a class is listed before its parent.
STATUSES = (
    StatusRow(InvalidError, "INVALID_ARGUMENT", 400),
    StatusRow(NotFoundError, "NOT_FOUND", 404),
    StatusRow(DeniedError, "PERMISSION_DENIED", 403, frozenset({401})),
    StatusRow(OutOfRangeError, "OUT_OF_RANGE", 410),
    StatusRow(RefusedError, "FAILED_PRECONDITION", 422, frozenset({NOT_IMPLEMENTED})),
    StatusRow(StaleEpochError, "FAILED_PRECONDITION", 422),
    StatusRow(ConflictError, "ABORTED", 409, frozenset({412})),
    StatusRow(UnavailableError, "UNAVAILABLE", 503, frozenset({408, 429, 500, 502, 504})),
    StatusRow(FencedError, "UNAVAILABLE", 503),
)
INTERNAL_ERROR = 500
BAD_GATEWAY = 502

# The status that the gateway sends for a gRPC status of a scheduler, by its name.
CODE_STATUSES: Mapping[str, int] = {
    **{row.code: row.sent for row in STATUSES},
    "UNAUTHENTICATED": 401,
    "ALREADY_EXISTS": 409,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": NOT_IMPLEMENTED,
    "CANCELLED": 503,
    "DEADLINE_EXCEEDED": 504,
}


def status_of(err: PersysError) -> int:
    return next((row.sent for row in STATUSES if isinstance(err, row.error)), INTERNAL_ERROR)


def error_class(status: int) -> type[PersysError]:
    """RefusedError for a status that is not in the table."""
    found = (row.error for row in STATUSES if status == row.sent or status in row.read)
    return next(found, RefusedError)


def build_error(kind: type[PersysError], text: str, *, reason: str = "") -> PersysError:
    """The error of this class that a peer has sent as `text`."""
    if issubclass(kind, InvalidError):
        field, separator, problem = text.partition(": ")
        return InvalidError(field, problem) if separator else RefusedError(text)
    if issubclass(kind, NotFoundError):
        what, separator, name = text.partition(" not found: ")
        return NotFoundError(what, name) if separator else NotFoundError("object", text)
    if issubclass(kind, DeniedError):
        return DeniedError(text, reason=reason)
    return kind(text)
