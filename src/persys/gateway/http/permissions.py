"""Permission checks for routes that the gateway serves without a scheduler, such as GET /metrics.

/metrics is on the API port, so it requires a certificate or a token; Prometheus can send either.
"""

from collections.abc import Iterator

from aiohttp import web
from prometheus_client import generate_latest

from persys.errors import DeniedError
from persys.gateway.http.authentication import UNAUTHENTICATED, TokenVerifier
from persys.gateway.http.middleware import Handler, RequestContext, RequestPipeline
from persys.gateway.metrics import PAGE, Metrics
from persys.model.identity import Permission


def require_permission(
    deed: Permission, token_verifier: TokenVerifier, handler: Handler
) -> Handler:
    async def handle(context: RequestContext) -> web.StreamResponse:
        await _check(context, deed, token_verifier)
        return await handler(context)

    return handle


async def _check(context: RequestContext, deed: Permission, token_verifier: TokenVerifier) -> None:
    """Raises DeniedError, AioRpcError."""
    who = context.caller
    if who is UNAUTHENTICATED:
        return  # -insecure
    deeds = who.deeds
    if deeds is None:
        deeds = await token_verifier.permissions_of(who, context.cluster, context.metadata)
    if deed not in deeds:
        raise DeniedError(f"{who.name} does not have the permission {deed}", reason="role")


def metrics_routes(pipeline: RequestPipeline, metrics: Metrics) -> Iterator[web.RouteDef]:
    async def page(context: RequestContext) -> web.StreamResponse:
        return web.Response(body=generate_latest(metrics.registry), content_type=PAGE)

    yield web.get(
        "/metrics",
        pipeline.serve(require_permission(Permission.READ, pipeline.token_verifier, page)),
    )
