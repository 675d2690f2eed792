"""Errors as HTTP responses: a status, and RFC 9457 problem details as the body.

A refusal of the scheduler keeps all details: `code` is the gRPC status code, `answer` the response message.
A REST client gets the same information as a gRPC client of the scheduler.
"""

from http import HTTPStatus
from typing import Any

import grpc
import msgspec
from aiohttp import web
from google.protobuf.message import Message

from persys.errors import InvalidError, PersysError
from persys.wire.agent.legacy_agents import says_not_found
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.json_codec import to_plain
from persys.wire.rest.status import BAD_GATEWAY, CODE_STATUSES, status_of

PROBLEM = "application/problem+json"
_FROZEN = ("degraded", "recovery")


class ProblemError(PersysError):
    """An error response. `more` are additional members of the problem, `headers` are response headers."""

    def __init__(
        self, status: int, detail: str, *, headers: dict[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail.encode(errors="replace").decode()  # a header may hold any bytes
        self.headers = headers or {}
        self.more = more

    def plain(self, request_id: str) -> dict[str, Any]:
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "request_id": request_id,
            **self.more,
        }

    def response(self, request_id: str, *, contract: bool) -> web.Response:
        plain = self.plain(request_id)
        if contract:
            plain["error"] = self.detail  # the field that older clients read
        body = msgspec.json.encode(plain)
        return web.Response(
            status=self.status, body=body, content_type=PROBLEM, headers=self.headers
        )


def problem_from(err: PersysError) -> ProblemError:
    if isinstance(err, ProblemError):
        return err
    status = status_of(err)
    if isinstance(err, InvalidError):
        return ProblemError(status, str(err), field=err.field)
    return ProblemError(status, str(err))


def problem_from_rpc(err: grpc.aio.AioRpcError) -> ProblemError:
    code, detail = err.code(), err.details() or err.code().name
    status = CODE_STATUSES.get(code.name, BAD_GATEWAY)
    if code is grpc.StatusCode.UNKNOWN and says_not_found(detail):
        status = 404
    return ProblemError(status, detail, code=code.name)


def refusal_in(answer: Message, *, mode: str) -> ProblemError | None:
    """The problem for a response with success=false or accepted=false; `mode` is that of the scheduler."""
    name = next((name for name in ("success", "accepted") if hasattr(answer, name)), None)
    if name is None or getattr(answer, name):
        return None
    text = getattr(answer, "error_message", "") or getattr(answer, "reason", "")
    more: dict[str, Any] = {"answer": to_plain(answer)}
    if isinstance(answer, pb.ApplyWorkloadResponse):
        status = 422 if answer.failure_reason else 409
        if answer.failure_reason:
            more["reason"] = pb.FailureReason.Name(answer.failure_reason)
    else:
        status = 404 if says_not_found(text) else 409
    if mode in _FROZEN:
        status = 503
        more["mode"] = mode
    return ProblemError(status, text or "refused by the scheduler without a reason", **more)
