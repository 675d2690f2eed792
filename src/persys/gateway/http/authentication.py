"""Authentication: the client certificate of the connection, or the bearer token of the request.

A certificate is checked here and again by the scheduler, to which the identity is forwarded. A token is
checked by the scheduler only, because only it knows the valid tokens. A browser cannot set headers on a
WebSocket, so there the token may be sent as the name of a subprotocol.
"""

from collections import OrderedDict
from functools import lru_cache
from hashlib import sha256

import msgspec
from aiohttp import web
from cryptography import x509
from msgspec import Struct

from persys.core.auth.permissions import permissions_of
from persys.core.auth.tokens import may_impersonate
from persys.errors import DeniedError
from persys.gateway.http.problems import ProblemError
from persys.gateway.upstream.cluster import Cluster, Metadata
from persys.infra.clock import Clock
from persys.infra.net.http_server import shown_certificate
from persys.infra.rpc.authorizer import FORWARDED_CERTIFICATE, FORWARDED_IDENTITY
from persys.infra.tls.identity import Claims, claims_of, recognised
from persys.infra.tls.tls import Tls
from persys.model.identity import Permission, Role
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.methods import CONTROL_PERMISSIONS

SOCKET_PROTOCOL = "persys.exec.v1"
_BEARER = "bearer "
_SOCKET_BEARER = "bearer."
_KNOWN_MAX = 4096  # cached certificates
_HINT = (
    "authentication required: use a client certificate of this cluster's CA, "
    "or a token (Authorization: Bearer …)"
)


class Caller(Struct, frozen=True):
    name: str  # for logs and the audit
    key: str  # for rate limits and caches
    passed: Metadata = ()  # the identity as gRPC metadata for the scheduler
    deeds: frozenset[Permission] | None = None  # None: the scheduler decides what is allowed

    @property
    def needs_verification(self) -> bool:
        """Whether only a scheduler can verify this identity: a token."""
        return bool(self.passed) and self.deeds is None

    def need(self, rpc: str) -> None:
        """Raises DeniedError."""
        if self.deeds is not None and CONTROL_PERMISSIONS[rpc] not in self.deeds:
            raise DeniedError(f"{self.name} may not call {rpc}", reason="role")


UNAUTHENTICATED = Caller("anyone", "anyone")


class Authenticator:
    def __init__(self, tls: Tls | None, clock: Clock) -> None:
        """Without TLS (-insecure), authentication is optional."""
        self._tls = tls
        self._clock = clock

    def of(self, request: web.Request) -> Caller:
        """The caller. Raises ProblemError (401) without credentials, DeniedError for a bad certificate."""
        token = _token(request)
        if self._tls is None:
            return _by_token(token) if token else UNAUTHENTICATED
        shown = shown_certificate(request)
        if shown is not None:
            who = self._by_certificate(shown, self._tls)
            return _narrowed(who, token) if token else who
        if token:
            return _by_token(token)
        raise ProblemError(401, _HINT, headers={"WWW-Authenticate": 'Bearer realm="persys"'})

    def _by_certificate(self, shown: bytes, tls: Tls) -> Caller:
        claims = _claims(shown)
        # It may have expired after the handshake.
        if not claims.not_before <= self._clock.now() < claims.not_after:
            raise DeniedError("the client certificate has expired", reason="expired")
        own = tls.certificates.current.claims.trust_domain
        claims = recognised(claims, own, tls.cn_roles, suggested=Role.OPERATOR)
        tls.check(claims)
        return _who(claims)


@lru_cache(_KNOWN_MAX)
def _who(claims: Claims) -> Caller:
    """Schedulers accept only user identities from a gateway. They recheck certificates of open streams."""
    identity = claims.identity
    assert identity is not None
    if not may_impersonate(identity, Role.GATEWAY):
        raise DeniedError(
            f"{identity} is not a user: the gateway accepts user identities only", reason="role"
        )
    name = str(identity)
    passed = ((FORWARDED_IDENTITY, name), (FORWARDED_CERTIFICATE, msgspec.json.encode(claims)))
    return Caller(name, name, passed, permissions_of(identity.role))


@lru_cache(_KNOWN_MAX)
def _by_token(token: str) -> Caller:
    mark = sha256(token.encode()).hexdigest()[:16]
    # psk_<id>_<secret>: the id may be logged, the secret may not.
    parts = token.split("_")
    name = f"token {parts[1]}" if len(parts) == 3 else "token"
    return Caller(name, f"token {mark}", (("authorization", f"Bearer {token}"),))


def _narrowed(who: Caller, token: str) -> Caller:
    shown = _by_token(token)
    return Caller(f"{who.name}, {shown.name}", f"{who.key} {shown.key}", who.passed + shown.passed)


def _token(request: web.Request) -> str:
    header = request.headers.get("Authorization", "")
    if header[: len(_BEARER)].lower() == _BEARER:
        token = header[len(_BEARER) :].strip()
    else:
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        named = (part.strip() for part in offered.split(",")) if offered else ()
        token = next(
            (part[len(_SOCKET_BEARER) :] for part in named if part.startswith(_SOCKET_BEARER)), ""
        )
    if not token.isascii() or not token.isprintable():
        raise ProblemError(401, "invalid token: expected printable ASCII characters")
    return token


@lru_cache(_KNOWN_MAX)
def _claims(der: bytes) -> Claims:
    return claims_of(x509.load_der_x509_certificate(der))


KEEP_SECONDS = 10.0
KEPT_MAX = 4096


class _Proof(Struct, frozen=True):
    until: float
    deeds: frozenset[Permission]


class TokenVerifier:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], _Proof] = OrderedDict()

    async def permissions_of(
        self, who: Caller, cluster: Cluster, metadata: Metadata
    ) -> frozenset[Permission]:
        """The permissions of a token for the gateway itself.

        Raises AioRpcError: UNAUTHENTICATED for an invalid token.
        """
        key = (who.key, cluster.id)
        now = self._clock.monotonic()
        kept = self._kept.get(key)
        if kept is not None and now < kept.until:
            return kept.deeds
        answered = await cluster.call(
            "GetIdentity", pb.GetIdentityRequest(), key="", metadata=metadata, idempotent=True
        )
        view: pb.IdentityView = answered.answer
        # A scheduler that runs with -insecure returns no role and allows everything.
        words = view.deeds if view.role else list(Permission)
        deeds = frozenset(Permission(word) for word in words if word in list(Permission))
        if view.prefix:
            # The gateway's own pages are about all workloads. The scheduler limits everything else.
            deeds &= {Permission.ANYONE}
        self._kept[key] = _Proof(now + KEEP_SECONDS, deeds)
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return deeds
