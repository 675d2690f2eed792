"""Unknown paths (404) and methods (405) under /api/v1, as problems."""

from collections.abc import Iterator

from aiohttp import web

from persys.gateway.door import Ask, Door
from persys.gateway.problems import ProblemError
from persys.wire.rest.routes import API


def elsewhere_routes(door: Door) -> Iterator[web.RouteDef]:
    """Must be registered last: it matches every path."""
    yield web.route("*", f"{API}/{{nowhere:.*}}", door.behind(_refuse, open_to_all=True))


async def _refuse(ask: Ask) -> web.StreamResponse:
    request = ask.request
    allowed: set[str] = set()
    for resource in request.app.router.resources():
        if resource is not request.match_info.route.resource:
            allowed |= (await resource.resolve(request))[1]
    if allowed:
        methods = ", ".join(sorted(allowed))
        detail = f"method {request.method} not allowed for {request.path}: expected {methods}"
        raise ProblemError(405, detail, headers={"Allow": methods})
    raise ProblemError(404, f"path {request.path} not found")
