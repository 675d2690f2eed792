"""The certificate of a process that serves, renewed by the authority if it knows one."""

from datetime import timedelta
from pathlib import Path

from persys.infra.clock import Clock
from persys.infra.files import CertificateFiles
from persys.infra.revocation import EVERY, LOOK, CrlFile, Revocations
from persys.infra.tls import Tls, Verify


def open_renewed(
    files: CertificateFiles,
    clock: Clock,
    *,
    verify: Verify,
    ca_addr: tuple[str, ...],
    crl: str = "",
    crl_every: timedelta = EVERY,
) -> Tls:
    """Without addresses somebody else renews, and only the file `crl` says what is revoked.

    Raises SettingsError for certificates that cannot be used.
    """
    source = None
    lists = _lists(crl, clock)
    if ca_addr:
        from persys.client.authority import AuthoritySource  # others renew in other ways

        source = AuthoritySource(lambda: ca_addr, files)
        lists.append(Revocations(source, clock, every=crl_every))
    return Tls(files, clock, verify=verify, source=source, lists=lists)


def _lists(crl: str, clock: Clock) -> list[Revocations]:
    if not crl:
        return []
    file = CrlFile(Path(crl))
    return [Revocations(file, clock, every=LOOK, serials=file.serials)]
