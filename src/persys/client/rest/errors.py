"""Converts problem details (RFC 9457) to PersysErrors: by status and `code`, not by text."""

import json
from collections.abc import Mapping
from typing import Any

from persys.errors import InvalidError, PersysError, RefusedError
from persys.wire.rest.status import NOT_IMPLEMENTED, build_error, error_class

# Status of a path that an older gateway does not have.
UNKNOWN_ROUTE_STATUSES = frozenset({404, 405})


def parse_problem(content: bytes) -> dict[str, Any]:
    """The problem, or {} for other content, such as the error page of a proxy."""
    try:
        plain = json.loads(content)
    except ValueError:
        return {}
    return plain if isinstance(plain, dict) and ("detail" in plain or "error" in plain) else {}


def error_from_problem(
    status: int, problem: Mapping[str, Any], retry_after: str | None = None
) -> PersysError:
    text = str(problem.get("detail") or problem.get("error") or f"HTTP status {status}")
    if retry_after:
        text += f"; try again in {retry_after} s"
    if "field" in problem:
        field = str(problem["field"])
        return InvalidError(field, text.removeprefix(f"{field}: "))
    if "code" in problem and (error := _by_code(str(problem["code"]), text)) is not None:
        return error
    if status in UNKNOWN_ROUTE_STATUSES and not problem:
        return RefusedError("not supported by this gateway version")
    if status == NOT_IMPLEMENTED:
        return RefusedError("not supported by this version of the peer")
    return build_error(error_class(status), text, reason=str(problem.get("reason", "")))


def _by_code(code: str, text: str) -> PersysError | None:
    import grpc  # imported on failure only: start-up time

    from persys.wire.errors import error_from

    known = grpc.StatusCode.__members__.get(code)
    return None if known is None else error_from(known, text)
