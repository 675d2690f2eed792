"""The gRPC status codes of our errors, from the table in `wire/rest/status.py`.

Third-party agents send UNKNOWN with the words 'not found' instead of NOT_FOUND, so these words are matched.
A stale epoch has the same code as other refusals, so a client receives it as a plain RefusedError.
"""

import grpc

from persys.errors import DeniedError, NotFoundError, PersysError, RefusedError, UnavailableError
from persys.wire.agent.legacy_agents import says_not_found
from persys.wire.rest.status import STATUSES, build_error

_CODES = tuple((row.error, grpc.StatusCode[row.code]) for row in STATUSES)
_ERRORS: dict[grpc.StatusCode, type[PersysError]] = {
    **{code: error for error, code in reversed(_CODES)},
    grpc.StatusCode.ALREADY_EXISTS: RefusedError,
    grpc.StatusCode.UNAUTHENTICATED: DeniedError,
}


def grpc_code(err: PersysError) -> grpc.StatusCode:
    if isinstance(err, DeniedError) and err.reason == "token":
        return grpc.StatusCode.UNAUTHENTICATED
    found = (code for kind, code in _CODES if isinstance(err, kind))
    return next(found, grpc.StatusCode.INTERNAL)


def error_from(code: grpc.StatusCode, details: str | None) -> PersysError:
    """The error that a client raises for the status of a response."""
    text = details or code.name
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return RefusedError("not supported by this version of the peer")
    if code is grpc.StatusCode.UNKNOWN and says_not_found(text):
        return build_error(NotFoundError, text)
    reason = "token" if code is grpc.StatusCode.UNAUTHENTICATED else ""
    return build_error(_ERRORS.get(code, UnavailableError), text, reason=reason)
