"""The encryption key of secrets: created once, private, identified by an id."""

from pathlib import Path

import pytest

from persys.errors import RefusedError
from persys.infra.encryption import KeyFile


def test_a_key_is_created_privately_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "below" / "secrets.key"
    created = KeyFile(path).make()

    assert path.stat().st_mode & 0o777 == 0o600
    assert KeyFile(path).key().id == created.id == KeyFile(path).make().id
    assert created.id.encode() not in path.read_bytes()


def test_a_missing_key_is_not_created_for_reading(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"PERSYS_SECRETS_KEY_FILE=.*No such file"):
        KeyFile(tmp_path / "secrets.key").key()

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"not base64!", b"c2hvcnQ="])
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "secrets.key"
    path.write_bytes(content)

    with pytest.raises(RefusedError, match="invalid key"):
        KeyFile(path).make()
    assert path.read_bytes() == content


def test_a_value_is_decrypted_only_with_its_key_and_name(tmp_path: Path) -> None:
    key, other = KeyFile(tmp_path / "a").make(), KeyFile(tmp_path / "b").make()
    sealed = key.seal(b"value", b"db@1")

    assert key.open(sealed, b"db@1") == b"value"
    for opener, found, bound in (
        (other, sealed, b"db@1"),
        (key, sealed, b"db@2"),
        (key, sealed[:-1] + bytes([sealed[-1] ^ 1]), b"db@1"),
        (key, b"", b"db@1"),
    ):
        with pytest.raises(RefusedError, match="cannot be decrypted"):
            opener.open(found, bound)
