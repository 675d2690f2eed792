"""Who speaks: a role and a name, as a certificate or a token says."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from persys.model.role import NAMES as NAMES
from persys.model.role import Role as Role

SCHEME = "spiffe://"


class Identity(Struct, frozen=True):
    role: Role
    name: str

    def __str__(self) -> str:
        return f"{self.role}/{self.name}"

    def uri(self, trust_domain: str) -> str:
        return f"{SCHEME}{trust_domain}/{self.role}/{self.name}"


class Deed(StrEnum):
    """What somebody may be allowed to do. Every call of either service is one of these."""

    READ = "read"  # look at what there is
    LOGS = "logs"  # read what workloads write
    WORKLOADS = "workloads"  # apply, delete, retry
    EXEC = "exec"  # run commands inside workloads
    NODES = "nodes"  # cordon, drain, taint, remove; adopt and delete orphans
    DATA = "data"  # images and volumes
    TOKENS = "tokens"  # who may join, with which certificate; tokens of people
    SECRETS = "secrets"  # put and delete them; nobody reads them back
    RECOVERY = "recovery"  # snapshots, which hold everything, and the ways out of recovery
    SUGGEST = "suggest"  # automation
    REPORT = "report"  # be a node: register, heartbeat, stream
    ORDER = "order"  # tell an agent what to run
    ANYONE = "anyone"  # with a valid certificate: who am I, is it well


class Caller(Struct, frozen=True):
    """One who was let in."""

    identity: Identity
    deeds: frozenset[Deed]
    expires_at: datetime
    serial: str  # of the certificate that was shown
    token_id: str = ""  # of the token that was shown beside it
