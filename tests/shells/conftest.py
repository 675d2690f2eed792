"""What the tests of every program share."""

from pathlib import Path

import pytest

from root_ca import RevocationList, Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


@pytest.fixture
def listed() -> RevocationList:
    """The list of revoked certificates that a scheduler or a gateway of the test reads."""
    return RevocationList()
