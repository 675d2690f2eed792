"""Permission checks for routes that the gateway serves without a scheduler, such as GET /metrics.

/metrics is on the API port, so it requires a certificate or a token; Prometheus can send either.
"""

from collections.abc import Iterator

from aiohttp import web
from prometheus_client import generate_latest

from persys.errors import DeniedError
from persys.gateway.http.authentication import ANYONE, Proofs
from persys.gateway.http.middleware import Ask, Door, Handler
from persys.gateway.metrics import PAGE, Metrics
from persys.model.identity import Permission


def needing(deed: Permission, proofs: Proofs, handler: Handler) -> Handler:
    async def handle(ask: Ask) -> web.StreamResponse:
        await _check(ask, deed, proofs)
        return await handler(ask)

    return handle


async def _check(ask: Ask, deed: Permission, proofs: Proofs) -> None:
    """Raises DeniedError, AioRpcError."""
    who = ask.who
    if who is ANYONE:
        return  # -insecure
    deeds = who.deeds
    if deeds is None:
        deeds = await proofs.permissions_of(who, ask.cluster, ask.metadata)
    if deed not in deeds:
        raise DeniedError(f"{who.name} does not have the permission {deed}", reason="role")


def metrics_routes(door: Door, metrics: Metrics) -> Iterator[web.RouteDef]:
    async def page(ask: Ask) -> web.StreamResponse:
        return web.Response(body=generate_latest(metrics.registry), content_type=PAGE)

    yield web.get("/metrics", door.behind(needing(Permission.READ, door.proofs, page)))
