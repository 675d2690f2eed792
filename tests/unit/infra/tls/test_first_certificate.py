"""The first certificate: requested until issued; an unusable one is never used."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from persys.agent.settings import AgentSettings
from persys.ca.x509 import issue, pem
from persys.errors import SettingsError, UnavailableError
from persys.infra.clock import SystemClock
from persys.infra.tls.certificates import CertificateFiles, Certificates
from persys.infra.tls.first_certificate import ensure_certificate
from persys.infra.tls.identity import by_common_name
from persys.infra.tls.keys import Issued, fingerprints
from persys.infra.tls.renewal import CertificateSource
from persys.infra.vault.pki import names_of
from persys.model.identity import Identity, Role
from persys.scheduler.settings import SchedulerSettings
from root_ca import TRUST_DOMAIN, Root

ME = Identity(Role.AGENT, "n1")
HOUR = timedelta(hours=1)


class Source(CertificateSource):
    """Fails a set number of times, then signs."""

    every = timedelta(milliseconds=10)

    def __init__(self, root: Root, *failures: str) -> None:
        self._root = root
        self.failures = list(failures)
        self.asked = 0
        self.was_asked = asyncio.Event()

    async def issue(self, csr_pem: bytes) -> Issued:
        self.asked += 1
        self.was_asked.set()
        if self.failures:
            raise UnavailableError(self.failures.pop(0))
        created = issue(
            self._root.issuer,
            x509.load_pem_x509_csr(csr_pem).public_key(),  # type: ignore[arg-type]  # a fake of the protocol
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
def nowhere(tmp_path: Path) -> CertificateFiles:
    place = tmp_path / "new"
    return CertificateFiles(place / "a.crt", place / "a.key", place / "ca.crt")


async def ensure(files: CertificateFiles, source: Source) -> bool:
    async with asyncio.timeout(10):
        return await ensure_certificate(files, ME, source, SystemClock(), asyncio.Event())


async def test_a_certificate_is_requested_until_issued_and_each_error_is_logged_once(
    root: Root, nowhere: CertificateFiles
) -> None:
    source = Source(root, "down", "down", "sealed", "sealed")

    with capture_logs() as lines:
        assert await ensure(nowhere, source)

    awaited = [line["reason"] for line in lines if line["event"] == "certificate.awaited"]
    assert awaited == ["down", "sealed"]
    assert source.asked == 5
    assert Certificates(nowhere, SystemClock()).current.claims.identity == ME
    assert nowhere.key.stat().st_mode & 0o077 == 0


async def test_a_valid_certificate_on_disk_is_used_without_a_request(root: Root) -> None:
    source = Source(root, "down")

    assert await ensure(root.write(Role.AGENT, "n1"), source)
    assert source.asked == 0


async def test_an_expired_certificate_is_logged_and_replaced(root: Root) -> None:
    files = root.write(Role.AGENT, "n1", age=2 * HOUR, lifetime=HOUR)
    source = Source(root, "down")

    with capture_logs() as lines:
        assert await ensure(files, source)

    logged = [(line["log_level"], line["event"]) for line in lines]
    assert logged[:2] == [("error", "certificate.unusable"), ("error", "certificate.awaited")]
    assert "expired" in lines[0]["reason"]
    assert Certificates(files, SystemClock()).current.claims.not_after > datetime.now(UTC)


async def test_roots_in_the_file_stay_trusted(
    root: Root, nowhere: CertificateFiles, tmp_path: Path
) -> None:
    other = Root(tmp_path / "other")
    nowhere.roots.parent.mkdir()
    nowhere.roots.write_bytes(other.pem)

    assert await ensure(nowhere, Source(root))

    trusted = fingerprints(nowhere.roots.read_bytes())
    assert trusted == [*fingerprints(other.pem), *fingerprints(root.pem)]


async def test_a_process_that_waits_for_its_certificate_can_be_stopped(
    root: Root, nowhere: CertificateFiles
) -> None:
    source, stop = Source(root, *["down"] * 1000), asyncio.Event()
    source.every = HOUR

    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        waiting = group.create_task(ensure_certificate(nowhere, ME, source, SystemClock(), stop))
        await source.was_asked.wait()
        stop.set()

    assert waiting.result() is False
    assert not nowhere.certificate.exists()


def test_a_common_name_that_is_too_long_is_replaced_by_a_fixed_one() -> None:
    name = "n" * 60
    long = names_of(Identity(Role.AGENT, name), "d", service=f"persys-agent-{name}")
    short = names_of(ME, "d", service="persys-agent-n1", hosts=("10.0.0.1", "n1.lan", "::1"))

    assert long.common_name == "agent.persys.internal"
    assert short.common_name == "persys-agent-n1"
    assert short.hosts == (
        "agent.persys.internal",
        "n1.agent.persys.internal",
        "persys-agent-n1",
        "n1.lan",
    )
    assert short.addresses == ("10.0.0.1", "::1")
    assert short.uri == "spiffe://d/agent/n1"


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("persys-agent-n1", ME),
        ("persys-agent-n1.example.org", ME),
        ("n1.default.agents.example.org", ME),
        ("persys-agent-x.agents.example.org", Identity(Role.AGENT, "persys-agent-x")),
        ("persys-agent", None),
        ("persys-agent.example.org", None),
        (
            "persys-scheduler.example.org",
            Identity(Role.SCHEDULER, "persys-scheduler.example.org"),
        ),
    ],
)
def test_a_common_name_with_a_domain_has_an_identity(name: str, identity: Identity | None) -> None:
    assert by_common_name(name) == identity


def test_vault_and_an_authority_together_are_refused_at_start_up() -> None:
    with pytest.raises(SettingsError, match="PERSYS_CA_ADDR"):
        SchedulerSettings(vault_enabled=True, ca_addr=("ca:8888",))
    with pytest.raises(SettingsError, match="PERSYS_CA_ADDR"):
        AgentSettings(vault_enabled=True, ca_addr=("ca:8888",)).check()
