"""The join token: one line with everything a new process needs to find and verify the certificate authority.

It contains a secret. Its role and name are for the reader only; the authority uses those of its own record.
"""

import base64
import binascii

import msgspec
from msgspec import Struct

from persys.errors import InvalidError

PREFIX = "persys-join-v1."
_LENGTH_MAX = 4096
_INCOMPLETE = "invalid join token: it is damaged or incomplete; copy all of it"


class JoinToken(Struct, frozen=True):
    ca: tuple[str, ...]  # addresses of the authority, host:port
    fp: str  # SHA-256 of its root certificate, in hexadecimal digits
    id: str
    secret: str
    role: str
    name: str

    def __repr__(self) -> str:
        return (
            f"JoinToken({self.id}, {self.role}/{self.name})"  # a traceback must not show the secret
        )


def write_token(token: JoinToken) -> str:
    return PREFIX + base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def read_token(text: str) -> JoinToken:
    text = text.strip()
    if not text.startswith(PREFIX) or len(text) > _LENGTH_MAX:
        raise InvalidError(
            "token", f"invalid join token: expected a text that begins with {PREFIX}"
        )
    body = text.removeprefix(PREFIX)
    try:
        plain = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        token = msgspec.json.decode(plain, type=JoinToken)
    except (binascii.Error, ValueError, msgspec.DecodeError) as err:
        raise InvalidError("token", _INCOMPLETE) from err
    if not (token.ca and token.fp and token.id and token.secret):
        raise InvalidError("token", _INCOMPLETE)
    return token
