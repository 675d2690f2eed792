"""An API token of a user: identifies a caller and limits its permissions. Stored without its secret."""

from datetime import datetime

from msgspec import Struct

from persys.model.identity import Deed, Identity, Role


class Token(Struct, frozen=True):
    id: str
    name: str
    role: Role
    deeds: frozenset[Deed]  # the subset of the role's permissions; empty: all of them
    secret_hash: str
    created_at: datetime
    created_by: str
    expires_at: datetime
    # Of the certificate that created it, directly or through another token. Empty: created by an older
    # version.
    created_serial: str = ""

    @property
    def identity(self) -> Identity:
        return Identity(self.role, self.name)
