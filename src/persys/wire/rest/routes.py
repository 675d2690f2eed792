"""The HTTP routes of the control contract, derived from the table of methods.

With a body, the body is the request and path parameters override its fields. Without one, the query has the
other fields of the request. A response with success=false or accepted=false becomes an HTTP error.
Streams have their own forms.
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

# Existing clients call these, and /health and /clusters; each also under /clusters/{cluster}. Their responses
# are the messages of the contract, also for refusals.
CONTRACT_ROUTES: tuple[Route, ...] = tuple(
    _route(method.name, http) for method in METHODS.values() for http in method.older_routes
)

# RPCs that only agents and gateways call, at the scheduler itself.
NOT_SERVED = frozenset(method.name for method in METHODS.values() if not method.routes)
