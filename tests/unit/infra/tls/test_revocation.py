"""The revocation list stays in use during an outage, and is read again when its file changes."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from structlog.testing import capture_logs

from persys.ca.x509 import Issuer, new_root
from persys.errors import SettingsError, UnavailableError
from persys.infra.clock import SystemClock
from persys.infra.tls.revocation import CrlFile, Revocations


class Source:
    def __init__(self) -> None:
        self.serials = frozenset({"a1"})
        self.is_away = False

    async def revoked(self) -> frozenset[str]:
        if self.is_away:
            raise UnavailableError("nobody answers")
        return self.serials


class Watch(SystemClock):
    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def a_list(issuer: Issuer, serials: Sequence[int], encoding: Encoding) -> bytes:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(now)
        .next_update(now + timedelta(days=1))
    )
    for serial in serials:
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder(serial, now).build()
        )
    return builder.sign(issuer.key, hashes.SHA256()).public_bytes(encoding)


@pytest.fixture
def issuer() -> Issuer:
    return new_root("a root", now=datetime.now(UTC))


async def test_the_last_list_stays_in_use_during_an_outage_that_is_logged_once() -> None:
    source, watch = Source(), Watch()
    revocations = Revocations(source, watch)
    with capture_logs() as lines:
        await revocations.refresh()
        source.is_away = True
        for _ in range(3):
            watch.seconds += 60
            await revocations.refresh()
        assert revocations.serials == {"a1"}
        assert revocations.age_seconds() == 180
        assert revocations.last_error == "nobody answers"
        source.is_away = False
        await revocations.refresh()
    assert revocations.age_seconds() == 0
    assert revocations.last_error == ""
    logged = [line["event"] for line in lines]
    assert logged == ["revocations.changed", "revocations.kept", "revocations.read_again"]


async def test_the_last_list_is_used_after_a_restart_without_its_source(tmp_path: Path) -> None:
    source, cache_file = Source(), tmp_path / "agent.revoked"
    await Revocations(source, SystemClock(), cache_file=cache_file).refresh()
    source.is_away = True

    again = Revocations(source, SystemClock(), cache_file=cache_file)
    await again.refresh()

    assert again.serials == {"a1"}


async def test_a_list_that_cannot_be_written_is_used_anyway(tmp_path: Path) -> None:
    revocations = Revocations(Source(), SystemClock(), cache_file=tmp_path)
    with capture_logs() as lines:
        await revocations.refresh()
    assert revocations.serials == {"a1"}
    assert lines[-1]["event"] == "revocations.not_written"


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER])
async def test_a_file_is_read_again_when_it_changes(
    tmp_path: Path, issuer: Issuer, encoding: Encoding
) -> None:
    path = tmp_path / "crl"
    path.write_bytes(a_list(issuer, [0xA1], encoding))
    file = CrlFile(path)
    assert file.serials == {"a1"}
    path.write_bytes(a_list(issuer, [0xA1, 0xB2], encoding))
    assert await file.revoked() == {"a1", "b2"}


async def test_one_file_may_contain_several_lists(tmp_path: Path, issuer: Issuer) -> None:
    path = tmp_path / "crl"
    lists = [a_list(issuer, [serial], Encoding.PEM) for serial in (1, 2)]
    path.write_bytes(b"".join(lists))
    assert CrlFile(path).serials == {"1", "2"}


async def test_an_invalid_file_does_not_replace_the_list_in_use(
    tmp_path: Path, issuer: Issuer
) -> None:
    path = tmp_path / "crl"
    path.write_bytes(a_list(issuer, [0xA1], Encoding.PEM))
    file = CrlFile(path)
    revocations = Revocations(file, SystemClock(), serials=file.serials)
    path.write_bytes(b"garbage")
    for _ in range(2):
        await revocations.refresh()
        assert revocations.serials == {"a1"}
        assert "invalid revocation list" in revocations.last_error


def test_a_configured_list_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        CrlFile(tmp_path / "crl")
