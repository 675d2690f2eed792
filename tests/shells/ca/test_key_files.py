"""Key files and database: created once, private, and never replaced."""

import sqlite3
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from persys.ca.database import CaDatabase
from persys.ca.key_files import DATABASE_FILE, INTERMEDIATE, ROOT, ROOTS, Keys, open_keys
from persys.ca.settings import CaSettings
from persys.ca.x509 import INTERMEDIATE_LIFETIME, new_root, pem
from persys.errors import SettingsError
from persys.infra.tls.keys import key_pem
from persys.wire.ca.messages import AuditLine, CertificateView

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def opened(folder: Path, *, passphrase: bytes = b"", now: datetime = NOW) -> Keys:
    return open_keys(folder, trust_domain="persys.local", passphrase=passphrase, now=now)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_keys_are_created_once_and_readable_by_the_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    first = opened(folder)

    again = opened(folder)

    assert again.root == first.root
    assert again.issuer.certificate == first.issuer.certificate
    assert mode(folder) == 0o700
    assert {mode(folder / name) for name in (ROOT, INTERMEDIATE)} == {0o600}
    assert (folder / ROOTS).read_bytes() == first.roots_pem


def test_key_files_that_others_can_read_are_restricted(tmp_path: Path) -> None:
    folder = tmp_path / "ca"
    opened(folder)
    (folder / ROOT).chmod(0o644)
    folder.chmod(0o755)

    opened(folder)

    assert (mode(folder), mode(folder / ROOT)) == (0o700, 0o600)


def test_a_passphrase_encrypts_existing_plain_keys(tmp_path: Path) -> None:
    first = opened(tmp_path)

    opened(tmp_path, passphrase=b"open sesame")

    for name in (ROOT, INTERMEDIATE):
        assert b"BEGIN ENCRYPTED PRIVATE KEY" in (tmp_path / name).read_bytes()
    assert opened(tmp_path, passphrase=b"open sesame").root == first.root
    with pytest.raises(SettingsError, match="is encrypted; set PERSYS_CA_PASSPHRASE_FILE"):
        opened(tmp_path)
    with pytest.raises(SettingsError, match="wrong passphrase"):
        opened(tmp_path, passphrase=b"open barley")


@pytest.mark.parametrize("name", [ROOT, INTERMEDIATE])
@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff" * 100])
def test_an_invalid_key_file_stops_the_start_and_is_not_changed(
    tmp_path: Path, name: str, content: bytes
) -> None:
    opened(tmp_path)
    (tmp_path / name).write_bytes(content)

    with pytest.raises(SettingsError, match=name):
        opened(tmp_path)
    assert (tmp_path / name).read_bytes() == content


@pytest.mark.parametrize("left", [INTERMEDIATE, DATABASE_FILE])
def test_a_missing_root_is_not_recreated(tmp_path: Path, left: str) -> None:
    opened(tmp_path)
    CaDatabase(tmp_path / DATABASE_FILE, trust_domain="persys.local").close()
    for name in (ROOT, INTERMEDIATE, DATABASE_FILE):
        if name != left:
            (tmp_path / name).unlink()

    with pytest.raises(SettingsError, match=r"root\.pem does not: restore it"):
        opened(tmp_path)
    assert not (tmp_path / ROOT).exists()


def test_an_intermediate_of_another_root_is_rejected(tmp_path: Path) -> None:
    opened(tmp_path)
    other = new_root("another", now=NOW)
    (tmp_path / INTERMEDIATE).write_bytes(pem(other.certificate) + key_pem(other.key))

    with pytest.raises(SettingsError, match="was not issued by"):
        opened(tmp_path)


def test_the_root_key_can_be_offline_until_the_intermediate_is_due(tmp_path: Path) -> None:
    first = opened(tmp_path)
    complete = (tmp_path / ROOT).read_bytes()
    (tmp_path / ROOT).write_bytes(first.roots_pem)

    assert opened(tmp_path).issuer.certificate == first.issuer.certificate
    later = NOW + INTERMEDIATE_LIFETIME * 0.6
    assert opened(tmp_path, now=later).issuer.certificate == first.issuer.certificate
    with pytest.raises(SettingsError, match="has expired; a new one needs the root key"):
        opened(tmp_path, now=NOW + INTERMEDIATE_LIFETIME)
    (tmp_path / ROOT).write_bytes(complete)
    renewed = opened(tmp_path, now=later)
    assert renewed.issuer.certificate != first.issuer.certificate
    renewed.issuer.certificate.verify_directly_issued_by(first.root)


def test_an_expired_root_stops_the_start(tmp_path: Path) -> None:
    opened(tmp_path)

    with pytest.raises(SettingsError, match="the root certificate has expired"):
        opened(tmp_path, now=NOW + timedelta(days=3651))


def test_a_database_belongs_to_one_trust_domain(tmp_path: Path) -> None:
    CaDatabase(tmp_path / DATABASE_FILE, trust_domain="one").close()

    assert mode(tmp_path / DATABASE_FILE) == 0o600
    with pytest.raises(SettingsError, match="expected 'one'"):
        CaDatabase(tmp_path / DATABASE_FILE, trust_domain="two")


def test_a_database_of_the_previous_version_is_migrated(tmp_path: Path) -> None:
    database = CaDatabase(tmp_path / DATABASE_FILE, trust_domain="one")
    view = CertificateView("1", "agent", "n1", (), NOW, NOW + timedelta(days=1), "ada", "joined")
    database.add_certificate(view, AuditLine(0, NOW, "joined", "ada", "agent/n1"))
    database.close()
    with sqlite3.connect(tmp_path / DATABASE_FILE) as before:
        before.execute("ALTER TABLE certificates DROP COLUMN enrolled_at")
        before.execute("PRAGMA user_version = 1")
    before.close()

    again = CaDatabase(tmp_path / DATABASE_FILE, trust_domain="one")
    assert again.certificate("1") == view
    again.close()


def test_an_invalid_database_file_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / DATABASE_FILE).write_bytes(b"not a database" * 100)

    with pytest.raises(SettingsError, match="book"):
        CaDatabase(tmp_path / DATABASE_FILE, trust_domain="one")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"cert_ttl": timedelta(seconds=1)}, "PERSYS_CA_CERT_TTL"),
        ({"trust_domain": "a b"}, "PERSYS_TRUST_DOMAIN"),
        ({"keep": timedelta()}, "PERSYS_CA_KEEP"),
        ({"auth_roles": ("admin",)}, "PERSYS_CA_AUTH_ROLES"),
    ],
)
def test_an_invalid_setting_is_named(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        CaSettings(**wrong)  # type: ignore[arg-type]  # each by its name


@pytest.mark.parametrize("content", ["", "xyz", "abcd"])
def test_an_invalid_auth_key_is_rejected(tmp_path: Path, content: str) -> None:
    (tmp_path / "key").write_text(content)

    with pytest.raises(SettingsError, match="PERSYS_CA_AUTH_KEY_FILE"):
        CaSettings(auth_key_file=str(tmp_path / "key")).auth_key()
