"""Authenticates and authorizes the caller of every RPC of a service.

The TLS connection proves that the caller has a certificate of our authority. This module determines its
identity and the permissions of its role. A token in the call metadata replaces the identity of the
certificate. A scheduler that forwards a call passes the identity, certificate and address of the original
caller and is trusted; a gateway is trusted for users only. A third-party gateway passes no identity: it acts
with a configured role. Our own gateway always passes one, for its own calls its own identity, so that a
defect in it never gets the permissions of that role. Open streams are checked again, see `recheck`.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

import grpc
import msgspec
import structlog
from msgspec.structs import replace

from persys.core.auth.denials import Denial
from persys.core.auth.permissions import has_permission, permissions_of
from persys.core.auth.tokens import IsRevoked, holder, may_impersonate
from persys.errors import DeniedError, UnavailableError
from persys.infra.clock import Clock
from persys.infra.rpc import bearer
from persys.infra.tls.certificates import Certificates
from persys.infra.tls.identity import Claims, by_common_name, read_claims, recognised
from persys.model.identity import Caller, Identity, Permission, Role

log = structlog.get_logger()

FORWARDED_IDENTITY = "persys-identity"
FORWARDED_CERTIFICATE = "persys-certificate-bin"  # the claims of the original caller's certificate
FORWARDED_SOURCE = "persys-source"  # network address of the original caller
FORWARDED_VIA = "persys-via"  # the gateway, in a call that a standby forwards
_METADATA_LENGTH_MAX = 256
UNNAMED = "unnamed"  # the user behind a gateway that passes no identity
_CERTIFICATE = "x509_pem_cert"
# The role that calls methods with these permissions; users call all others.
_SUGGESTED = {Permission.REPORT: Role.AGENT, Permission.ORDER: Role.SCHEDULER}
_KNOWN_MAX = 4096  # certificates whose claims are cached

Context = grpc.aio.ServicerContext[Any, Any]
# Restricts a request to what this caller may access: returns it, possibly wrapped, or raises DeniedError.
Narrow = Callable[[Caller, str, Any], Any]
# Raises DeniedError for a revoked certificate.
Check = Callable[[Claims], None]

# The caller of the request that is being served; None with -insecure.
CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)
# The claims of that caller's certificate, as presented to us or to the scheduler or gateway in between.
CLIENT_CLAIMS: ContextVar[Claims | None] = ContextVar("client_claims", default=None)


class AuthorizedCall(NamedTuple):
    """An authorized call: the restricted request, and the credentials that must stay valid."""

    request: Any
    claims: tuple[Claims, ...] = ()
    token_id: str = ""


class Authorizer:
    def __init__(
        self,
        table: Mapping[str, Permission],
        certificates: Certificates,
        clock: Clock,
        *,
        denied: Callable[[Denial], None],
        narrow: Narrow,
        refused_roles: frozenset[Role],
        check: Check,
        tokens: bearer.FindToken | None,
        is_revoked: IsRevoked,
        gateway_role: Role,
        cn_roles: Mapping[str, Role],
    ) -> None:
        """`denied` is called with each refusal. With `tokens` None, tokens are ignored.

        A gateway that passes no identity acts with `gateway_role`. `cn_roles` assigns roles to third-party
        certificates by their common name.
        """
        self._cn_roles = cn_roles
        self._gateway_role = gateway_role
        self._table = table
        self._certificates = certificates
        self._clock = clock
        self._denied = denied
        self._refused_roles = refused_roles
        self._check = check
        self._tokens = tokens
        self._is_revoked = is_revoked
        self._narrow = narrow

    def authorize(self, method: str, context: Context, request: Any) -> AuthorizedCall:
        """Raises DeniedError, or UnavailableError if tokens are not loaded yet."""
        CALLER.set(None)
        CLIENT_CLAIMS.set(None)
        try:
            permission = self._table.get(method)
            caller, claims = self._caller(context, permission)
            CALLER.set(caller)
            if (
                permission is None
                or not has_permission(caller, permission)
                or self._is_refused_role(caller, permission)
            ):
                text = f"{caller.identity} may not call {method}{self._role_hint(caller)}"
                raise DeniedError(text, reason="role")
            return AuthorizedCall(self._narrow(caller, method, request), claims, caller.token_id)
        except DeniedError as err:
            self.report_denial(err, method, context)
            raise

    def recheck(self, authorized: AuthorizedCall, method: str, context: Context) -> None:
        """Check an open stream. Raises DeniedError once its certificate or token is expired or revoked."""
        now = self._clock.now()
        try:
            for claims in authorized.claims:
                if _expires(claims) and now >= claims.not_after:
                    raise DeniedError("the certificate has expired", reason="expired")
                self._check(claims)
            if authorized.token_id and self._tokens is not None:
                with suppress(UnavailableError):  # tokens are not loaded; it was valid before
                    bearer.check_still_valid(
                        self._tokens, authorized.token_id, now, is_revoked=self._is_revoked
                    )
        except DeniedError as err:
            self.report_denial(err, method, context)
            raise

    def report_denial(self, err: DeniedError, method: str, context: Context) -> None:
        """Log and report a refusal, with the caller if it is known."""
        caller, claims = CALLER.get(), CLIENT_CLAIMS.get()
        who = claims.identity if claims is not None else None
        if caller is not None:
            who = caller.identity
        role = who.role if who is not None else ""
        peer = context.peer()
        log.warning("access.denied", who=str(who or ""), method=method, peer=peer, reason=str(err))
        self._denied(Denial(str(who or ""), role, method, peer, err.reason, str(err)))

    def _role_hint(self, caller: Caller) -> str:
        if not caller.via or caller.identity.name != UNNAMED:
            return ""
        role = caller.identity.role
        return f": {caller.via} passes no identity and acts with PERSYS_GATEWAY_ROLE={role}"

    def _is_refused_role(self, caller: Caller, permission: Permission) -> bool:
        return caller.identity.role in self._refused_roles and permission is not Permission.ANYONE

    def _caller(
        self, context: Context, permission: Permission | None
    ) -> tuple[Caller, tuple[Claims, ...]]:
        claims = self._peer_claims(context, permission)
        assert claims.identity is not None
        peer = claims.identity
        identity, own = peer, claims
        via = peer if peer.role is Role.GATEWAY else None
        source = peer_address(context.peer())
        if (passed := _forwarded_identity(context, peer)) is not None:
            identity = passed
            own = self._forwarded_claims(context, peer.role, passed) or claims
            CLIENT_CLAIMS.set(own)
        elif peer.role is Role.GATEWAY:
            identity = self._gateway_identity(peer)
        if peer.role in (Role.SCHEDULER, Role.GATEWAY):
            source = _metadata_text(context, FORWARDED_SOURCE) or source
        if peer.role is Role.SCHEDULER:
            via = by_common_name(_metadata_text(context, FORWARDED_VIA))
        shown = (claims,) if own is claims else (claims, own)
        values = _metadata_values(context, bearer.AUTHORIZATION)
        if values and self._tokens is not None:
            caller = self._by_token(values, identity, own.serial)
        else:
            caller = Caller(
                identity,
                permissions_of(identity.role),
                own.not_after,
                own.serial,
                shared=own.shared,
            )
        through = str(via) if via is not None and via != caller.identity else ""
        return replace(caller, via=through, source=source), shown

    def _gateway_identity(self, gateway: Identity) -> Identity:
        """The identity of calls of a gateway that passes none."""
        role = self._gateway_role
        return gateway if role is Role.GATEWAY else Identity(role, UNNAMED)

    def _peer_claims(self, context: Context, permission: Permission | None) -> Claims:
        """The claims of the certificate of this connection. Raises DeniedError."""
        shown = next(iter(context.auth_context().get(_CERTIFICATE, ())), None)
        if shown is None:
            raise DeniedError("no client certificate", reason="certificate")
        claims = recognised(
            _claims(shown),
            self._certificates.current.claims.trust_domain,
            self._cn_roles,
            suggested=_SUGGESTED.get(permission, Role.OPERATOR)
            if permission is not None
            else Role.OPERATOR,
        )
        CLIENT_CLAIMS.set(claims)
        if not claims.not_before <= self._clock.now() < claims.not_after:
            text = "the certificate is expired or not yet valid"
            raise DeniedError(text, reason="expired")
        self._check(claims)
        return claims

    def _by_token(self, values: list[str], identity: Identity, serial: str) -> Caller:
        assert self._tokens is not None
        if identity.role is Role.AGENT:
            text = f"{identity} is a node: tokens are for users only"
            raise DeniedError(text, reason=bearer.REASON)
        token = bearer.authenticate(
            self._tokens, values, self._clock.now(), is_revoked=self._is_revoked
        )
        return holder(token, serial)

    def _forwarded_claims(self, context: Context, by: Role, identity: Identity) -> Claims | None:
        """The claims of the original caller's certificate, passed by a scheduler or gateway."""
        value = _metadata_value(context, FORWARDED_CERTIFICATE)
        if not value:
            return None
        try:
            claims = msgspec.json.decode(value, type=Claims)
        except msgspec.DecodeError as err:
            text = f"{FORWARDED_CERTIFICATE} cannot be read"
            raise DeniedError(text, reason="certificate") from err
        if by is Role.GATEWAY and claims.identity != identity:
            text = f"{FORWARDED_CERTIFICATE} is not a certificate of {identity}"
            raise DeniedError(text, reason="certificate")
        self._check(claims)
        return claims


