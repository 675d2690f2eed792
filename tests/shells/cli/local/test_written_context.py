"""The context file that `persys up` writes: it replaces its own file, never one of the user."""

from pathlib import Path

import pytest
import yaml

from persys.cli.local.up import write_context
from persys.client.grpc.channel import Trust
from persys.infra.atomic_files import CertificateFiles

TRUST = Trust(CertificateFiles(Path("/c/a.crt"), Path("/c/a.key"), Path("/c/ca.crt")))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / ".persys" / "config.yaml"


def written(port: int) -> bool:
    return write_context(
        scheduler=f"127.0.0.1:{port}",
        authority=f"127.0.0.1:{port + 1}",
        gateway=f"https://127.0.0.1:{port + 2}",
        agent=f"127.0.0.1:{port + 3}",
        trust=TRUST,
    )


def test_the_file_is_private_and_is_rewritten(config: Path) -> None:
    assert written(1)
    assert written(3)

    assert config.stat().st_mode & 0o077 == 0
    assert yaml.safe_load(config.read_text()) == {
        "transport": "grpc",
        "grpc_endpoint": "127.0.0.1:3",
        "api_endpoint": "https://127.0.0.1:5",
        "ca_endpoint": "127.0.0.1:4",
        "agent_endpoint": "127.0.0.1:6",
        "ca_cert_path": "/c/ca.crt",
        "cert_path": "/c/a.crt",
        "key_path": "/c/a.key",
    }


def test_a_file_of_the_user_is_not_changed(config: Path) -> None:
    config.parent.mkdir()
    config.write_text("api_endpoint: https://elsewhere\n")

    assert not written(1)

    assert config.read_text() == "api_endpoint: https://elsewhere\n"


def test_contexts_that_were_added_to_it_are_kept(config: Path) -> None:
    written(1)
    config.write_text(config.read_text() + "contexts: {far: {api_endpoint: https://far}}\n")

    assert written(3)

    content = yaml.safe_load(config.read_text())
    assert content["grpc_endpoint"] == "127.0.0.1:3"
    assert content["contexts"] == {"far": {"api_endpoint": "https://far"}}
