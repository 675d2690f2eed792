"""The HTTP form of the scheduler's contract: the routes of the table of methods, by RPC.

With a body, the body is the request and the fields in the path override it; without one, the query holds the
request's other fields. An answer with success=false or accepted=false is a refusal and becomes an HTTP error.
Streams have forms of their own.
"""

from typing import NamedTuple

from persys.wire.methods import METHODS, Http
from persys.wire.methods import Form as Form

API = "/api/v1"


class Route(NamedTuple):  # imports faster than a dataclass: persysctl needs it at start-up
    rpc: str
    method: str
    path: str
    body: bool = False
    form: Form = Form.UNARY


def _route(rpc: str, http: Http) -> Route:
    return Route(rpc, *http)


ROUTES: tuple[Route, ...] = tuple(
    _route(method.name, http) for method in METHODS.values() for http in method.routes
)

# Older clients call these, beside /health and /clusters; each also under /clusters/{cluster}. Their answers
# are the contract's own messages, refusals included.
CONTRACT_ROUTES: tuple[Route, ...] = tuple(
    _route(method.name, http) for method in METHODS.values() for http in method.older_routes
)

# Called at the scheduler itself: by agents, and the last by gateways.
NOT_SERVED = frozenset(method.name for method in METHODS.values() if not method.routes)
