"""A CA for tests: a root certificate, and certificates on disk, written atomically."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from persys.ca.x509 import issue, new_root, pem
from persys.infra.atomic_files import PRIVATE, PUBLIC, write_files
from persys.infra.clock import SystemClock
from persys.infra.tls.certificates import CertificateFiles
from persys.infra.tls.keys import key_pem, new_key
from persys.infra.tls.revocation import Revocations
from persys.infra.tls.tls import Tls, Verify
from persys.model.identity import Identity, Role

LIFETIME = timedelta(days=1)
TRUST_DOMAIN = "test"


class Root:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.issuer = new_root("a root", now=datetime.now(UTC))
        self.pem = pem(self.issuer.certificate)

    def write(
        self,
        role: Role,
        name: str,
        *,
        age: timedelta = timedelta(),
        lifetime: timedelta = LIFETIME,
        hosts: tuple[str, ...] = (),
        roots: bytes = b"",
        trust_domain: str = TRUST_DOMAIN,
    ) -> CertificateFiles:
        """Write a certificate; a repeated call replaces it. With a negative age it is not valid yet."""
        key = new_key()
        created = issue(
            self.issuer,
            key.public_key(),
            Identity(role, name),
            trust_domain=trust_domain,
            hosts=hosts,
            now=datetime.now(UTC) - age,
            lifetime=lifetime,
        )
        place = self._folder / f"{role}-{name}"
        files = CertificateFiles(place / "a.crt", place / "a.key", place / "ca.crt")
        write_files(
            [
                (files.roots, roots or self.pem, PUBLIC),
                (files.key, key_pem(key), PRIVATE),
                (files.certificate, pem(created), PUBLIC),
            ]
        )
        return files

    def write_named(self, common_name: str, *, lifetime: timedelta = LIFETIME) -> CertificateFiles:
        """A third-party certificate: with a common name and 127.0.0.1, and without a URI."""
        key, now = new_key(), datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        hosts = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        created = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.issuer.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + lifetime)
            .add_extension(hosts, critical=False)
            .sign(self.issuer.key, hashes.SHA256())
        )
        place = self._folder / f"named-{common_name.replace('/', '-')}"
        files = CertificateFiles(place / "a.crt", place / "a.key", place / "ca.crt")
        write_files(
            [
                (files.roots, self.pem, PUBLIC),
                (files.key, key_pem(key), PRIVATE),
                (files.certificate, pem(created), PUBLIC),
            ]
        )
        return files

    def tls(
        self,
        role: Role,
        name: str,
        *,
        verify: Verify = Verify.IDENTITY,
        trust_domain: str = TRUST_DOMAIN,
        lists: Sequence[Revocations] = (),
    ) -> Tls:
        files = self.write(role, name, trust_domain=trust_domain)
        return Tls(files, SystemClock(), verify=verify, lists=lists)

    def variables(self, files: CertificateFiles) -> dict[str, str]:
        return {
            "PERSYS_TLS_CA": str(files.roots),
            "PERSYS_TLS_CERT": str(files.certificate),
            "PERSYS_TLS_KEY": str(files.key),
        }


class RevocationList:
    """The list of revoked certificates of a CA."""

    def __init__(self) -> None:
        self.serials: set[str] = set()

    async def revoked(self) -> frozenset[str]:
        return frozenset(self.serials)

    def revoke(self, tls: Tls) -> None:
        self.serials.add(tls.certificates.current.claims.serial)

    def read_often(self) -> Revocations:
        return Revocations(self, SystemClock(), every=timedelta(seconds=0.05))
