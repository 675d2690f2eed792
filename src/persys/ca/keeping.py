"""The authority's own keys on disk: a root, and the intermediate that signs everything.

Each is one file with certificate and key, so that it is there whole or not at all. They are made at the first
start only: where something is there already but cannot be read, the start ends instead. What would surprise:
the root's key may be taken out of its file and kept elsewhere; it is needed again when the intermediate is
past half of its life.
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

from persys.ca.issuing import Issuer, new_intermediate, new_root, pem
from persys.core.renewal import renew_at
from persys.errors import SettingsError
from persys.infra.files import PUBLIC, write_whole
from persys.infra.keys import key_pem

log = structlog.get_logger()

ROOT = "root.pem"
INTERMEDIATE = "intermediate.pem"
ROOTS = "roots.crt"  # a copy of the root's certificate, to give away
BOOK = "book.db"
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
        """What goes with every certificate."""
        return pem(self.issuer.certificate)


class _Kept(Struct, frozen=True):
    certificate: x509.Certificate
    key: CertificateIssuerPrivateKeyTypes | None


def open_keys(folder: Path, *, trust_domain: str, passphrase: bytes, now: datetime) -> Keys:
    """Raises SettingsError that names the file and what is wrong with it."""
    try:
        _close_to_others(folder)
        return _open(folder, trust_domain, passphrase, now)
    except OSError as err:
        raise SettingsError(f"{err.filename or folder}: {err.strerror}") from err


def _open(folder: Path, trust_domain: str, passphrase: bytes, now: datetime) -> Keys:
    root = _root(folder, trust_domain, passphrase, now)
    path = folder / INTERMEDIATE
    kept = _load(path, passphrase) if path.exists() else None
    if kept is not None:
        _check_intermediate(path, kept, root)
    if kept is None or kept.key is None or _is_due(kept.certificate, now):
        kept = _new_intermediate(folder, kept, root, trust_domain, passphrase, now)
    assert kept.key is not None, "what is made has its key"
    write_whole(folder / ROOTS, pem(root.certificate), mode=PUBLIC)
    return Keys(root.certificate, Issuer(kept.certificate, kept.key))


def _root(folder: Path, trust_domain: str, passphrase: bytes, now: datetime) -> _Kept:
    path = folder / ROOT
    if path.exists():
        kept = _load(path, passphrase)
        if now >= kept.certificate.not_valid_after_utc:
            raise SettingsError(
                f"{path}: the root has expired; nothing that it vouches for is valid"
            )
        return kept
    for name in (INTERMEDIATE, BOOK):
        if (folder / name).exists():
            raise SettingsError(
                f"{folder / name} is there but {path} is not: put it back, "
                "or name another directory for a new authority"
            )
    made = new_root(f"Persys root {trust_domain}", now=now, trust_domain=trust_domain)
    _save(path, made, passphrase)
    log.info("root.made", path=str(path), expires_at=made.certificate.not_valid_after_utc)
    return _Kept(made.certificate, made.key)


def _new_intermediate(
    folder: Path,
    old: _Kept | None,
    root: _Kept,
    trust_domain: str,
    passphrase: bytes,
    now: datetime,
) -> _Kept:
    path = folder / INTERMEDIATE
    if root.key is None:
        if old is None or old.key is None:
            raise SettingsError(f"{path}: needed, and without the root's key none can be made")
        if now >= old.certificate.not_valid_after_utc:
            raise SettingsError(
                f"{path}: has expired; put the root's key back into {folder / ROOT} for a new one"
            )
        log.warning(
            "intermediate.due", path=str(path), expires_at=old.certificate.not_valid_after_utc
        )
        return old
    made = new_intermediate(
        Issuer(root.certificate, root.key), f"Persys intermediate {trust_domain}", now=now
    )
    _save(path, made, passphrase)
    log.info("intermediate.made", path=str(path), expires_at=made.certificate.not_valid_after_utc)
    return _Kept(made.certificate, made.key)


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    return now >= renew_at(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def _check_intermediate(path: Path, kept: _Kept, root: _Kept) -> None:
    try:
        kept.certificate.verify_directly_issued_by(root.certificate)
    except (ValueError, TypeError, InvalidSignature) as err:
        raise SettingsError(f"{path}: was not issued by {path.with_name(ROOT)}") from err


def _load(path: Path, passphrase: bytes) -> _Kept:
    _close_file(path)
    content = path.read_bytes()
    try:
        certificate = x509.load_pem_x509_certificate(content)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except (ValueError, x509.ExtensionNotFound) as err:
        raise SettingsError(f"{path}: holds no certificate of an authority") from err
    if not constraints.ca:
        raise SettingsError(f"{path}: holds no certificate of an authority")
    if b"PRIVATE KEY-----" not in content:
        return _Kept(certificate, None)
    encrypted = b"ENCRYPTED" in content
    if encrypted and not passphrase:
        raise SettingsError(f"{path}: is encrypted; PERSYS_CA_PASSPHRASE_FILE says with what")
    try:
        key = load_pem_private_key(content, passphrase if encrypted else None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as err:
        reason = "the passphrase is another" if encrypted else "holds no key that can be used"
        raise SettingsError(f"{path}: {reason}") from err
    if not isinstance(key, (ec.EllipticCurvePrivateKey, rsa.RSAPrivateKey)):
        raise SettingsError(f"{path}: holds no key that can be used: expected ECDSA or RSA")
    form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    if key.public_key().public_bytes(*form) != certificate.public_key().public_bytes(*form):
        raise SettingsError(f"{path}: key and certificate do not belong together")
    if passphrase and not encrypted:
        _save(path, Issuer(certificate, key), passphrase)
        log.info("key.encrypted", path=str(path))
    return _Kept(certificate, key)


def _save(path: Path, issuer: Issuer, passphrase: bytes) -> None:
    write_whole(path, pem(issuer.certificate) + key_pem(issuer.key, passphrase))


def _close_to_others(folder: Path) -> None:
    folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    if folder.stat().st_mode & _OTHERS:
        folder.chmod(_FOLDER_MODE)


def _close_file(path: Path) -> None:
    if path.stat().st_mode & _OTHERS:
        log.warning("key.open_to_others", path=str(path))
        path.chmod(_FILE_MODE)
