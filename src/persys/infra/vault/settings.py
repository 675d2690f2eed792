"""Vault settings, common to all processes."""

from dataclasses import dataclass
from datetime import timedelta

from persys.errors import SettingsError
from persys.infra.settings import setting
from persys.infra.vault.login import AuthMethod


@dataclass(frozen=True)
class VaultSettings:
    vault_enabled: bool = setting(
        False, "PERSYS_VAULT_ENABLED", help="get the certificate and secrets from Vault"
    )
    vault_addr: str = setting("http://127.0.0.1:8200", "PERSYS_VAULT_ADDR", help="URL of Vault")
    vault_ca_path: str = setting(
        "", "PERSYS_VAULT_CA_PATH", help="CA certificates for https; none: those of the system"
    )
    vault_namespace: str = setting("", "PERSYS_VAULT_NAMESPACE", help="Vault namespace")
    vault_auth_method: AuthMethod = setting(
        AuthMethod.TOKEN, "PERSYS_VAULT_AUTH_METHOD", help="login method: token or approle"
    )
    vault_token: str = setting(
        "", "PERSYS_VAULT_TOKEN", help="token for the method token", secret=True
    )
    vault_approle_role_id: str = setting(
        "", "PERSYS_VAULT_APPROLE_ROLE_ID", help="role id for the method approle"
    )
    vault_approle_secret_id: str = setting(
        "",
        "PERSYS_VAULT_APPROLE_SECRET_ID",
        help="secret id for the method approle",
        secret=True,
    )
    vault_pki_mount: str = setting(
        "pki", "PERSYS_VAULT_PKI_MOUNT", help="mount path of the PKI engine"
    )
    vault_pki_role: str = setting("", "PERSYS_VAULT_PKI_ROLE", help="role of the PKI engine")
    vault_cert_ttl: timedelta = setting(
        timedelta(hours=24), "PERSYS_VAULT_CERT_TTL", help="lifetime of a certificate"
    )
    vault_retry_interval: timedelta = setting(
        timedelta(minutes=1),
        "PERSYS_VAULT_RETRY_INTERVAL",
        help="interval between failed attempts to get a certificate from Vault",
    )
    vault_service_name: str = setting(
        "", "PERSYS_VAULT_SERVICE_NAME", help="common name of the certificate"
    )
    vault_service_domain: str = setting(
        "", "PERSYS_VAULT_SERVICE_DOMAIN", help="domain that is appended to the common name"
    )
    trust_domain: str = setting(
        "persys.local",
        "PERSYS_TRUST_DOMAIN",
        help="trust domain of the identity in certificates from Vault",
    )

    def check_vault(self) -> None:
        """Raises SettingsError for invalid durations."""
        if self.vault_cert_ttl < timedelta(seconds=1):
            raise SettingsError("PERSYS_VAULT_CERT_TTL: expected 1s or more")
        if self.vault_retry_interval <= timedelta():
            raise SettingsError("PERSYS_VAULT_RETRY_INTERVAL: expected more than 0s")
