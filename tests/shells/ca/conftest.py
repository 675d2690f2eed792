"""Fixtures: one CA per test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp.typedefs import Middleware

from persys.ca.app import LIMITS, REQUEST_SECONDS, Ca
from persys.ca.settings import CaSettings
from persys.infra.net.listener import HttpLimits
from shells.ca.running_ca import AUTH_KEY, MovedClock, RunningCa


@pytest.fixture
def settings(tmp_path: Path) -> CaSettings:
    key = tmp_path / "auth.key"
    key.write_text(AUTH_KEY + "\n")
    return CaSettings(dir=tmp_path / "ca", listen="127.0.0.1", port=0, auth_key_file=str(key))


@pytest.fixture
async def ca(settings: CaSettings, tmp_path: Path) -> AsyncIterator[RunningCa]:
    async with a_running_ca(settings, tmp_path, LIMITS) as ca:
        yield ca


@pytest.fixture
async def ca_with_short_timeouts(settings: CaSettings, tmp_path: Path) -> AsyncIterator[RunningCa]:
    """A CA with short timeouts."""
    limits = HttpLimits(handshake_seconds=1.0, connection_seconds=3.0, closing_seconds=1.0)
    async with a_running_ca(settings, tmp_path, limits, request_seconds=1.0) as ca:
        yield ca


@asynccontextmanager
async def a_running_ca(
    settings: CaSettings,
    folder: Path,
    limits: HttpLimits,
    request_seconds: float = REQUEST_SECONDS,
    *,
    around: Middleware | None = None,
) -> AsyncIterator[RunningCa]:
    """`around` wraps the handler of every request."""
    clock = MovedClock()
    ca = Ca(settings, clock, limits, request_seconds)
    if around is not None:
        ca._listener._runner.app.middlewares.append(around)
    await ca.start()
    async with asyncio.TaskGroup() as group:
        maintenance = group.create_task(ca.run())
        yield RunningCa(ca, replace(settings, port=ca.port), clock, folder)
        maintenance.cancel()
    await ca.stop()
