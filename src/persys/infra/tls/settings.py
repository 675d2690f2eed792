"""TLS settings, common to all processes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from persys.errors import SettingsError
from persys.infra.atomic_files import CertificateFiles
from persys.infra.settings import setting
from persys.infra.tls.identity import CN_ROLES
from persys.infra.tls.tls import Verify
from persys.infra.vault.settings import VaultSettings
from persys.model.identity import Role

_CALLERS = tuple(role for role in Role if role is not Role.CA)


@dataclass(frozen=True)
class TlsSettings(VaultSettings):
    tls_ca: Path = setting(
        Path("/etc/persys/certs/ca.pem"), "PERSYS_TLS_CA", help="trusted CA certificates"
    )
    tls_cert: Path = setting(
        Path("/etc/persys/certs/persys.crt"), "PERSYS_TLS_CERT", help="certificate of this process"
    )
    tls_key: Path = setting(
        Path("/etc/persys/certs/persys.key"),
        "PERSYS_TLS_KEY",
        help="private key of the certificate",
    )
    tls_verify: Verify = setting(
        Verify.IDENTITY,
        "PERSYS_TLS_VERIFY",
        help="how servers are verified: identity, or host for third-party certificates",
    )
    tls_cn_roles: dict[str, str] = setting(
        {},
        CN_ROLES,
        help="roles of third-party certificates by common name, for example compute-agent=agent",
    )
    ca_addr: tuple[str, ...] = setting(
        (),
        "PERSYS_CA_ADDR",
        help="host:port of persys-ca, which renews the certificate; none: renewed by other means",
    )
    tls_crl: str = setting(
        "",
        "PERSYS_TLS_CRL",
        help="file with a list of revoked certificates (PEM or DER), in addition to that of persys-ca",
    )
    tls_crl_interval: timedelta = setting(
        timedelta(minutes=1),
        "PERSYS_TLS_CRL_INTERVAL",
        help="interval at which revoked certificates are fetched from persys-ca",
    )

    @property
    def cn_roles(self) -> Mapping[str, Role]:
        return {name: Role(role) for name, role in self.tls_cn_roles.items()}

    @property
    def files(self) -> CertificateFiles:
        return CertificateFiles(self.tls_cert, self.tls_key, self.tls_ca)

    def check_tls(self) -> None:
        """Check values that depend on each other. Raises SettingsError."""
        for name, role in self.tls_cn_roles.items():
            if role not in _CALLERS:
                raise SettingsError(f"{CN_ROLES}={name}={role}: expected {' or '.join(_CALLERS)}")
        if not self.vault_enabled:
            return
        if self.ca_addr:
            raise SettingsError(
                "PERSYS_VAULT_ENABLED and PERSYS_CA_ADDR are both set; "
                "a certificate is renewed by Vault or by persys-ca; set only one of them"
            )
        self.check_vault()
