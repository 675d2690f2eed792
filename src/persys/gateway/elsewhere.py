"""Paths under /api/v1 that are none, and methods that a path does not have: problems like all others."""

from collections.abc import Iterator

from aiohttp import web

from persys.gateway.door import Ask, Door
from persys.gateway.problems import ProblemError
from persys.wire.rest import API


def elsewhere_routes(door: Door) -> Iterator[web.RouteDef]:
    """Must be the last: it takes whatever nobody took before."""
    yield web.route("*", f"{API}/{{nowhere:.*}}", door.behind(_refuse, open_to_all=True))


async def _refuse(ask: Ask) -> web.StreamResponse:
    request = ask.request
    allowed: set[str] = set()
    for resource in request.app.router.resources():
        if resource is not request.match_info.route.resource:
            allowed |= (await resource.resolve(request))[1]
    if allowed:
        methods = ", ".join(sorted(allowed))
        raise ProblemError(405, f"only {methods} can be done here", headers={"Allow": methods})
    raise ProblemError(404, f"there is nothing at {request.path}")
