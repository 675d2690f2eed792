"""The door of every route: who asks and how often, under which id, in which cluster; and what came of it.

Whatever is refused behind it reaches a client as a problem, with the id under which the log has it.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from secrets import token_hex

import grpc
import structlog
from aiohttp import web
from msgspec import Struct

from persys.errors import PersysError
from persys.gateway.audit import Audit, Deed
from persys.gateway.cluster import Cluster, Metadata
from persys.gateway.identity import ANYONE, Identities, Who
from persys.gateway.limits import (
    STRANGERS_BURST,
    STRANGERS_PER_SECOND,
    STREAMS_MAX,
    Places,
    Rates,
)
from persys.gateway.problems import ProblemError, problem_from, problem_from_rpc
from persys.gateway.routing import Strategy
from persys.infra.clock import Clock

log = structlog.get_logger()

REQUEST_ID = "X-Request-ID"
CLUSTER = "X-Persys-Cluster-ID"
_REQUEST_ID_METADATA = "x-request-id"
_ID_LENGTH_MAX = 128
_TRACE = "traceparent"
_TRACE_FORM = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_ORIGIN = frozenset({"", "same-origin", "none"})
_SERVER_ERROR = 500
_UNKNOWN = 401
_NOT_LET_IN = frozenset({_UNKNOWN, 429})
# Ids that nobody else gives: of this process, and counted.
_OWN_IDS = token_hex(8)
_counted = count(1)


class Ask(Struct, frozen=True, eq=False):
    """One request after the door."""

    request: web.Request
    who: Who
    id: str
    clusters: Mapping[str, Cluster]
    default_cluster: str

    @property
    def cluster_id(self) -> str:
        """Path, else header, else query, else the default. There may be no such cluster."""
        request = self.request
        named = request.match_info.get("cluster") or request.headers.get(CLUSTER)
        if not named and request.query_string:
            named = request.query.get("cluster_id")
        return named.encode(errors="replace").decode() if named else self.default_cluster

    @property
    def cluster(self) -> Cluster:
        """Raises ProblemError for one that is not there."""
        cluster = self.clusters.get(self.cluster_id)
        if cluster is None:
            raise ProblemError(404, f"there is no cluster {self.cluster_id}")
        return cluster

    @property
    def metadata(self) -> Metadata:
        """With the trace that it is part of, if there is one."""
        beside = (*self.who.passed, (_REQUEST_ID_METADATA, self.id))
        trace = self.request.headers.get(_TRACE)
        if trace is not None and _TRACE_FORM.fullmatch(trace):
            return (*beside, (_TRACE, trace))
        return beside

    def routing_key(self, cluster: Cluster, workload_id: str = "") -> str:
        """What decides, by the cluster's strategy, which scheduler is asked."""
        headers = self.request.headers
        match cluster.entry.routing_strategy:
            case Strategy.STICKY:
                session = headers.get("X-Persys-Session") or self.request.cookies.get(
                    "persys_session"
                )
                return session or self.who.key
            case Strategy.SHARD:
                return headers.get("X-Persys-Workload-Key") or workload_id
            case Strategy.LEADER_ONLY:
                return ""


Handler = Callable[[Ask], Awaitable[web.StreamResponse]]
Served = Callable[[web.Request], Awaitable[web.StreamResponse]]
Count = Callable[[str, int, float], None]


class Door:
    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        default_cluster: str,
        *,
        identities: Identities,
        rates: Rates,
        audit: Audit,
        clock: Clock,
        served: Count,
    ) -> None:
        """`served` is told the method, the status and the seconds of each request."""
        self._clusters = clusters
        self._default_cluster = default_cluster
        self._identities = identities
        self._rates = rates
        self._strangers = Rates(clock, per_second=STRANGERS_PER_SECOND, burst=STRANGERS_BURST)
        self.streams = Places(STREAMS_MAX)
        self._audit = audit
        self._clock = clock
        self._served = served

    def behind(
        self,
        handler: Handler,
        *,
        open_to_all: bool = False,
        contract: bool = False,
        changes: str = "",
    ) -> Served:
        """`open_to_all`: nobody is asked who they are. `contract`: a route of older clients.

        `changes` is the name of the call, if it changes something: then the audit has it.
        """

        async def serve(request: web.Request) -> web.StreamResponse:
            began = self._clock.monotonic()
            request_id = _request_id(request)
            who = ANYONE
            try:
                if not open_to_all:
                    _refuse_other_sites(request)
                    who = self._identities.of(request)
                    self._rates.take(who.key)
                    if who.passed and who.deeds is None:  # a token, of which nothing is known yet
                        self._strangers.check(request.remote or "")
                ask = Ask(request, who, request_id, self._clusters, self._default_cluster)
                response = await handler(ask)
            except PersysError as err:
                response = problem_from(err).response(request_id, contract=contract)
            except grpc.aio.AioRpcError as err:
                response = problem_from_rpc(err).response(request_id, contract=contract)
            except web.HTTPRequestEntityTooLarge as err:
                response = ProblemError(413, err.text or "").response(request_id, contract=contract)
            if not response.prepared:
                response.headers[REQUEST_ID] = request_id
            if response.status == _UNKNOWN and who.passed:
                self._count_stranger(request)
            if changes and response.status not in _NOT_LET_IN:
                ask = Ask(request, who, request_id, self._clusters, self._default_cluster)
                await self.note(ask, changes, response.status)
            seconds = self._clock.monotonic() - began
            self._served(request.method, response.status, seconds)
            if request.method not in _SAFE or response.status >= _SERVER_ERROR:
                _tell(request, response, who, request_id, seconds)
            return response

        return serve

    def _count_stranger(self, request: web.Request) -> None:
        with suppress(ProblemError):  # the next one is told
            self._strangers.take(request.remote or "")

    async def note(self, ask: Ask, deed: str, status: int) -> None:
        """In the audit."""
        path = ask.request.match_info
        target = "/".join(value for name, value in path.items() if name != "cluster")
        where = ask.request.remote or ""
        noted = Deed(
            self._clock.now(), ask.who.name, where, deed, ask.cluster_id, target, status, ask.id
        )
        await self._audit.note(noted)


def _tell(
    request: web.Request, response: web.StreamResponse, who: Who, request_id: str, seconds: float
) -> None:
    """Of reads only what went wrong here: there are many of them."""
    say = log.warning if response.status >= _SERVER_ERROR else log.info
    say(
        "request.served",
        method=request.method,
        path=request.path,
        status=response.status,
        who=who.name,
        request_id=request_id,
        seconds=round(seconds, 4),
    )


def _request_id(request: web.Request) -> str:
    told = request.headers.get(REQUEST_ID, "")
    if told and len(told) <= _ID_LENGTH_MAX and told.isascii() and told.isprintable():
        return told
    return f"{_OWN_IDS}{next(_counted):016x}"


def _refuse_other_sites(request: web.Request) -> None:
    """A browser shows its certificate for whatever page asks it to: only our own pages may change things."""
    upgrade = "Upgrade" in request.headers
    if request.method in _SAFE and not upgrade:
        return
    origin = request.headers.get("Origin", "")
    site = request.headers.get("Sec-Fetch-Site", "")
    if (origin and origin.partition("://")[2] != request.host) or site not in _OWN_ORIGIN:
        raise ProblemError(403, "asked by a page of another site")
