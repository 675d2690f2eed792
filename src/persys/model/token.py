"""A token of a person: beside a certificate it says who asks and for how much. Kept without its secret."""

from datetime import datetime

from msgspec import Struct

from persys.model.identity import Deed, Identity, Role


class Token(Struct, frozen=True):
    id: str
    name: str
    role: Role
    deeds: frozenset[Deed]  # only these of what the role allows; none: all of it
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
