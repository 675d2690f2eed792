"""persysctl against a real scheduler and a real CA, which the commands of access need."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import structlog

from persys.ca.app import LIMITS
from persys.ca.settings import CaSettings
from persys.infra.atomic_files import CertificateFiles
from persys.infra.clock import SystemClock
from persys.infra.tls.tls import Tls
from persys.model.identity import Role
from persys.store.memory import MemoryStore
from shells.ca.conftest import a_running_ca
from shells.ca.running_ca import RunningCa
from shells.cli.conftest import CliResult, Run
from shells.scheduler.harness import a_cluster, fast_settings
from shells.scheduler.stores import FaultyStore

Ctl = Callable[..., Coroutine[Any, Any, CliResult]]


@pytest.fixture
async def ca(tmp_path: Path) -> AsyncIterator[RunningCa]:
    settings = CaSettings(dir=tmp_path / "ca", listen="127.0.0.1", port=0)
    async with a_running_ca(settings, tmp_path, LIMITS) as ca:
        yield ca


@pytest.fixture
async def secure_ctl(ca: RunningCa, run: Run) -> AsyncIterator[Ctl]:
    """persysctl as an admin, with a scheduler and a CA."""
    clock = SystemClock()
    own = ca.certificate(Role.ADMIN, "me")
    server = Tls(ca.certificate(Role.SCHEDULER, "s1"), clock)
    store = FaultyStore(MemoryStore(clock.monotonic))
    settings = fast_settings()

    async def ctl(*words: str, **variables: str) -> CliResult:
        flags = {
            "PERSYS_GRPC_ENDPOINT": f"127.0.0.1:{settings.grpc_port}",
            "PERSYS_CA_ADDR": ca.address,
            "PERSYS_INSECURE": "",
            **shown(own),
        }
        return await asyncio.to_thread(run, *words, **{**flags, **variables})

    with structlog.testing.capture_logs():  # logs of the scheduler are not output of persysctl
        async with a_cluster(store, settings, tls=server, user=Tls(own, clock)):
            yield ctl
    await store.store.close()


def shown(files: CertificateFiles) -> dict[str, str]:
    return {
        "PERSYS_TLS_CA": str(files.roots),
        "PERSYS_TLS_CERT": str(files.certificate),
        "PERSYS_TLS_KEY": str(files.key),
    }