def peer_address(peer: str) -> str:
    """The host:port of a gRPC peer such as "ipv4:10.0.0.5:4711" or "ipv6:%5B::1%5D:4711"."""
    kind, separator, address = peer.partition(":")
    return unquote(address) if separator and kind in ("ipv4", "ipv6", "unix") else peer


def _expires(claims: Claims) -> bool:
    """Gateways and schedulers renew their certificates while they forward streams of other callers."""
    identity = claims.identity
    return identity is None or identity.role not in (Role.GATEWAY, Role.SCHEDULER)


def _forwarded_identity(context: Context, peer: Identity) -> Identity | None:
    """The original caller, if this peer may pass one; from other peers it is ignored."""
    value, by = str(_metadata_value(context, FORWARDED_IDENTITY)), peer.role
    if not value or by not in (Role.SCHEDULER, Role.GATEWAY):
        return None
    passed = by_common_name(value)
    if by is Role.GATEWAY and passed in (peer, Identity(by, UNNAMED)):
        return peer  # a call of the gateway itself
    if passed is None or not may_impersonate(passed, by):
        text = f"{FORWARDED_IDENTITY} {value[:80]!r}: a {by} may not act for that identity"
        raise DeniedError(text, reason="identity")
    return passed


def _metadata_values(context: Context, name: str) -> list[str]:
    return [str(value) for key, value in context.invocation_metadata() or () if key == name]


def _metadata_value(context: Context, name: str) -> str | bytes:
    return next((value for key, value in context.invocation_metadata() or () if key == name), "")


def _metadata_text(context: Context, name: str) -> str:
    return str(_metadata_value(context, name))[:_METADATA_LENGTH_MAX]


@lru_cache(_KNOWN_MAX)
def _claims(pem: bytes) -> Claims:
    return read_claims(pem)
