"""An authority that is down for a day, in virtual time: renewal, expiry and logs."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from persys.ca.x509 import issue, pem
from persys.errors import UnavailableError
from persys.infra.clock import SystemClock
from persys.infra.tls.certificates import CertificateFiles, Certificates
from persys.infra.tls.keys import Issued
from persys.infra.tls.renewal import CertificateSource, Renewal
from persys.model.identity import Identity, Role
from root_ca import TRUST_DOMAIN, Root

ME = Identity(Role.AGENT, "n1")
DAY = timedelta(days=1)
BEGUN = datetime.now(UTC)


class ManualClock(SystemClock):
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.passed = timedelta()

    def now(self) -> datetime:
        return BEGUN + self.passed


class FakeCa(CertificateSource):
    def __init__(self, root: Root, clock: ManualClock, lifetime: timedelta) -> None:
        self._root = root
        self._clock = clock
        self._lifetime = lifetime
        self.is_away = False
        self.tries = 0

    async def issue(self, csr_pem: bytes) -> Issued:
        self.tries += 1
        if self.is_away:
            raise UnavailableError("the authority does not respond")
        key = x509.load_pem_x509_csr(csr_pem).public_key()
        created = issue(
            self._root.issuer,
            key,  # type: ignore[arg-type]  # a fake of the protocol
            ME,
            trust_domain=TRUST_DOMAIN,
            now=self._clock.now(),
            lifetime=self._lifetime,
        )
        return Issued(pem(created), self._root.pem)


class Node:
    def __init__(self, folder: Path, lifetime: timedelta) -> None:
        self.root = Root(folder)
        self.clock = ManualClock()
        self.files: CertificateFiles = self.root.write(Role.AGENT, "n1", lifetime=lifetime)
        self.certificates = Certificates(self.files, self.clock)
        self.ca = FakeCa(self.root, self.clock, lifetime)
        self._renewal = Renewal(self.certificates, self.files, self.ca, self.clock, Random(1))

    async def run_for(self, span: timedelta) -> list[str]:
        """The events logged during that time."""
        until = self.clock.passed + span
        with capture_logs() as lines:
            while self.clock.passed < until:
                self.clock.passed += timedelta(minutes=1)
                await self._renewal.renew_if_due()
        return [line["event"] for line in lines]

    def seconds_left(self) -> float:
        return (self.certificates.expires_at - self.clock.now()).total_seconds()


@pytest.mark.parametrize("lifetime", [3 * DAY, 2.5 * DAY])
async def test_an_authority_down_for_a_day_has_no_effect_on_longer_certificates(
    tmp_path: Path, lifetime: timedelta
) -> None:
    node = Node(tmp_path, lifetime)
    await node.run_for(lifetime / 2 - timedelta(minutes=10))
    node.ca.is_away = True
    log_events = await node.run_for(DAY)
    assert log_events == ["certificate.not_renewed"]
    assert node.seconds_left() > 0
    assert node.ca.tries < 100

    node.ca.is_away = False
    log_events = await node.run_for(timedelta(hours=2))
    assert log_events == ["certificate.renewed_again", "certificate.swapped"]
    assert node.seconds_left() > (lifetime * 0.9).total_seconds()


async def test_a_certificate_that_expires_is_logged_as_an_error_and_a_token_replaces_it(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, DAY)
    await node.run_for(DAY / 4)
    node.ca.is_away = True
    assert await node.run_for(DAY) == ["certificate.not_renewed", "certificate.expires"]
    assert node.seconds_left() < 0

    # What `persys-agent join` writes is taken without a restart.
    node.root.write(Role.AGENT, "n1", lifetime=3 * DAY)
    assert node.certificates.reload()
    assert node.seconds_left() > 0
