"""Who comes in, and whether that one may do what it asks for: asked before every call of a service.

The connection has shown that somebody holds a certificate of our authority; here is settled who that is and
what the role allows. What would surprise: a scheduler that passes a call on says in whose name and with which
certificate, and is believed; nobody else is. A certificate that is taken back ends its streams too, at their
next message.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Self

import grpc
import msgspec
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
        denied: Callable[[str, str], None],
        narrow: Narrow = lambda caller, method, request: request,
        closed_to: frozenset[Role] = frozenset(),
        check: Check = lambda claims: None,
    ) -> None:
        """`denied` is told the role ("" if there is none) and the method of each refusal."""
        self._table = table
        self._certificates = certificates
        self._clock = clock
        self._denied = denied
        self._closed_to = closed_to
        self._check = check
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
        self._check(claims)
        identity = claims.identity
        if identity.role is Role.SCHEDULER and (told := _told(context)):
            passed = by_common_name(told)
            if passed is None:
                raise DeniedError(f"{PASSED_IDENTITY} names nobody: {told!r}", reason="identity")
            identity = passed
            claims = self._passed_claims(context) or claims
        SHOWN.set(claims)
        return Caller(identity, deeds_of(identity.role), claims.not_after, claims.serial)

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

    def look_again(self, claims: Claims | None, method: str, context: Context) -> None:
        """At a message on a stream that stands. Raises DeniedError for a certificate taken back since."""
        if claims is None:
            return
        try:
            self._check(claims)
        except DeniedError as err:
            self._denied(claims.identity.role if claims.identity is not None else "", method)
            log.warning("access.ended", method=method, peer=context.peer(), reason=str(err))
            raise


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
        entered = await _enter(name, request, context, door)
        if not hasattr(entered, "__aiter__"):
            return await inner(entered, context)
        messages = _Messages(name, entered, context, door)
        try:
            return await inner(messages, context)
        except (
            asyncio.CancelledError
        ):  # so it looks when a call is passed on whose messages end in error
            if messages.denied is None:
                raise
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(messages.denied))

    return call


def _answers(name: str, inner: Callable[..., Any], door: Door) -> Callable[..., Any]:
    async def answers(request: Any, context: Context) -> AsyncIterator[Any]:
        entered = await _enter(name, request, context, door)
        shown = SHOWN.get()
        async for one in inner(entered, context):
            try:
                door.look_again(shown, name, context)
            except DeniedError as err:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(err))
            yield one

    return answers


class _Messages:
    """What comes on a stream, for as long as its sender's certificate is good."""

    def __init__(
        self, name: str, messages: AsyncIterator[Any], context: Context, door: Door
    ) -> None:
        self._name = name
        self._messages = messages
        self._context = context
        self._door = door
        self._shown = SHOWN.get()
        self.denied: DeniedError | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        message = await anext(self._messages)
        try:
            self._door.look_again(self._shown, self._name, self._context)
        except DeniedError as err:
            self.denied = err
            raise
        return message


async def _enter(name: str, request: Any, context: Context, door: Door) -> Any:
    try:
        caller = door.admit(name, context)
        CALLER.set(caller)
        return door.narrow(caller, name, request)
    except DeniedError as err:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(err))


def _told(context: Context) -> str:
    return str(_beside(context, PASSED_IDENTITY))


def _beside(context: Context, name: str) -> str | bytes:
    return next((said for key, said in context.invocation_metadata() or () if key == name), "")


@lru_cache(_KNOWN_MAX)
def _claims(pem: bytes) -> Claims:
    return read_claims(pem)
