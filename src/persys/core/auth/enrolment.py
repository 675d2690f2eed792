"""Which certificates persys-ca issues: names, hosts and lifetimes, and what a join token allows.

persys-ca checks these rules before it signs. Hosts are not proven, so no request may name a host under
persys.internal, by which the components of a cluster identify each other: persys-ca adds those names itself,
from the identity.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from ipaddress import ip_address

from msgspec import Struct

from persys.errors import InvalidError
from persys.model.identity import NAMES, Identity, Role
from persys.model.ids import node_id

SERVICES = frozenset({Role.SCHEDULER, Role.AGENT, Role.GATEWAY})
PEOPLE = frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER})

LIFE = timedelta(hours=24)
LIFE_LEAST = timedelta(seconds=10)
SERVICE_LIFE_MOST = timedelta(days=90)
PERSON_LIFE_MOST = timedelta(days=365)
TOKEN_LIFE = timedelta(hours=1)
TOKEN_LIFE_MOST = timedelta(days=7)
HOSTS_MAX = 32

_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._@]{0,127}")
_NAME_RULE = "1 to 128 of letters, digits, '.', '_', '-' and '@', beginning with a letter or digit"
_LABEL = re.compile(r"[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?")
_HOST_LENGTH_MAX = 253
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NUMERIC = re.compile(r"[0-9]+")


class JoinTokenFault(StrEnum):
    """Why a join token is not accepted."""

    UNKNOWN = "token-unknown"  # not found, or another secret
    USED = "token-used"
    EXPIRED = "token-expired"


FAULTS = {
    JoinTokenFault.UNKNOWN: "this token is unknown to this persys-ca; was all of it copied?",
    JoinTokenFault.USED: "this token has already been used; a token is valid for one join only",
    JoinTokenFault.EXPIRED: "this token has expired",
}


class StoredJoinToken(Struct, frozen=True):
    """A join token as stored: without its secret."""

    id: str
    secret_hash: str
    identity: Identity
    created_at: datetime
    expires_at: datetime
    created_by: str
    hosts: tuple[str, ...] = ()  # allowed besides the node's own name and address
    used_at: datetime | None = None
    serial: str = ""  # of the certificate it was used for


def check_identity(identity: Identity, *, field: str = "name") -> Identity:
    """Raises InvalidError if the name is not allowed for the role."""
    if identity.role is Role.CA:
        raise InvalidError("role", "role ca is reserved for persys-ca itself")
    if identity.role is Role.AGENT:
        node_id(identity.name, field=field)
    elif not _NAME.fullmatch(identity.name):
        raise InvalidError(field, f"invalid name {identity.name[:80]!r}: expected {_NAME_RULE}")
    return identity


def check_joining_identity(identity: Identity) -> Identity:
    """Only components of the cluster join with a token; users get certificates from an admin."""
    if identity.role not in SERVICES:
        roles = ", ".join(sorted(SERVICES))
        raise InvalidError("role", f"{identity.role} cannot join with a token; expected {roles}")
    return check_identity(identity)


def check_hosts(hosts: Sequence[str], among: Sequence[str] | None = None) -> tuple[str, ...]:
    """The hosts in normalised form, without duplicates. `among`: all that are allowed."""
    if len(hosts) > HOSTS_MAX:
        raise InvalidError("hosts", f"{len(hosts)} hosts: expected at most {HOSTS_MAX}")
    names = tuple(dict.fromkeys(map(_host, hosts)))
    if among is not None and (more := [host for host in names if host not in among]):
        raise InvalidError("hosts", f"{more[0]} is not allowed: expected any of {', '.join(among)}")
    return names


def joining_hosts(
    token: StoredJoinToken, requested: Sequence[str], *, source_address: str
) -> tuple[str, ...]:
    """The host names and addresses in a certificate that is requested with a join token.

    A token proves no host. So the request may contain its own name, its source address, and the hosts that
    the creator of the token allowed. An empty request gets the hosts of the token.
    """
    own = [token.identity.name.lower(), source_address]
    if _is_loopback(source_address):
        own += _LOOPBACK
    wanted = check_hosts(requested)
    if more := [host for host in wanted if host not in (*token.hosts, *own)]:
        allowed = ", ".join(dict.fromkeys((*token.hosts, *own[:2])))
        raise InvalidError(
            "hosts",
            f"{more[0]} is not allowed: expected any of {allowed}; "
            f"create a token with --host {more[0]}",
        )
    return wanted or token.hosts


def certificate_lifetime(
    role: Role,
    requested: timedelta | None,
    *,
    usual: timedelta = LIFE,
    issuer_ends_at: datetime,
    now: datetime,
) -> timedelta:
    """The lifetime of a certificate, never longer than that of its issuer."""
    most = PERSON_LIFE_MOST if role in PEOPLE else SERVICE_LIFE_MOST
    lifetime = usual if requested is None else requested
    if not LIFE_LEAST <= lifetime <= most:
        raise InvalidError("ttl", f"expected {LIFE_LEAST.seconds}s to {most.days}d for role {role}")
    return min(lifetime, issuer_ends_at - now)


def join_token_lifetime(requested: timedelta | None) -> timedelta:
    lifetime = TOKEN_LIFE if requested is None else requested
    if not timedelta(seconds=1) <= lifetime <= TOKEN_LIFE_MOST:
        raise InvalidError("ttl", f"expected 1s to {TOKEN_LIFE_MOST.days}d for a join token")
    return lifetime


def hash_secret(secret: str) -> str:
    """Secrets have 256 random bits, so neither a salt nor a slow hash is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def check_join_token(
    token: StoredJoinToken | None, secret: str, now: datetime
) -> JoinTokenFault | None:
    """Without the right secret the only result is that the token is unknown."""
    kept = "" if token is None else token.secret_hash
    if not hmac.compare_digest(kept, hash_secret(secret)) or token is None:
        return JoinTokenFault.UNKNOWN
    if token.used_at is not None:
        return JoinTokenFault.USED
    return JoinTokenFault.EXPIRED if now >= token.expires_at else None


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _host(text: str) -> str:
    try:
        address = ip_address(text)
    except ValueError:
        return _host_name(text)
    if address.is_unspecified or address.is_multicast:
        raise InvalidError("hosts", f"invalid host {text!r}: expected the address of one machine")
    return str(address)


def _host_name(text: str) -> str:
    name = text.lower()
    labels = name.split(".")
    if "*" in name:
        raise InvalidError("hosts", f"invalid host {text[:80]!r}: wildcards are not allowed")
    if name == NAMES or name.endswith(f".{NAMES}"):
        raise InvalidError(
            "hosts", f"invalid host {text[:80]!r}: names under {NAMES} are added from the role"
        )
    if len(name) > _HOST_LENGTH_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidError("hosts", f"invalid host {text[:80]!r}: expected a host name or address")
    if _NUMERIC.fullmatch(labels[-1]):  # some parsers would read it as an address
        raise InvalidError("hosts", f"invalid host {text[:80]!r}: expected a host name or address")
    return name
