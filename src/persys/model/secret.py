"""A secret as stored, always encrypted, and references to secrets in specs."""

from datetime import datetime

from msgspec import Struct

SCHEME = "secret://"


class StoredReference(Struct, frozen=True):
    """A secret of the built-in store."""

    name: str
    version: int = 0  # 0: the newest

    def __str__(self) -> str:
        return f"{SCHEME}{self.name}{_at(self.version)}"


class VaultReference(Struct, frozen=True):
    """One field of a secret in Vault's KV engine, version 2."""

    path: str
    field: str
    version: int = 0  # 0: the newest

    def __str__(self) -> str:
        return f"{SCHEME}vault/{self.path}#{self.field}{_at(self.version)}"


Reference = StoredReference | VaultReference


class SecretVersion(Struct, frozen=True):
    number: int
    sealed: bytes
    key_id: str  # of the key that decrypts it
    created_at: datetime
    by: str = ""  # the identity that stored it; empty without authentication


class Secret(Struct, frozen=True):
    name: str
    versions: tuple[SecretVersion, ...]  # the oldest first, never empty

    @property
    def newest(self) -> SecretVersion:
        return self.versions[-1]

    def version(self, number: int) -> SecretVersion | None:
        """0: the newest. None: not found, or no longer stored."""
        if not number:
            return self.newest
        return next((one for one in self.versions if one.number == number), None)


def _at(version: int) -> str:
    return f"@{version}" if version else ""
