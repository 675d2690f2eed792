"""GET /api/v1/audit: the audit log for admins, newest first, in pages."""

from collections.abc import Iterator

from aiohttp import web

from persys.core.numbers import whole_number
from persys.errors import InvalidError
from persys.gateway.audit import Audit
from persys.gateway.http.middleware import Ask, Door, Handler
from persys.gateway.http.permissions import needing
from persys.gateway.routes.clusters import told
from persys.model.identity import Permission
from persys.wire.rest.routes import API

LIMIT_MAX = 1000
LIMIT_USUAL = 100


def audit_routes(door: Door, audit: Audit) -> Iterator[web.RouteDef]:
    """Requires the permission to manage tokens."""
    yield web.get(
        f"{API}/audit", door.behind(needing(Permission.TOKENS, door.proofs, _listing(audit)))
    )


def _listing(audit: Audit) -> Handler:
    async def handle(ask: Ask) -> web.StreamResponse:
        limit = _number(ask, "limit", LIMIT_USUAL)
        if not 1 <= limit <= LIMIT_MAX:
            raise InvalidError("limit", f"expected 1 to {LIMIT_MAX}")
        lines = await audit.lines(limit=limit + 1, before=_number(ask, "cursor", 0))
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
        return told(ask, plain)

    return handle


def _number(ask: Ask, name: str, usual: int) -> int:
    text = ask.request.query.get(name, str(usual))
    number = whole_number(text)
    if number is None:
        raise InvalidError(name, f"{text[:40]!r}: expected a number")
    return number
