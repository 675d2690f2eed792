"""Credentials are files that only their owner can read. Their content is never shown."""

from pathlib import Path

import pytest

from persys.agent.credentials import Credential, Credentials
from persys.errors import InvalidError, NotFoundError


def a_file(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


def test_json_and_yaml_are_read(tmp_path: Path) -> None:
    a_file(tmp_path / "hub.json", '{"username": "me", "password": "pw"}')
    a_file(tmp_path / "forge.yaml", "ssh_key: |\n  line 1\n  line 2\n")
    credentials = Credentials(tmp_path)
    assert credentials.get("hub") == Credential("me", "pw")
    assert credentials.get("forge") == Credential(ssh_key="line 1\nline 2\n")


@pytest.mark.parametrize("name", ["nowhere", "", "../hub", ".hub"])
def test_a_name_without_a_file_is_not_found(tmp_path: Path, name: str) -> None:
    a_file(tmp_path / ".hub.json", "{}")
    with pytest.raises(NotFoundError):
        Credentials(tmp_path).get(name)


def test_a_file_that_other_users_can_read_is_refused(tmp_path: Path) -> None:
    a_file(tmp_path / "hub.json", '{"password": "pw"}', 0o640)
    with pytest.raises(InvalidError, match="0640"):
        Credentials(tmp_path).get("hub")


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_an_invalid_file_is_not_quoted(tmp_path: Path, suffix: str) -> None:
    a_file(tmp_path / f"hub.{suffix}", '{"password": ["s3cret"]}')
    with pytest.raises(InvalidError) as error:
        Credentials(tmp_path).get("hub")
    assert "s3cret" not in str(error.value)
    assert error.value.__context__ is None


def test_a_credential_is_not_shown() -> None:
    assert "s3cret" not in repr(Credential("me", "s3cret"))
