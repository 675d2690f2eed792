"""Encryption of secrets: AES-256-GCM with one key file, which all schedulers of a cluster share.

An encrypted value is bound to its name, so it cannot be used as the value of another. The key is created at
the first encryption only. If encrypted values exist, a missing key was lost or is in another place, and a new
key would hide that.
"""

import os
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from persys.errors import RefusedError
from persys.infra.atomic_files import write_file

KEY_BITS = 256
_NONCE_BYTES = 12
_ID_DIGITS = 16


class EncryptionKey:
    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        # Identifies the key without revealing it.
        self.id = sha256(b"persys secrets key " + key).hexdigest()[:_ID_DIGITS]

    def seal(self, value: bytes, bound_to: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, value, bound_to)

    def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        """Decrypt. Raises RefusedError if the value was altered, or has another name or key."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to)
        except (InvalidTag, ValueError) as err:
            raise RefusedError(
                "cannot be decrypted: altered, or encrypted with another key"
            ) from err


class KeyFile:
    """The key file, read on first use, so that a restored file is found without a restart."""

    def __init__(self, path: Path, setting: str = "PERSYS_SECRETS_KEY_FILE") -> None:
        """`setting` is the variable that names the file."""
        self.path = path
        self._setting = setting
        self._key: EncryptionKey | None = None

    def key(self) -> EncryptionKey:
        """Raises RefusedError with the problem of the file."""
        if self._key is None:
            self._key = EncryptionKey(self._read())
        return self._key

    def make(self) -> EncryptionKey:
        """The key; it is created if there is no file. Raises RefusedError if it cannot be read or written."""
        if not self.path.exists():
            made = AESGCM.generate_key(KEY_BITS)
            try:
                write_file(self.path, b64encode(made) + b"\n")
            except OSError as err:
                raise RefusedError(f"{self}: {err.strerror}") from err
        return self.key()

    def __str__(self) -> str:
        return f"{self._setting}={self.path}"

    def _read(self) -> bytes:
        try:
            found = b64decode(self.path.read_bytes().strip(), validate=True)
        except OSError as err:
            raise RefusedError(f"{self}: {err.strerror}") from err
        except Base64Error as err:
            raise RefusedError(f"{self}: invalid key: expected base64") from err
        if len(found) * 8 != KEY_BITS:
            raise RefusedError(f"{self}: invalid key: expected {KEY_BITS} bits")
        return found
