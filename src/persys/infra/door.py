"""Who comes in, and whether that one may do what it asks for: asked before every call of a service.

The connection has shown that somebody holds a certificate of our authority; here is settled who that is and
what the role allows; a token of a person that is shown beside it counts in its place. What would surprise: a
scheduler that passes a call on says in whose name and with which certificate, and is believed; a gateway is,
for people; nobody else is. A certificate or a token that is taken back ends its streams too, at their next
message.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import grpc
import msgspec
import structlog

from persys.core.denials import Denial
from persys.core.permission import deeds_of, may
from persys.core.tokens import holder, may_be_passed
from persys.errors import DeniedError, UnavailableError
from persys.infra import bearer
from persys.infra.certificates import Certificates
from persys.infra.clock import Clock
from persys.infra.identity import Claims, by_common_name, read_claims
from persys.model.identity import Caller, Deed, Identity, Role

log = structlog.get_logger()

PASSED_IDENTITY = "persys-identity"
PASSED_CERTIFICATE = "persys-certificate-bin"  # what it says, for those who did not see it
_CERTIFICATE = "x509_pem_cert"
_KNOWN_MAX = 4096  # certificates whose claims are kept

Context = grpc.aio.ServicerContext[Any, Any]
# What of a request is taken from this caller: the request, perhaps watched; raises DeniedError.
Narrow = Callable[[Caller, str, Any], Any]
# Whether what a certificate says still holds: raises DeniedError for one that was taken back.
Check = Callable[[Claims], None]

# Who asks for what is being answered; None where nobody is asked (-insecure).
CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)
# What the certificate says with which that one came, to us or to whoever passes the call on.
SHOWN: ContextVar[Claims | None] = ContextVar("shown", default=None)


class Door:
    def __init__(
        self,
        table: Mapping[str, Deed],
        certificates: Certificates,
        clock: Clock,
        *,
        denied: Callable[[Denial], None],
        narrow: Narrow = lambda caller, method, request: request,
        closed_to: frozenset[Role] = frozenset(),
        check: Check = lambda claims: None,
        tokens: bearer.FindToken | None = None,
    ) -> None:
        """`denied` is told of each refusal. Where `tokens` is None, nobody's token counts."""
        self._table = table
        self._certificates = certificates
        self._clock = clock
        self._denied = denied
        self._closed_to = closed_to
        self._check = check
        self._tokens = tokens
        self._narrow = narrow

    def admit(self, method: str, context: Context, request: Any) -> Any:
        """What is taken of the request. Raises DeniedError, or UnavailableError when nobody can tell."""
        CALLER.set(None)
        SHOWN.set(None)
        try:
            caller = self._caller(context)
            CALLER.set(caller)
            deed = self._table.get(method)
            if deed is None or not may(caller, deed) or self._is_closed_to(caller, deed):
                text = f"{caller.identity} may not call {method}"
                raise DeniedError(text, reason="role")
            return self._narrow(caller, method, request)
        except DeniedError as err:
            self.tell(err, method, context)
            raise

    def tell(self, err: DeniedError, method: str, context: Context) -> None:
        """Whoever was refused, as far as that is known."""
        caller, claims = CALLER.get(), SHOWN.get()
        who = claims.identity if claims is not None else None
        if caller is not None:
            who = caller.identity
        role = who.role if who is not None else ""
        peer = context.peer()
        log.warning("access.denied", who=str(who or ""), method=method, peer=peer, reason=str(err))
        self._denied(Denial(str(who or ""), role, method, peer, err.reason, str(err)))

    def _is_closed_to(self, caller: Caller, deed: Deed) -> bool:
        return caller.identity.role in self._closed_to and deed is not Deed.ANYONE

    def _caller(self, context: Context) -> Caller:
        shown = next(iter(context.auth_context().get(_CERTIFICATE, ())), None)
        if shown is None:
            raise DeniedError("no certificate was shown", reason="certificate")
        claims = _claims(shown)
        own = self._certificates.current.claims.trust_domain
        if claims.identity is None or (claims.trust_domain and claims.trust_domain != own):
            raise DeniedError("the certificate is of nobody who is known here", reason="identity")
        SHOWN.set(claims)
        if not claims.not_before <= self._clock.now() < claims.not_after:
            text = "the certificate is not valid yet, or not any more"
            raise DeniedError(text, reason="expired")
        self._check(claims)
        identity = claims.identity
        if (passed := _passed(context, identity.role)) is not None:
            if identity.role is Role.SCHEDULER:
                claims = self._passed_claims(context) or claims
                SHOWN.set(claims)
            identity = passed
        said = _all_beside(context, bearer.AUTHORIZATION)
        if said and self._tokens is not None:
            return self._by_token(said, identity, claims.serial)
        return Caller(identity, deeds_of(identity.role), claims.not_after, claims.serial)

    def _by_token(self, said: list[str], identity: Identity, serial: str) -> Caller:
        assert self._tokens is not None
        if identity.role is Role.AGENT:
            text = f"{identity} is a node: it shows no token of a person"
            raise DeniedError(text, reason=bearer.REASON)
        return holder(bearer.judged(self._tokens, said, self._clock.now()), serial)

    def _passed_claims(self, context: Context) -> Claims | None:
        """What somebody has shown to the scheduler that passes this on."""
        told = _beside(context, PASSED_CERTIFICATE)
        if not told:
            return None
        try:
            claims = msgspec.json.decode(told, type=Claims)
        except msgspec.DecodeError as err:
            text = f"{PASSED_CERTIFICATE} cannot be read"
            raise DeniedError(text, reason="certificate") from err
        self._check(claims)
        return claims

    def look_again(
        self, claims: Claims | None, token_id: str, method: str, context: Context
    ) -> None:
        """At a message on a stream that stands. Raises DeniedError for what was taken back since."""
        if claims is None:
            return
        try:
            self._check(claims)
            if token_id and self._tokens is not None:
                with suppress(UnavailableError):  # it was good, and nobody knows better
                    bearer.check_still(self._tokens, token_id, self._clock.now())
        except DeniedError as err:
            self.tell(err, method, context)
            raise


def _passed(context: Context, by: Role) -> Identity | None:
    """In whose name this is asked, if one of this role may say so; what others say is not heard."""
    told = str(_beside(context, PASSED_IDENTITY))
    if not told or by not in (Role.SCHEDULER, Role.GATEWAY):
        return None
    passed = by_common_name(told)
    if passed is None or not may_be_passed(passed, by):
        text = f"{PASSED_IDENTITY} names nobody for whom a {by} may speak: {told[:80]!r}"
        raise DeniedError(text, reason="identity")
    return passed


def _all_beside(context: Context, name: str) -> list[str]:
    return [str(said) for key, said in context.invocation_metadata() or () if key == name]


def _beside(context: Context, name: str) -> str | bytes:
    return next((said for key, said in context.invocation_metadata() or () if key == name), "")


@lru_cache(_KNOWN_MAX)
def _claims(pem: bytes) -> Claims:
    return read_claims(pem)
