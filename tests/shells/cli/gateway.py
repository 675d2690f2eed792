"""A real gateway in its own thread, in front of the scheduler of a test."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from persys.gateway.app import Gateway
from persys.gateway.settings import GatewaySettings
from persys.infra.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from persys.infra.tls.tls import Tls

START_SECONDS = 20.0


@contextmanager
def gateway(tls: Tls | None = None, **settings: object) -> Iterator[str]:
    """Gives its URL. `settings` as the gateway knows them, such as scheduler_addr."""
    with capture_logs(), _in_a_thread() as loop:
        serving = asyncio.run_coroutine_threadsafe(_start(tls, settings), loop)
        created, running = serving.result(START_SECONDS)
        try:
            yield f"{'http' if tls is None else 'https'}://127.0.0.1:{created.port}"
        finally:
            asyncio.run_coroutine_threadsafe(_stop(created, running), loop).result(START_SECONDS)


@contextmanager
def _in_a_thread() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(START_SECONDS)
        loop.close()


async def _start(
    tls: Tls | None, settings: dict[str, object]
) -> tuple[Gateway, asyncio.Task[None]]:
    chosen = {
        "addr": "127.0.0.1",
        "port": 0,
        "public_port": 0,
        "audit_db": "memory",
        "insecure": tls is None,
        **settings,
    }
    created = Gateway(GatewaySettings(**chosen), SystemClock(), tls)  # type: ignore[arg-type]
    await created.start()
    return created, asyncio.get_running_loop().create_task(created.run())


async def _stop(made: Gateway, running: asyncio.Task[None]) -> None:
    await made.stop()
    running.cancel()
    await asyncio.wait([running])
