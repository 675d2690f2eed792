"""Sealing secrets: AES-256-GCM with one key in a file, which every scheduler of a cluster has.

A sealed value is bound to what it is the value of, so none can be put in the place of another. What would
surprise: the key is made only when somebody seals for the first time. Where there are sealed values already,
a missing key was lost or lies elsewhere, and a second one would only hide that.
"""

import os
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from persys.errors import RefusedError
from persys.infra.files import write_whole

KEY_BITS = 256
_NONCE_BYTES = 12
_ID_DIGITS = 16


class Key:
    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)
        # Tells keys apart, and nothing of them.
        self.id = sha256(b"persys secrets key " + key).hexdigest()[:_ID_DIGITS]

    def seal(self, value: bytes, bound_to: bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, value, bound_to)

    def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        """RefusedError: it was altered, or is of something else, or of another key."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], bound_to)
        except (InvalidTag, ValueError) as err:
            raise RefusedError("it does not open: it was altered, or sealed otherwise") from err


class KeyFile:
    """Read when it is first needed, so that one that was put back is found without a restart."""

    def __init__(self, path: Path, setting: str = "PERSYS_SECRETS_KEY_FILE") -> None:
        """`setting` is the variable that names the file."""
        self.path = path
        self._setting = setting
        self._key: Key | None = None

    def key(self) -> Key:
        """RefusedError says what is wrong with the file."""
        if self._key is None:
            self._key = Key(self._read())
        return self._key

    def make(self) -> Key:
        """The key, new if there is no file. RefusedError: it cannot be read, or written."""
        if not self.path.exists():
            made = AESGCM.generate_key(KEY_BITS)
            try:
                write_whole(self.path, b64encode(made) + b"\n")
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
            raise RefusedError(f"{self} holds no key") from err
        if len(found) * 8 != KEY_BITS:
            raise RefusedError(f"{self} holds no key of {KEY_BITS} bits")
        return found
