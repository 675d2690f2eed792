"""This process's own key and certificate, and the roots that it believes: one set, swapped while in use.

The files are looked at now and then, whoever writes them. A set that cannot be used, because it is garbage,
half written or expired, leaves the one in use where it is, and that is said once. What would surprise: a
connection that stands keeps the certificate with which it was made; only new ones have the new one.
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
from persys.infra.clock import Clock
from persys.infra.files import CertificateFiles as CertificateFiles
from persys.infra.files import Stamp, stamp
from persys.infra.identity import Claims, claims_of

log = structlog.get_logger()

LOOK_SECONDS = 1.0


class KeyPair(Struct, frozen=True):
    key: bytes
    chain: bytes
    roots: bytes
    claims: Claims

    def __repr__(self) -> str:
        return f"KeyPair({self.claims.identity})"  # a traceback must not tell the key


class Certificates:
    def __init__(self, files: CertificateFiles, clock: Clock) -> None:
        """Raises SettingsError when the files cannot be used from the start."""
        self._files = files
        self._clock = clock
        self._stamps: tuple[Stamp, ...] = ()
        self._told = ""
        self._listeners: list[Callable[[], None]] = []
        self._look_stamps()
        self.current = read_key_pair(files, clock.now())

    @property
    def expires_at(self) -> datetime:
        return self.current.claims.not_after

    def on_swap(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    async def run(self) -> None:
        """Looks at the files for as long as the process lives."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if await asyncio.to_thread(self._look_stamps):
                self.reload()

    def reload(self) -> bool:
        """Whether there is a new set in use now."""
        try:
            pair = read_key_pair(self._files, self._clock.now())
        except SettingsError as err:
            if str(err) != self._told:
                self._told = str(err)
                log.warning("certificate.kept", reason=str(err), expires_at=self.expires_at)
            return False
        self._told = ""
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
        """Each handshake takes the set that is in use then, and asks for a certificate of the other side."""
        last = self.current

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal last
            if self.current is last:
                return None
            last = self.current
            return _configuration(last)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(last),
            fetch,  # type: ignore[arg-type]  # None is its word for no change
            require_client_authentication=True,
        )

    def channel_credentials(self) -> grpc.ChannelCredentials:
        pair = self.current
        return grpc.ssl_channel_credentials(pair.roots, pair.key, pair.chain)

    def _look_stamps(self) -> bool:
        """Whether a file has changed since the last look."""
        stamps = tuple(
            stamp(path) for path in (self._files.certificate, self._files.key, self._files.roots)
        )
        changed = stamps != self._stamps
        self._stamps = stamps
        return changed


def read_key_pair(files: CertificateFiles, now: datetime) -> KeyPair:
    """Raises SettingsError that names the file and what is wrong with it."""
    chain, key, roots = (_read(path) for path in (files.certificate, files.key, files.roots))
    return checked_key_pair(files, chain=chain, key=key, roots=roots, now=now)


def checked_key_pair(
    files: CertificateFiles, *, chain: bytes, key: bytes, roots: bytes, now: datetime
) -> KeyPair:
    """What is in these files, or is about to be. Raises SettingsError as above."""
    certificate = _certificates(chain, files.certificate)[0]
    _certificates(roots, files.roots)
    try:
        loaded = load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as err:
        raise SettingsError(f"{files.key}: is no private key that can be used here") from err
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if loaded.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
        raise SettingsError(f"{files.key}: does not belong to {files.certificate}")
    claims = claims_of(certificate)
    if now >= claims.not_after:
        raise SettingsError(
            f"{files.certificate}: expired at {claims.not_after:%Y-%m-%d %H:%M:%S} UTC; "
            "get a new one with a join token"
        )
    return KeyPair(key, chain, roots, claims)


def joined_roots(known: bytes, more: bytes) -> bytes:
    """All of them, each once, those known first. ValueError: one of them holds no certificate."""
    there = x509.load_pem_x509_certificates(known)
    new = [one for one in x509.load_pem_x509_certificates(more) if one not in there]
    return b"".join([known, *(one.public_bytes(Encoding.PEM) for one in new)])


def _certificates(pem: bytes, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, InvalidSignature) as err:
        raise SettingsError(f"{path}: holds no certificate") from err


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as err:
        raise SettingsError(
            f"{path}: there is no such file; get a certificate with a join token "
            "(persys-agent join, persysctl certificate join), or start with -insecure for a trial"
        ) from err
    except OSError as err:
        raise SettingsError(f"{path}: {err.strerror}") from err


def _configuration(pair: KeyPair) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(pair.key, pair.chain)], root_certificates=pair.roots
    )
