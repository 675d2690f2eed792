"""Requests and responses of the certificate authority: JSON over HTTPS, with a size limit on both sides."""

from datetime import datetime
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from persys.errors import (
    DeniedError,
    InvalidError,
    PersysError,
    RefusedError,
    UnavailableError,
)

BODY_BYTES_MAX = 64 * 1024
T = TypeVar("T")


class JoinRequest(Struct, forbid_unknown_fields=True):
    id: str
    secret: str
    csr: str

    def __repr__(self) -> str:
        return f"JoinRequest({self.id})"  # a traceback must not show the secret


class RenewRequest(Struct, forbid_unknown_fields=True):
    csr: str


class CertificateRequest(Struct, forbid_unknown_fields=True):
    role: str
    name: str
    csr: str
    ttl_seconds: float | None = None


class IssueResponse(Struct):
    certificate: str  # followed by the intermediate certificate
    roots: str
    serial: str
    expires_at: datetime


class TokenRequest(Struct, forbid_unknown_fields=True):
    role: str
    name: str
    hosts: tuple[str, ...] = ()
    ttl_seconds: float | None = None


class TokenAnswer(Struct):
    token: str  # shown only once
    id: str
    expires_at: datetime


class TokenView(Struct):
    id: str
    role: str
    name: str
    hosts: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    created_by: str
    used_at: datetime | None = None
    serial: str = ""


class CertificateView(Struct):
    serial: str
    role: str
    name: str
    hosts: tuple[str, ...]
    issued_at: datetime
    expires_at: datetime
    asked_by: str
    how: str
    revoked_at: datetime | None = None
    revoked_by: str = ""
    reason: str = ""
    enrolled_at: datetime | None = None  # when its holder joined; None: when it was issued


class RevokeRequest(Struct, forbid_unknown_fields=True):
    """One certificate by serial, or all of an identity, optionally only those enrolled until a time."""

    serial: str = ""
    role: str = ""
    name: str = ""
    reason: str = ""
    enrolled_until: Annotated[datetime, Meta(tz=True)] | None = None


class RevokeResponse(Struct):
    serials: tuple[str, ...]


class AuditLine(Struct):
    number: int
    at: datetime
    deed: str
    who: str
    what: str
    detail: str = ""
    serial: str = ""


class Refusal(Struct):
    error: str
    reason: str = ""  # a machine-readable code


def refusal_from(status: int, body: bytes) -> PersysError:
    """The error that a client raises for a response."""
    try:
        refusal = msgspec.json.decode(body, type=Refusal)
    except msgspec.DecodeError:
        refusal = Refusal(f"HTTP status {status}")
    if status in (401, 403):
        return DeniedError(refusal.error, reason=refusal.reason)
    if status >= 500 or status in (408, 429):
        return UnavailableError(refusal.error)
    return RefusedError(refusal.error)


def read_body(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise InvalidError("body", str(err)) from err
