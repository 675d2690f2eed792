"""What the tests of every program share."""

from pathlib import Path

import pytest

from certified import Listed, Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


@pytest.fixture
def listed() -> Listed:
    """The list of revoked certificates that a scheduler or a gateway of the test reads."""
    return Listed()
