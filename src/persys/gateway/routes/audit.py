"""GET /api/v1/audit: the audit log for admins, newest first, in pages."""

from collections.abc import Iterator

from aiohttp import web

from persys.core.numbers import whole_number
from persys.errors import InvalidError
from persys.gateway.audit import AuditLog
from persys.gateway.http.middleware import Handler, RequestContext, RequestPipeline
from persys.gateway.http.permissions import require_permission
from persys.gateway.routes.clusters import json_response
from persys.model.identity import Permission
from persys.wire.rest.routes import API

LIMIT_MAX = 1000
LIMIT_USUAL = 100


def audit_routes(pipeline: RequestPipeline, audit: AuditLog) -> Iterator[web.RouteDef]:
    """Requires the permission to manage tokens."""
    yield web.get(
        f"{API}/audit",
        pipeline.serve(
            require_permission(Permission.TOKENS, pipeline.token_verifier, _listing(audit))
        ),
    )


def _listing(audit: AuditLog) -> Handler:
    async def handle(context: RequestContext) -> web.StreamResponse:
        limit = _number(context, "limit", LIMIT_USUAL)
        if not 1 <= limit <= LIMIT_MAX:
            raise InvalidError("limit", f"expected 1 to {LIMIT_MAX}")
        lines = await audit.lines(limit=limit + 1, before=_number(context, "cursor", 0))
        shown, more = lines[:limit], len(lines) > limit
        plain = {
            "deeds": [
                {
                    "number": str(line.number),
                    "at": line.deed.at,
                    "who": line.deed.who,
                    "address": line.deed.address,
                    "deed": line.deed.deed,
                    "cluster": line.deed.cluster,
                    "target": line.deed.target,
                    "status": line.deed.status,
                    "request_id": line.deed.request_id,
                }
                for line in shown
            ],
            "next_cursor": str(shown[-1].number) if more else "",
        }
        return json_response(context, plain)

    return handle


def _number(context: RequestContext, name: str, usual: int) -> int:
    text = context.request.query.get(name, str(usual))
    number = whole_number(text)
    if number is None:
        raise InvalidError(name, f"{text[:40]!r}: expected a number")
    return number
