"""API tokens of users: which tokens an identity may create, and whether a presented token is valid.

A token is `psk_<id>_<secret>`. A caller cannot grant more permissions than it has, nor a longer lifetime if
it authenticates with a token. Only a caller with the right secret sees that a token has expired.
"""

import hmac
import re
from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from persys.core.auth.enrolment import PEOPLE, check_identity, hash_secret
from persys.core.auth.permissions import permissions_of
from persys.core.federation.cluster_ids import check_prefix
from persys.errors import DeniedError, InvalidError, RefusedError
from persys.model.identity import Caller, Identity, Permission, Role, Token

LIFE = timedelta(days=30)
LIFE_LEAST = timedelta(minutes=1)
LIFE_MOST = timedelta(days=365)
COUNT_MAX = 1_000
TRIMMED_MAX = 32  # expired tokens that are deleted with a new one
ID_BYTES = 8
SECRET_BYTES = 32

# Whether the certificate with this serial was revoked.
IsRevoked = Callable[[str], bool]

_NOTHING = frozenset({Permission.ANYONE})
_FORM = re.compile(r"psk_(?P<id>[0-9a-f]{16})_(?P<secret>[0-9a-f]{64})")


class NewToken(Struct, frozen=True):
    """A request for a new token."""

    name: str
    role: str
    deeds: tuple[str, ...] = ()
    ttl: timedelta | None = None
    prefix: str = ""


class TokenSecret(Struct, frozen=True):
    """The random parts of a token, in hexadecimal digits. The shell draws them."""

    id: str
    secret: str

    def __repr__(self) -> str:
        return f"TokenSecret({self.id})"  # a traceback must not show the secret

    @property
    def text(self) -> str:
        return f"psk_{self.id}_{self.secret}"


class TokenFault(StrEnum):
    """Why a token is not accepted."""

    MALFORMED = "invalid token: expected psk_ID_SECRET; was all of it copied?"
    UNKNOWN = "this token is unknown or has been revoked"
    EXPIRED = "this token has expired"
    CREATOR_REVOKED = "the certificate that created this token has been revoked; create a new token"


def make(
    request: NewToken, drawn: TokenSecret, by: Caller, known: Iterable[Token], *, now: datetime
) -> tuple[Token, tuple[Token, ...]]:
    """The token, and the expired ones to delete with it. Raises RefusedError."""
    known = list(known)
    prefix, deeds = _prefix(request.prefix, by), _permissions(request)
    token = Token(
        id=drawn.id,
        name=request.name,
        role=_role(request.role),
        deeds=_NOTHING if prefix else deeds,
        secret_hash=hash_secret(drawn.secret),
        created_at=now,
        created_by=signature(by),
        expires_at=now + _life(request, by, now),
        created_serial=_creator_serial(by, known),
        prefix=prefix,
        scoped_deeds=deeds if prefix else frozenset(),
    )
    check_identity(token.identity)
    if more := allowed(token) - by.deeds:
        raise DeniedError(
            f"cannot grant permissions that you do not have: {_listed(more)}", reason="role"
        )
    over = [one for one in known if is_expired(one, now)]
    if sum(not is_expired(one, now) for one in known) >= COUNT_MAX:
        raise RefusedError(f"the limit of {COUNT_MAX} tokens is reached; revoke unused tokens")
    return token, tuple(over[:TRIMMED_MAX])


def allowed(token: Token) -> frozenset[Permission]:
    """The permissions of the token. Its scope is limited to the current permissions of its role."""
    deeds = permissions_of(token.role)
    scope = token.scoped_deeds if token.prefix else token.deeds
    return deeds & (scope | _NOTHING) if scope else deeds


def is_expired(token: Token, now: datetime) -> bool:
    return now >= token.expires_at


def signature(caller: Caller) -> str:
    by = f" by token {caller.token_id}" if caller.token_id else ""
    return f"{caller.identity}{by}"


def parse(text: str) -> TokenSecret | None:
    found = _FORM.fullmatch(text)
    return TokenSecret(found["id"], found["secret"]) if found else None


def fault(
    token: Token | None, shown: TokenSecret, now: datetime, is_revoked: IsRevoked
) -> TokenFault | None:
    """Why a presented token is not accepted."""
    kept = "" if token is None else token.secret_hash
    if not hmac.compare_digest(kept, hash_secret(shown.secret)) or token is None:
        return TokenFault.UNKNOWN
    return recheck_token(token, now, is_revoked)


def recheck_token(token: Token | None, now: datetime, is_revoked: IsRevoked) -> TokenFault | None:
    """Why a token that was accepted before is no longer valid."""
    if token is None:
        return TokenFault.UNKNOWN
    if is_expired(token, now):
        return TokenFault.EXPIRED
    if token.created_serial and is_revoked(token.created_serial):
        return TokenFault.CREATOR_REVOKED
    return None


def holder(token: Token, serial: str) -> Caller:
    """The caller with this token, on a connection with the certificate of this serial."""
    return Caller(
        token.identity,
        allowed(token),
        token.expires_at,
        serial,
        token.id,
        prefix=token.prefix,
    )


def may_impersonate(identity: Identity, by: Role) -> bool:
    """Whether a caller of this role may act for another identity."""
    return by is Role.SCHEDULER or (by is Role.GATEWAY and identity.role in PEOPLE)


def _creator_serial(by: Caller, known: Iterable[Token]) -> str:
    """A token created with a token depends on the same certificate as that one."""
    if not by.token_id:
        return by.serial
    return next((token.created_serial for token in known if token.id == by.token_id), "")


def _role(text: str) -> Role:
    if text not in PEOPLE:
        raise InvalidError("role", f"invalid role {text[:80]!r}: expected one of {_listed(PEOPLE)}")
    return Role(text)


def _permissions(request: NewToken) -> frozenset[Permission]:
    role = _role(request.role)
    able = permissions_of(role)
    for word in request.deeds:
        if word not in able:
            raise InvalidError(
                "deeds",
                f"role {role} does not allow {word[:80]!r}: expected any of {_listed(able)}",
            )
    return frozenset(map(Permission, request.deeds))


def _prefix(text: str, by: Caller) -> str:
    """The prefix of a new token: no caller can create a token with more ids than its own."""
    if text:
        check_prefix(text)
    if by.prefix and text != by.prefix:
        raise DeniedError(
            f"cannot create a token without the prefix of your own token, {by.prefix!r}",
            reason="prefix",
        )
    return text


def _life(request: NewToken, by: Caller, now: datetime) -> timedelta:
    life = LIFE if request.ttl is None else request.ttl
    if not LIFE_LEAST <= life <= LIFE_MOST:
        raise InvalidError("ttl", f"expected 1m to {LIFE_MOST.days}d")
    return min(life, by.expires_at - now) if by.token_id else life


def _listed(words: Collection[str]) -> str:
    return ", ".join(sorted(words))
