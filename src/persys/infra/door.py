"""Who comes in, and whether that one may do what it asks for: asked before every call of a service.

The connection has shown that somebody holds a certificate of our authority; here is settled who that is and
what the role allows. What would surprise: a scheduler that passes a call on says in whose name, and is
believed; nobody else is.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import grpc
import structlog
from google.protobuf.descriptor import ServiceDescriptor

from persys.core.permission import deeds_of, may
from persys.errors import DeniedError
from persys.infra.certificates import Certificates
from persys.infra.clock import Clock
from persys.infra.identity import Claims, by_common_name, read_claims
from persys.model.identity import Caller, Deed, Role

log = structlog.get_logger()

PASSED_IDENTITY = "persys-identity"
_CERTIFICATE = "x509_pem_cert"
_KNOWN_MAX = 4096  # certificates whose claims are kept

Context = grpc.aio.ServicerContext[Any, Any]
# What of a request is taken from this caller: the request, perhaps watched; raises DeniedError.
Narrow = Callable[[Caller, str, Any], Any]

# Who asks for what is being answered; None where nobody is asked (-insecure).
CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)


class Door:
    def __init__(
        self,
        table: Mapping[str, Deed],
        certificates: Certificates,
        clock: Clock,
        *,
        denied: Callable[[str, str], None],
        narrow: Narrow = lambda caller, method, request: request,
        closed_to: frozenset[Role] = frozenset(),
    ) -> None:
        """`denied` is told the role ("" if there is none) and the method of each refusal."""
        self._table = table
        self._certificates = certificates
        self._clock = clock
        self._denied = denied
        self._closed_to = closed_to
        self.narrow = narrow

    def admit(self, method: str, context: Context) -> Caller:
        """Raises DeniedError."""
        caller = None
        try:
            caller = self._caller(context)
            deed = self._table.get(method)
            if deed is None or not may(caller, deed) or self._is_closed_to(caller, deed):
                text = f"{caller.identity} may not call {method}"
                raise DeniedError(text, reason="role")
        except DeniedError as err:
            role = caller.identity.role if caller is not None else ""
            self._denied(role, method)
            log.warning("access.denied", method=method, peer=context.peer(), reason=str(err))
            raise
        return caller

    def _is_closed_to(self, caller: Caller, deed: Deed) -> bool:
        return caller.identity.role in self._closed_to and deed is not Deed.ANYONE

    def _caller(self, context: Context) -> Caller:
        shown = next(iter(context.auth_context().get(_CERTIFICATE, ())), None)
        if shown is None:
            raise DeniedError("no certificate was shown", reason="certificate")
        claims = _claims(shown)
        now = self._clock.now()
        if not claims.not_before <= now < claims.not_after:
            text = "the certificate is not valid yet, or not any more"
            raise DeniedError(text, reason="expired")
        own = self._certificates.current.claims.trust_domain
        if claims.identity is None or (claims.trust_domain and claims.trust_domain != own):
            raise DeniedError("the certificate is of nobody who is known here", reason="identity")
        identity = claims.identity
        if identity.role is Role.SCHEDULER and (told := _told(context)):
            passed = by_common_name(told)
            if passed is None:
                raise DeniedError(f"{PASSED_IDENTITY} names nobody: {told!r}", reason="identity")
            identity = passed
        return Caller(identity, deeds_of(identity.role), claims.not_after, claims.serial)


def guarded(servicer: Any, service: ServiceDescriptor, door: Door | None) -> Any:
    """The same servicer behind a door; without one, anybody is served."""
    if door is None:
        return servicer
    return _Guarded(servicer, service, door)


class _Guarded:
    def __init__(self, servicer: Any, service: ServiceDescriptor, door: Door) -> None:
        for method in service.methods:
            inner = getattr(servicer, method.name)
            make = _answers if inspect.isasyncgenfunction(inner) else _call
            setattr(self, method.name, make(method.name, inner, door))


def _call(name: str, inner: Callable[..., Any], door: Door) -> Callable[..., Any]:
    async def call(request: Any, context: Context) -> Any:
        return await inner(await _enter(name, request, context, door), context)

    return call


def _answers(name: str, inner: Callable[..., Any], door: Door) -> Callable[..., Any]:
    async def answers(request: Any, context: Context) -> AsyncIterator[Any]:
        async for one in inner(await _enter(name, request, context, door), context):
            yield one

    return answers


async def _enter(name: str, request: Any, context: Context, door: Door) -> Any:
    try:
        caller = door.admit(name, context)
        CALLER.set(caller)
        return door.narrow(caller, name, request)
    except DeniedError as err:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(err))


def _told(context: Context) -> str:
    metadata = context.invocation_metadata() or ()
    return next((str(text) for key, text in metadata if key == PASSED_IDENTITY), "")


@lru_cache(_KNOWN_MAX)
def _claims(pem: bytes) -> Claims:
    return read_claims(pem)
