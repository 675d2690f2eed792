"""What a process can be told about Vault: the same variables for all, each with names of its own."""

from dataclasses import dataclass
from datetime import timedelta

from persys.errors import SettingsError
from persys.infra.settings import setting
from persys.infra.vault_login import AuthMethod


@dataclass(frozen=True)
class VaultSettings:
    vault_enabled: bool = setting(
        False, "PERSYS_VAULT_ENABLED", help="get the certificate, and secrets, from Vault"
    )
    vault_addr: str = setting(
        "http://127.0.0.1:8200", "PERSYS_VAULT_ADDR", help="where Vault listens"
    )
    vault_ca_path: str = setting(
        "", "PERSYS_VAULT_CA_PATH", help="roots of an https address; else the machine's"
    )
    vault_namespace: str = setting(
        "", "PERSYS_VAULT_NAMESPACE", help="namespace in Vault, where it has them"
    )
    vault_auth_method: AuthMethod = setting(
        AuthMethod.TOKEN, "PERSYS_VAULT_AUTH_METHOD", help="how to log in: token or approle"
    )
    vault_token: str = setting(
        "", "PERSYS_VAULT_TOKEN", help="the token, for the method token", secret=True
    )
    vault_approle_role_id: str = setting(
        "", "PERSYS_VAULT_APPROLE_ROLE_ID", help="role id, for the method approle"
    )
    vault_approle_secret_id: str = setting(
        "",
        "PERSYS_VAULT_APPROLE_SECRET_ID",
        help="secret id, for the method approle",
        secret=True,
    )
    vault_pki_mount: str = setting(
        "pki", "PERSYS_VAULT_PKI_MOUNT", help="where the PKI engine is mounted"
    )
    vault_pki_role: str = setting("", "PERSYS_VAULT_PKI_ROLE", help="role of the PKI engine")
    vault_cert_ttl: timedelta = setting(
        timedelta(hours=24), "PERSYS_VAULT_CERT_TTL", help="how long a certificate shall live"
    )
    vault_retry_interval: timedelta = setting(
        timedelta(minutes=1),
        "PERSYS_VAULT_RETRY_INTERVAL",
        help="between tries to get a certificate while Vault gives none",
    )
    vault_service_name: str = setting(
        "", "PERSYS_VAULT_SERVICE_NAME", help="common name of the certificate"
    )
    vault_service_domain: str = setting(
        "", "PERSYS_VAULT_SERVICE_DOMAIN", help="domain after that name"
    )
    trust_domain: str = setting(
        "persys.local", "PERSYS_TRUST_DOMAIN", help="of the identity in Vault's certificates"
    )

    def check_vault(self) -> None:
        """Raises SettingsError for what cannot be meant."""
        if self.vault_cert_ttl < timedelta(seconds=1):
            raise SettingsError("PERSYS_VAULT_CERT_TTL: expected 1s or more")
        if self.vault_retry_interval <= timedelta():
            raise SettingsError("PERSYS_VAULT_RETRY_INTERVAL: expected more than 0s")
