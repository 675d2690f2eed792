"""The message types of the cfssl API, and the identity that a cfssl request is for.

cfssl has profiles and common names instead of roles and names. A profile that is a role sets the role, and
the common name sets the name; without such a profile the common name has both, as in agent/n1 or
persys-agent-n1. A certificate is returned with its intermediate, and `info` returns the root, so that clients
can verify the chain.
"""

import base64
import binascii
import hashlib
import hmac
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from persys.core.auth.enrolment import SERVICES
from persys.errors import DeniedError, InvalidError
from persys.infra.tls.identity import by_common_name
from persys.model.identity import Identity, Role
from persys.wire.ca.messages import read_body

PREFIX = "/api/v1/cfssl/"
USAGES = ("digital signature", "server auth", "client auth")
_REFUSED_CODE = 7000  # cfssl's code for API errors


class Subject(Struct):
    CN: str = ""


class SignRequest(Struct):
    certificate_request: str
    hostname: str = ""
    hosts: tuple[str, ...] | None = None
    profile: str = ""
    subject: Subject | None = None


class AuthsignRequest(Struct):
    """A request with an HMAC of the shared key."""

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


def verify_authsign(body: bytes, key: bytes) -> SignRequest:
    """Raises DeniedError if the HMAC does not match this key."""
    sealed = read_body(body, AuthsignRequest)
    if not key:
        raise DeniedError("authsign is disabled: set PERSYS_CA_AUTH_KEY_FILE", reason="key")
    try:
        token = base64.b64decode(sealed.token, validate=True)
        request = base64.b64decode(sealed.request, validate=True)
    except binascii.Error as err:
        raise InvalidError("token", "expected base64") from err
    if not hmac.compare_digest(token, hmac.new(key, request, hashlib.sha256).digest()):
        raise DeniedError("the authsign token does not match the key of this CA", reason="key")
    return read_body(request, SignRequest)


def identity_for(profile: str, common_name: str) -> Identity:
    """The identity that a cfssl request is for."""
    named = by_common_name(common_name)
    role = Role(profile) if profile in list(Role) else None
    if named is not None and role in (None, named.role):
        return named
    if named is None and role is not None:
        return Identity(role, common_name)
    if named is not None:
        raise InvalidError("profile", f"profile {profile} does not match the role of {named}")
    roles = ", ".join(sorted(SERVICES))
    raise InvalidError(
        "CN",
        f"invalid common name {common_name[:80]!r}: expected ROLE/NAME, or set a profile: {roles}, …",
    )


def hosts_of(request: SignRequest, in_csr: tuple[str, ...]) -> tuple[str, ...]:
    """Hosts of the API request take precedence over those of the CSR."""
    named = tuple(word for part in request.hostname.split(",") if (word := part.strip()))
    return named or request.hosts or in_csr


def go_duration(lifetime: timedelta) -> str:
    """Format a duration as Go does, which has no days."""
    seconds = round(lifetime.total_seconds())
    return f"{seconds}s" if seconds % 3600 else f"{seconds // 3600}h"


def response(result: Any) -> bytes:
    return msgspec.json.encode({"success": True, "result": result, "errors": [], "messages": []})


def error_body(text: str) -> bytes:
    errors = [{"code": _REFUSED_CODE, "message": text}]
    return msgspec.json.encode({"success": False, "result": None, "errors": errors, "messages": []})
