"""Certificate renewal: requests, written files, and an authority that is down."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from cryptography import x509
from msgspec.structs import replace

from persys.ca.x509 import issue, new_root, pem
from persys.errors import SettingsError, UnavailableError
from persys.infra.clock import SystemClock
from persys.infra.tls.certificates import CertificateFiles, Certificates
from persys.infra.tls.keys import Issued
from persys.infra.tls.renewal import CertificateSource, Renewal
from persys.model.identity import Identity, Role
from root_ca import TRUST_DOMAIN, Root

HOUR = timedelta(hours=1)
ME = Identity(Role.AGENT, "n1")


class Source(CertificateSource):
    """An authority that signs every request, unless the test sets an error."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self.answer: Issued | None = None
        self.failure: BaseException | None = None
        self.asked: list[x509.CertificateSigningRequest] = []

    async def issue(self, csr_pem: bytes) -> Issued:
        request = x509.load_pem_x509_csr(csr_pem)
        self.asked.append(request)
        if self.failure is not None:
            raise self.failure
        if self.answer is not None:
            return self.answer
        created = issue(
            self._root.issuer,
            request.public_key(),  # type: ignore[arg-type]  # a fake of the protocol
            ME,
            trust_domain=TRUST_DOMAIN,
            now=datetime.now(UTC),
            lifetime=HOUR,
        )
        return Issued(pem(created), self._root.pem)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


@pytest.fixture
def files(root: Root) -> CertificateFiles:
    return root.write(Role.AGENT, "n1")


@pytest.fixture
def certificates(files: CertificateFiles) -> Certificates:
    return Certificates(files, SystemClock())


@pytest.fixture
def source(root: Root) -> Source:
    return Source(root)


@pytest.fixture
def renewal(certificates: Certificates, files: CertificateFiles, source: Source) -> Renewal:
    return Renewal(certificates, files, source, SystemClock(), Random(1))


async def test_a_new_certificate_has_a_new_key_and_is_in_use_at_once(
    renewal: Renewal, certificates: Certificates, files: CertificateFiles
) -> None:
    before = certificates.current

    assert await renewal.renew()

    assert certificates.current.key != before.key
    assert certificates.current.claims.identity == ME
    assert files.key.stat().st_mode & 0o077 == 0
    assert Certificates(files, SystemClock()).current == certificates.current


@pytest.mark.parametrize(
    "failure", [UnavailableError("down"), TimeoutError(), SettingsError("odd"), OSError("disk")]
)
async def test_a_failed_renewal_changes_nothing(
    renewal: Renewal,
    certificates: Certificates,
    files: CertificateFiles,
    source: Source,
    failure: BaseException,
) -> None:
    before = certificates.current
    source.failure = failure

    assert not await renewal.renew()

    assert certificates.current is before
    assert Certificates(files, SystemClock()).current == before
    assert renewal.last_error


async def test_an_unusable_certificate_is_not_written(
    renewal: Renewal, files: CertificateFiles, source: Source, root: Root
) -> None:
    before = files.certificate.read_bytes()
    for chain in (b"garbage", root.pem):  # the root has another key
        source.answer = Issued(chain, root.pem)
        assert not await renewal.renew()

    assert files.certificate.read_bytes() == before


async def test_roots_added_by_an_operator_stay_trusted(
    renewal: Renewal, certificates: Certificates, files: CertificateFiles, root: Root
) -> None:
    other = pem(new_root("another", now=datetime.now(UTC)).certificate)
    files.roots.write_bytes(other + root.pem)
    certificates.reload()

    await renewal.renew()

    assert files.roots.read_bytes() == other + root.pem


async def test_renewal_succeeds_once_the_source_is_back(renewal: Renewal, source: Source) -> None:
    source.failure = UnavailableError("down")
    await renewal.renew()
    source.failure = None

    assert await renewal.renew()
    assert not renewal.last_error


def test_a_certificate_without_an_identity_cannot_be_renewed(
    certificates: Certificates, files: CertificateFiles, source: Source, root: Root
) -> None:
    pair = certificates.current
    certificates.current = replace(pair, claims=replace(pair.claims, identity=None))
    with pytest.raises(SettingsError, match="identity is not recognised"):
        Renewal(certificates, files, source, SystemClock(), Random(1))
