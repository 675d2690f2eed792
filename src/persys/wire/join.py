"""The join token: one line to copy, with all that a newcomer needs to find and check the authority.

It holds a secret. What would surprise: role and name in it are only for the one who reads it; the authority
goes by what it has kept.
"""

import base64
import binascii

import msgspec
from msgspec import Struct

from persys.errors import InvalidError

PREFIX = "persys-join-v1."
_LENGTH_MAX = 4096


class JoinToken(Struct, frozen=True):
    ca: tuple[str, ...]  # addresses of the authority, host:port
    fp: str  # SHA-256 of its root certificate, in hexadecimal digits
    id: str
    secret: str
    role: str
    name: str

    def __repr__(self) -> str:
        return (
            f"JoinToken({self.id}, {self.role}/{self.name})"  # a traceback must not tell the secret
        )


def write_token(token: JoinToken) -> str:
    return PREFIX + base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def read_token(text: str) -> JoinToken:
    text = text.strip()
    if not text.startswith(PREFIX) or len(text) > _LENGTH_MAX:
        raise InvalidError("token", f"is no join token; one begins with {PREFIX}")
    body = text.removeprefix(PREFIX)
    try:
        plain = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        token = msgspec.json.decode(plain, type=JoinToken)
    except (binascii.Error, ValueError, msgspec.DecodeError) as err:
        raise InvalidError("token", "is damaged; was all of it copied?") from err
    if not (token.ca and token.fp and token.id and token.secret):
        raise InvalidError("token", "is damaged; was all of it copied?")
    return token
