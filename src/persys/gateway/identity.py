"""Who asks: the certificate of the connection, or the bearer token of the request.

A certificate is judged here, and once more by the scheduler, to which its identity is passed on. A token is
judged by the scheduler alone: only it knows which there are. What would surprise: a WebSocket of a browser
can carry no header, so its token may come as the name of a protocol.
"""

from functools import lru_cache
from hashlib import sha256

import msgspec
from aiohttp import web
from cryptography import x509
from msgspec import Struct

from persys.core.permission import deeds_of
from persys.core.tokens import may_be_passed
from persys.errors import DeniedError
from persys.gateway.cluster import Metadata
from persys.gateway.problems import ProblemError
from persys.infra.clock import Clock
from persys.infra.door import PASSED_CERTIFICATE, PASSED_IDENTITY
from persys.infra.http_server import shown_certificate
from persys.infra.identity import Claims, claims_of, recognised
from persys.infra.tls import Tls
from persys.model.identity import Deed, Role
from persys.wire.methods import CONTROL_PERMISSIONS

SOCKET_PROTOCOL = "persys.exec.v1"
_BEARER = "bearer "
_SOCKET_BEARER = "bearer."
_KNOWN_MAX = 4096  # certificates whose claims are kept
_HINT = "show a certificate of this cluster's authority, or a token (Authorization: Bearer …)"


class Who(Struct, frozen=True):
    name: str  # for people: in logs and in the audit
    key: str  # what is counted and remembered of one is not of another
    passed: Metadata = ()  # as whom the scheduler is asked
    deeds: frozenset[Deed] | None = None  # None: the scheduler says what is allowed

    @property
    def is_unproven(self) -> bool:
        """Whether only a scheduler can tell that this identity exists: a token."""
        return bool(self.passed) and self.deeds is None

    def need(self, rpc: str) -> None:
        """Raises DeniedError."""
        if self.deeds is not None and CONTROL_PERMISSIONS[rpc] not in self.deeds:
            raise DeniedError(f"{self.name} may not call {rpc}", reason="role")


ANYONE = Who("anyone", "anyone")


class Identities:
    def __init__(self, tls: Tls | None, clock: Clock) -> None:
        """Without TLS (-insecure) nobody is asked."""
        self._tls = tls
        self._clock = clock

    def of(self, request: web.Request) -> Who:
        """Raises ProblemError for somebody who shows nothing, DeniedError for who shows the wrong thing."""
        token = _token(request)
        if self._tls is None:
            return _by_token(token) if token else ANYONE
        shown = shown_certificate(request)
        if shown is not None:
            who = self._by_certificate(shown, self._tls)
            return _narrowed(who, token) if token else who
        if token:
            return _by_token(token)
        raise ProblemError(401, _HINT, headers={"WWW-Authenticate": 'Bearer realm="persys"'})

    def _by_certificate(self, shown: bytes, tls: Tls) -> Who:
        claims = _claims(shown)
        if not claims.not_before <= self._clock.now() < claims.not_after:  # since the handshake
            raise DeniedError("the certificate is not valid any more", reason="expired")
        own = tls.certificates.current.claims.trust_domain
        claims = recognised(claims, own, tls.cn_roles, suggested=Role.OPERATOR)
        tls.check(claims)
        return _who(claims)


@lru_cache(_KNOWN_MAX)
def _who(claims: Claims) -> Who:
    """Schedulers trust a gateway for people only. They check the certificate again while a stream is open."""
    identity = claims.identity
    assert identity is not None
    if not may_be_passed(identity, Role.GATEWAY):
        raise DeniedError(
            f"{identity} is not a person: a gateway serves people only", reason="role"
        )
    name = str(identity)
    passed = ((PASSED_IDENTITY, name), (PASSED_CERTIFICATE, msgspec.json.encode(claims)))
    return Who(name, name, passed, deeds_of(identity.role))


@lru_cache(_KNOWN_MAX)
def _by_token(token: str) -> Who:
    mark = sha256(token.encode()).hexdigest()[:16]
    # psk_<id>_<secret>: the id may be told, the secret may not.
    parts = token.split("_")
    name = f"token {parts[1]}" if len(parts) == 3 else "token"
    return Who(name, f"token {mark}", (("authorization", f"Bearer {token}"),))


def _narrowed(who: Who, token: str) -> Who:
    shown = _by_token(token)
    return Who(f"{who.name}, {shown.name}", f"{who.key} {shown.key}", who.passed + shown.passed)


def _token(request: web.Request) -> str:
    said = request.headers.get("Authorization", "")
    if said[: len(_BEARER)].lower() == _BEARER:
        token = said[len(_BEARER) :].strip()
    else:
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        named = (part.strip() for part in offered.split(",")) if offered else ()
        token = next(
            (part[len(_SOCKET_BEARER) :] for part in named if part.startswith(_SOCKET_BEARER)), ""
        )
    if not token.isascii() or not token.isprintable():
        raise ProblemError(401, "the token holds what no token has")
    return token


@lru_cache(_KNOWN_MAX)
def _claims(der: bytes) -> Claims:
    return claims_of(x509.load_der_x509_certificate(der))
