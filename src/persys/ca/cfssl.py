"""The shapes of cfssl's API, for clients that speak it, and whom such a request means.

cfssl knows profiles and common names instead of roles and names: a profile that is a role gives the role, and
the common name the name; without one the common name says both, as agent/n1 or persys-agent-n1 do. What would
surprise: a certificate is answered with the intermediate after it, and `info` names the root, so that what
clients keep verifies everywhere.
"""

import base64
import binascii
import hashlib
import hmac
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from persys.core.enrolment import SERVICES
from persys.errors import DeniedError, InvalidError
from persys.infra.identity import by_common_name
from persys.model.identity import Identity, Role
from persys.wire.authority import read_body

PREFIX = "/api/v1/cfssl/"
USAGES = ("digital signature", "server auth", "client auth")
_REFUSED_CODE = 7000  # what cfssl calls an error of its API


class Subject(Struct):
    CN: str = ""


class SignRequest(Struct):
    certificate_request: str
    hostname: str = ""
    hosts: tuple[str, ...] | None = None
    profile: str = ""
    subject: Subject | None = None


class SealedRequest(Struct):
    """A request with proof that its sender has the key."""

    token: str
    request: str


class KeyRequest(Struct):
    algo: str = "ecdsa"
    size: int = 256


class NewRequest(Struct):
    CN: str = ""
    hosts: tuple[str, ...] | None = None
    key: KeyRequest | None = None


class NewCertRequest(Struct):
    request: NewRequest
    profile: str = ""


def unseal(body: bytes, key: bytes) -> SignRequest:
    """Raises DeniedError unless it was sealed with this key."""
    sealed = read_body(body, SealedRequest)
    if not key:
        raise DeniedError("no key for authsign is set here (PERSYS_CA_AUTH_KEY_FILE)", reason="key")
    try:
        token = base64.b64decode(sealed.token, validate=True)
        request = base64.b64decode(sealed.request, validate=True)
    except binascii.Error as err:
        raise InvalidError("token", "expected base64") from err
    if not hmac.compare_digest(token, hmac.new(key, request, hashlib.sha256).digest()):
        raise DeniedError("this was sealed with another key", reason="key")
    return read_body(request, SignRequest)


def meant(profile: str, common_name: str) -> Identity:
    """Whom a request of cfssl's kind is for."""
    named = by_common_name(common_name)
    role = Role(profile) if profile in list(Role) else None
    if named is not None and role in (None, named.role):
        return named
    if named is None and role is not None:
        return Identity(role, common_name)
    if named is not None:
        raise InvalidError("profile", f"{profile} is another role than that of {named}")
    roles = ", ".join(sorted(SERVICES))
    raise InvalidError(
        "CN", f"{common_name[:80]!r} says no role; say ROLE/NAME, or name a profile: {roles}, …"
    )


def hosts_of(request: SignRequest, in_csr: tuple[str, ...]) -> tuple[str, ...]:
    """Those that are said beside the request are instead of those in it."""
    said = tuple(word for part in request.hostname.split(",") if (word := part.strip()))
    return said or request.hosts or in_csr


def span(life: timedelta) -> str:
    """As Go writes it, which knows no days."""
    seconds = round(life.total_seconds())
    return f"{seconds}s" if seconds % 3600 else f"{seconds // 3600}h"


def answer(result: Any) -> bytes:
    return msgspec.json.encode({"success": True, "result": result, "errors": [], "messages": []})


def refusal(text: str) -> bytes:
    errors = [{"code": _REFUSED_CODE, "message": text}]
    return msgspec.json.encode({"success": False, "result": None, "errors": errors, "messages": []})
