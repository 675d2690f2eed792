"""The certificate of a process that serves, renewed by the authority if it knows one."""

from persys.infra.clock import Clock
from persys.infra.files import CertificateFiles
from persys.infra.tls import Tls, Verify


def open_renewed(
    files: CertificateFiles, clock: Clock, *, verify: Verify, ca_addr: tuple[str, ...]
) -> Tls:
    """Without addresses somebody else renews. Raises SettingsError for certificates that cannot be used."""
    source = None
    if ca_addr:
        from persys.client.authority import AuthoritySource  # others renew in other ways

        source = AuthoritySource(lambda: ca_addr, files)
    return Tls(files, clock, verify=verify, source=source)
