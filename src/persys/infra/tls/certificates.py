"""The key, certificate and trusted roots of this process, reloaded while in use.

The files are checked every second, independent of who writes them. A set that is invalid, incomplete or
expired does not replace the one in use, and is logged once. An open connection keeps the certificate it was
opened with; only new connections use the new one.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import grpc
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from msgspec import Struct

from persys.errors import SettingsError
from persys.infra.atomic_files import CertificateFiles as CertificateFiles
from persys.infra.atomic_files import Stamp, stamp
from persys.infra.clock import Clock
from persys.infra.tls.identity import Claims, claims_of

log = structlog.get_logger()

CHECK_SECONDS = 1.0


class KeyPair(Struct, frozen=True):
    key: bytes
    chain: bytes
    roots: bytes
    claims: Claims

    def __repr__(self) -> str:
        return f"KeyPair({self.claims.identity})"  # a traceback must not show the key


class Certificates:
    def __init__(self, files: CertificateFiles, clock: Clock) -> None:
        """Raises SettingsError if the files cannot be used at start-up."""
        self._files = files
        self._clock = clock
        self._stamps: tuple[Stamp, ...] = ()
        self._logged = ""
        self._listeners: list[Callable[[], None]] = []
        self._has_changed()
        self.current = read_key_pair(files, clock.now())

    @property
    def expires_at(self) -> datetime:
        return self.current.claims.not_after

    def on_swap(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def run(self) -> None:
        """Reload the files when they change."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if await asyncio.to_thread(self._has_changed):
                self.reload()

    def reload(self) -> bool:
        """Read the files. Whether a new set is in use now."""
        try:
            pair = read_key_pair(self._files, self._clock.now())
        except SettingsError as err:
            if str(err) != self._logged:
                self._logged = str(err)
                log.warning("certificate.kept", reason=str(err), expires_at=self.expires_at)
            return False
        self._logged = ""
        if pair == self.current:
            return False
        self.current = pair
        log.info(
            "certificate.swapped",
            identity=str(pair.claims.identity),
            serial=pair.claims.serial,
            expires_at=pair.claims.not_after,
        )
        for listener in self._listeners:
            listener()
        return True

    def server_credentials(self) -> grpc.ServerCredentials:
        """Each handshake uses the current set and requires a client certificate."""
        last = self.current

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal last
            if self.current is last:
                return None
            last = self.current
            return _configuration(last)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(last),
            fetch,  # type: ignore[arg-type]  # None means no change
            require_client_authentication=True,
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        pair = self.current
        return grpc.ssl_channel_credentials(pair.roots, pair.key, pair.chain)

    def _has_changed(self) -> bool:
        """Whether a file has changed since the last check."""
        stamps = tuple(
            stamp(path) for path in (self._files.certificate, self._files.key, self._files.roots)
        )
        changed = stamps != self._stamps
        self._stamps = stamps
        return changed


def read_key_pair(files: CertificateFiles, now: datetime) -> KeyPair:
    """Read and check the files. Raises SettingsError with the file and the problem."""
    chain, key, roots = (_read(path) for path in (files.certificate, files.key, files.roots))
    return checked_key_pair(files, chain=chain, key=key, roots=roots, now=now)


def checked_key_pair(
    files: CertificateFiles, *, chain: bytes, key: bytes, roots: bytes, now: datetime
) -> KeyPair:
    """Check the content of these files, also before it is written. Raises SettingsError as above."""
    certificate = _certificates(chain, files.certificate)[0]
    _certificates(roots, files.roots)
    try:
        loaded = load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as err:
        raise SettingsError(
            f"{files.key}: invalid private key: expected an unencrypted PEM key"
        ) from err
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if loaded.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
        raise SettingsError(f"{files.key}: does not match the certificate {files.certificate}")
    claims = claims_of(certificate)
    if now >= claims.not_after:
        raise SettingsError(
            f"{files.certificate}: expired at {claims.not_after:%Y-%m-%d %H:%M:%S} UTC; "
            "get a new one with a join token"
        )
    return KeyPair(key, chain, roots, claims)


def joined_roots(known: bytes, more: bytes) -> bytes:
    """The union, known roots first. Raises ValueError if one of them has no certificate."""
    there = x509.load_pem_x509_certificates(known)
    new = [one for one in x509.load_pem_x509_certificates(more) if one not in there]
    return b"".join([known, *(one.public_bytes(Encoding.PEM) for one in new)])


def _certificates(pem: bytes, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, InvalidSignature) as err:
        raise SettingsError(f"{path}: invalid certificate: expected PEM") from err


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as err:
        raise SettingsError(
            f"{path}: no such file; get a certificate with a join token "
            "(persys-agent join, persysctl certificate join), or use -insecure for a test"
        ) from err
    except OSError as err:
        raise SettingsError(f"{path}: {err.strerror}") from err


def _configuration(pair: KeyPair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(pair.key, pair.chain)], root_certificates=pair.roots
    )
