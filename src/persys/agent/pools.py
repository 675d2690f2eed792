"""The storage pools of this node: the local one, and those of libvirt, looked at now and then."""

import asyncio
from contextlib import suppress
from pathlib import Path

import structlog

from persys.agent.ports import Machine, PoolSource
from persys.agent.volumes.local import DRIVER
from persys.core.pools import Room, as_pools
from persys.errors import RuntimeUnavailableError
from persys.model.node import StoragePool

log = structlog.get_logger()

INTERVAL_SECONDS = 30.0
FIRST_LOOK_SECONDS = 2.0


class Pools:
    def __init__(self, machine: Machine, local_root: Path, source: PoolSource | None) -> None:
        self._machine = machine
        self._local_root = local_root
        self._source = source
        self._others: list[Room] = []

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def look_first(self) -> None:
        """Before the node is told of, so that it need not be told of twice; a silent libvirt can wait."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                await self.look()

    async def look(self) -> None:
        if self._source is None:
            return
        try:
            self._others = await self._source.rooms()
        except RuntimeUnavailableError as err:
            log.debug("pools.not_looked_at", reason=str(err))

    def now(self) -> tuple[StoragePool, ...]:
        """The local one first: what is not said to be elsewhere is there."""
        disk = self._machine.disk(self._local_root)
        local = Room(DRIVER, DRIVER, disk.total_gb, disk.device)
        return as_pools([local, *self._others])
