"""HTTP statuses of the REST API: one table for the gateway that sends them and the client that reads them."""

from collections.abc import Mapping
from typing import NamedTuple

from persys.errors import (
    ConflictError,
    DeniedError,
    InvalidError,
    NotFoundError,
    OutOfRangeError,
    PersysError,
    RefusedError,
    UnavailableError,
)

NOT_IMPLEMENTED = 501


class StatusRow(NamedTuple):
    error: type[PersysError]
    sent: int  # by the gateway for this error
    read: frozenset[int] = frozenset()  # further statuses that the client raises as this error


# The first match wins, so a class is listed before its parent.
STATUSES = (
    StatusRow(InvalidError, 400),
    StatusRow(NotFoundError, 404),
    StatusRow(DeniedError, 403, frozenset({401})),
    StatusRow(OutOfRangeError, 410),
    StatusRow(RefusedError, 422, frozenset({NOT_IMPLEMENTED})),
    StatusRow(ConflictError, 409, frozenset({412})),
    StatusRow(UnavailableError, 503, frozenset({408, 429, 500, 502, 504})),
)
INTERNAL_ERROR = 500
BAD_GATEWAY = 502

# The status that the gateway sends for a gRPC status of a scheduler, by its name.
CODE_STATUSES: Mapping[str, int] = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "ALREADY_EXISTS": 409,
    "OUT_OF_RANGE": 410,
    "FAILED_PRECONDITION": 422,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": NOT_IMPLEMENTED,
    "UNAVAILABLE": 503,
    "CANCELLED": 503,
    "DEADLINE_EXCEEDED": 504,
}


def status_of(err: PersysError) -> int:
    return next((row.sent for row in STATUSES if isinstance(err, row.error)), INTERNAL_ERROR)


def error_class(status: int) -> type[PersysError]:
    """RefusedError for a status that is not in the table."""
    found = (row.error for row in STATUSES if status == row.sent or status in row.read)
    return next(found, RefusedError)
