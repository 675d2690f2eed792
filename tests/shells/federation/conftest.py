"""Two clusters and persys-federation between them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shells.federation.two_clusters import TwoClusters, two_clusters


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[TwoClusters]:
    async with two_clusters(tmp_path) as running:
        yield running
