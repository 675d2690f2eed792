"""The key files of the CA: the root, and the intermediate that signs all certificates.

Each file has certificate and key, and is written atomically. Files are created at the first start only: if a
file exists but cannot be read, the start fails. The root key may be removed from its file and stored offline;
it is needed again when the intermediate has passed half of its lifetime.
"""

from datetime import datetime
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from msgspec import Struct

from persys.ca.x509 import Issuer, new_intermediate, new_root, pem
from persys.core.auth.certificate_renewal import renew_at
from persys.errors import SettingsError
from persys.infra.atomic_files import PUBLIC, write_file
from persys.infra.tls.keys import key_pem

log = structlog.get_logger()

ROOT = "root.pem"
INTERMEDIATE = "intermediate.pem"
ROOTS = "roots.crt"  # a copy of the root certificate for distribution
DATABASE_FILE = "book.db"
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
_OTHERS = 0o077


class Keys(Struct, frozen=True):
    root: x509.Certificate
    issuer: Issuer  # the intermediate

    @property
    def roots_pem(self) -> bytes:
        return pem(self.root)

    @property
    def chain_pem(self) -> bytes:
        """The intermediate, sent with every certificate."""
        return pem(self.issuer.certificate)


class _KeyFile(Struct, frozen=True):
    certificate: x509.Certificate
    key: CertificateIssuerPrivateKeyTypes | None


def open_keys(folder: Path, *, trust_domain: str, passphrase: bytes, now: datetime) -> Keys:
    """Raises SettingsError with the file and the problem."""
    try:
        _restrict_folder(folder)
        return _open(folder, trust_domain, passphrase, now)
    except OSError as err:
        raise SettingsError(f"{err.filename or folder}: {err.strerror}") from err


def _open(folder: Path, trust_domain: str, passphrase: bytes, now: datetime) -> Keys:
    root = _root(folder, trust_domain, passphrase, now)
    path = folder / INTERMEDIATE
    stored = _load(path, passphrase) if path.exists() else None
    if stored is not None:
        _check_intermediate(path, stored, root)
    if stored is None or stored.key is None or _is_due(stored.certificate, now):
        stored = _new_intermediate(folder, stored, root, trust_domain, passphrase, now)
    assert stored.key is not None, "a new intermediate has its key"
    write_file(folder / ROOTS, pem(root.certificate), mode=PUBLIC)
    return Keys(root.certificate, Issuer(stored.certificate, stored.key))


def _root(folder: Path, trust_domain: str, passphrase: bytes, now: datetime) -> _KeyFile:
    path = folder / ROOT
    if path.exists():
        stored = _load(path, passphrase)
        if now >= stored.certificate.not_valid_after_utc:
            raise SettingsError(
                f"{path}: the root certificate has expired, and so have all certificates under it; "
                "create a new CA in another directory"
            )
        return stored
    for name in (INTERMEDIATE, DATABASE_FILE):
        if (folder / name).exists():
            raise SettingsError(
                f"{folder / name} exists but {path} does not: restore it, "
                "or use another directory for a new CA"
            )
    created = new_root(f"Persys root {trust_domain}", now=now, trust_domain=trust_domain)
    _save(path, created, passphrase)
    log.info("root.made", path=str(path), expires_at=created.certificate.not_valid_after_utc)
    return _KeyFile(created.certificate, created.key)


def _new_intermediate(
    folder: Path,
    old: _KeyFile | None,
    root: _KeyFile,
    trust_domain: str,
    passphrase: bytes,
    now: datetime,
) -> _KeyFile:
    path = folder / INTERMEDIATE
    if root.key is None:
        if old is None or old.key is None:
            raise SettingsError(
                f"{path}: not usable, and a new one needs the root key: restore it in {folder / ROOT}"
            )
        if now >= old.certificate.not_valid_after_utc:
            raise SettingsError(
                f"{path}: has expired; a new one needs the root key: restore it in {folder / ROOT}"
            )
        log.warning(
            "intermediate.due", path=str(path), expires_at=old.certificate.not_valid_after_utc
        )
        return old
    created = new_intermediate(
        Issuer(root.certificate, root.key), f"Persys intermediate {trust_domain}", now=now
    )
    _save(path, created, passphrase)
    log.info(
        "intermediate.made", path=str(path), expires_at=created.certificate.not_valid_after_utc
    )
    return _KeyFile(created.certificate, created.key)


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    return now >= renew_at(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def _check_intermediate(path: Path, stored: _KeyFile, root: _KeyFile) -> None:
    try:
        stored.certificate.verify_directly_issued_by(root.certificate)
    except (ValueError, TypeError, InvalidSignature) as err:
        raise SettingsError(f"{path}: was not issued by {path.with_name(ROOT)}") from err


def _load(path: Path, passphrase: bytes) -> _KeyFile:
    _restrict_file(path)
    content = path.read_bytes()
    try:
        certificate = x509.load_pem_x509_certificate(content)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (ValueError, x509.ExtensionNotFound) as err:
        raise SettingsError(f"{path}: expected a CA certificate in PEM format") from err
    if not constraints.ca:
        raise SettingsError(f"{path}: expected a CA certificate in PEM format")
    if b"PRIVATE KEY-----" not in content:
        return _KeyFile(certificate, None)
    encrypted = b"ENCRYPTED" in content
    if encrypted and not passphrase:
        raise SettingsError(f"{path}: is encrypted; set PERSYS_CA_PASSPHRASE_FILE")
    try:
        key = load_pem_private_key(content, passphrase if encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as err:
        reason = "wrong passphrase" if encrypted else "expected a private key in PEM format"
        raise SettingsError(f"{path}: {reason}") from err
    if not isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        raise SettingsError(f"{path}: unsupported private key: expected ECDSA or RSA")
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if key.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
        raise SettingsError(f"{path}: key and certificate do not match")
    if passphrase and not encrypted:
        _save(path, Issuer(certificate, key), passphrase)
        log.info("key.encrypted", path=str(path))
    return _KeyFile(certificate, key)


def _save(path: Path, issuer: Issuer, passphrase: bytes) -> None:
    write_file(path, pem(issuer.certificate) + key_pem(issuer.key, passphrase))


def _restrict_folder(folder: Path) -> None:
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    if folder.stat().st_mode & _OTHERS:
        folder.chmod(_FOLDER_MODE)


def _restrict_file(path: Path) -> None:
    if path.stat().st_mode & _OTHERS:
        log.warning("key.open_to_others", path=str(path))
        path.chmod(_FILE_MODE)
