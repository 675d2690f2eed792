"""One authority for each test."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from persys.ca.app import Ca
from persys.ca.settings import CaSettings
from shells.ca.town import AUTH_KEY, MovedClock, Town


@pytest.fixture
def settings(tmp_path: Path) -> CaSettings:
    key = tmp_path / "auth.key"
    key.write_text(AUTH_KEY + "\n")
    return CaSettings(dir=tmp_path / "ca", addr="127.0.0.1", port=0, auth_key_file=str(key))


@pytest.fixture
async def town(settings: CaSettings, tmp_path: Path) -> AsyncIterator[Town]:
    clock = MovedClock()
    ca = Ca(settings, clock)
    await ca.start()
    async with asyncio.TaskGroup() as group:
        upkeep = group.create_task(ca.run())
        yield Town(ca, replace(settings, port=ca.port), clock, tmp_path)
        upkeep.cancel()
    await ca.stop()
