"""Identities and callers: a role and a name, from a certificate or a token."""

from datetime import datetime

from msgspec import Struct

from persys.model.role import NAMES as NAMES
from persys.model.role import Permission as Permission
from persys.model.role import Role as Role

SCHEME = "spiffe://"


class Identity(Struct, frozen=True):
    role: Role
    name: str

    def __str__(self) -> str:
        return f"{self.role}/{self.name}"

    def uri(self, trust_domain: str) -> str:
        return f"{SCHEME}{trust_domain}/{self.role}/{self.name}"


class Caller(Struct, frozen=True):
    """An authenticated caller."""

    identity: Identity
    deeds: frozenset[Permission]
    expires_at: datetime
    serial: str  # of the presented certificate
    token_id: str = ""  # of the presented token
    via: str = ""  # the gateway that forwarded the call
    source: str = ""  # network address of the caller itself
    shared: bool = False  # several agents share this certificate: it does not prove a node
    prefix: str = ""  # the only ids of workloads and secrets that its token may use; "": all

    @property
    def label(self) -> str:
        """For events: "operator/alice", "operator/ci by token 1f2e", "operator/alice via gateway/g1"."""
        token = f" by token {self.token_id}" if self.token_id else ""
        via = f" via {self.via}" if self.via else ""
        return f"{self.identity}{token}{via}"


class Token(Struct, frozen=True):
    id: str
    name: str
    role: Role
    deeds: frozenset[Permission]  # the subset of the role's permissions; empty: all of them
    secret_hash: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    # Of the certificate that created it, directly or through another token. Empty: created by an older
    # version.
    created_serial: str = ""
    # Only ids of workloads and secrets with this prefix; "": all. `deeds` is then `anyone` only, so that an
    # older scheduler, which does not know prefixes, grants nothing.
    prefix: str = ""
    scoped_deeds: frozenset[Permission] = frozenset()  # `deeds` of a token with a prefix

    @property
    def identity(self) -> Identity:
        return Identity(self.role, self.name)


def server_name(role: Role, name: str = "") -> str:
    """The fixed DNS name in our certificates for a role, or for one name of the role."""
    return f"{name}.{role}.{NAMES}" if name else f"{role}.{NAMES}"
