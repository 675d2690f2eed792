"""TLS of the server processes: a certificate that is renewed by persys-ca or Vault, if configured."""

from collections.abc import Sequence
from pathlib import Path

from persys.client.ca.client import AuthoritySource
from persys.infra.clock import Clock
from persys.infra.tls.revocation import FILE_CHECK_INTERVAL, CrlFile, Revocations
from persys.infra.tls.settings import TlsSettings
from persys.infra.tls.tls import Tls
from persys.infra.vault.pki import VaultSource, names_of
from persys.infra.vault.session import Vault
from persys.infra.vault.settings import VaultSettings
from persys.model.identity import Identity


def open_renewed(settings: TlsSettings, clock: Clock, vault: VaultSource | None) -> Tls:
    """Without persys-ca and Vault, certificates are renewed externally and only tls_crl lists revocations.

    Raises SettingsError for unusable certificates.
    """
    files = settings.files
    source: AuthoritySource | VaultSource | None = vault
    lists = _lists(settings.tls_crl, clock)
    if settings.ca_addr:
        source = AuthoritySource(lambda: settings.ca_addr, files)
    if source is not None:
        cache_file = files.certificate.with_suffix(".revoked")
        lists.append(
            Revocations(source, clock, every=settings.tls_crl_interval, cache_file=cache_file)
        )
    return Tls(
        files,
        clock,
        verify=settings.tls_verify,
        source=source,
        lists=lists,
        cn_roles=settings.cn_roles,
    )


def vault_source(
    settings: VaultSettings,
    vault: Vault,
    identity: Identity,
    *,
    service: str,
    hosts: Sequence[str],
) -> VaultSource:
    """`service` is the start of the common name; `hosts` are additional names and addresses."""
    domain = settings.vault_service_domain.strip(".")
    common_name = f"{service}.{domain}" if domain else service
    return VaultSource(
        vault,
        identity,
        names_of(identity, settings.trust_domain, service=common_name, hosts=hosts),
        mount=settings.vault_pki_mount,
        role=settings.vault_pki_role,
        ttl=settings.vault_cert_ttl,
        every=settings.vault_retry_interval,
    )


def _lists(crl: str, clock: Clock) -> list[Revocations]:
    if not crl:
        return []
    file = CrlFile(Path(crl))
    return [Revocations(file, clock, every=FILE_CHECK_INTERVAL, serials=file.serials)]
