"""Encryption of secret values in the journal.

Only the secret values of an order are encrypted. If the key is lost, only the rows with secret values are
quarantined: their workloads keep running, and the scheduler sends these orders again.
"""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from persys.agent.journal.records import Entry
from persys.core.secrets import SecretValues, put_back, take_out
from persys.errors import RefusedError
from persys.infra.encryption import EncryptionKey, KeyFile

SETTING = "PERSYS_JOURNAL_KEY_FILE"
CREDENTIAL = "persys-journal-key"  # the name of the systemd credential
_KEY_BYTES = 32


def journal_key_file(state_path: Path, configured: str = "") -> KeyFile:
    """The key file: as configured, else a systemd credential, else next to the journal."""
    if configured:
        return KeyFile(Path(configured), SETTING)
    credential = Path(os.environ.get("CREDENTIALS_DIRECTORY", ""), CREDENTIAL)
    if credential.is_absolute() and credential.exists():
        return KeyFile(credential, SETTING)
    return KeyFile(state_path.with_name(f"{state_path.name}.key"), SETTING)


def no_key_file() -> EncryptionKey:
    """For a journal in memory, which is never on disk."""
    return EncryptionKey(bytes(_KEY_BYTES))


class Sealer:
    def __init__(self, key: Callable[[], EncryptionKey]) -> None:
        """`key` raises RefusedError if there is no key and none can be created."""
        self._key = key

    def seal(self, entry: Entry) -> Entry:
        """The entry with encrypted secret values. Raises RefusedError."""
        order, values = take_out(entry.order)
        if not values:
            return entry
        sealed = self._key().seal(msgspec.json.encode(values), _bound_to(entry))
        return replace(entry, order=order, sealed=sealed)

    def open(self, entry: Entry) -> Entry:
        """The entry with decrypted secret values. Raises RefusedError."""
        if not entry.sealed:
            return entry
        opened = self._key().open(entry.sealed, _bound_to(entry))
        try:
            values = msgspec.json.decode(opened, type=SecretValues)
        except msgspec.DecodeError as err:
            raise RefusedError(f"cannot decode the decrypted secret values: {err}") from err
        return replace(entry, order=put_back(entry.order, values), sealed=b"")


def has_plain_values(entry: Entry) -> bool:
    """Whether the entry has unencrypted secret values from an older agent version."""
    return not entry.sealed and bool(take_out(entry.order)[1])


def _bound_to(entry: Entry) -> bytes:
    return f"journal {entry.order.workload_id}".encode()
