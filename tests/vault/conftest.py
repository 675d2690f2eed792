"""One Vault for all tests of this folder. A test that stops it starts it again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from vault.deployment import Deployment
from vault.server import VaultServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VaultServer]:
    server = VaultServer(tmp_path_factory.mktemp("vault"))
    try:
        server.start()
        server.set_up()
        yield server
    finally:
        server.close()


@pytest.fixture
def deployment(server: VaultServer, tmp_path: Path) -> Iterator[Deployment]:
    deployment = Deployment(server, tmp_path)
    try:
        yield deployment
    finally:
        deployment.close()
