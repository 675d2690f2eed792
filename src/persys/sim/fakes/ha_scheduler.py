"""One of several schedulers on one store: the real scheduler server without sockets.

It leads or is a standby, and forwards calls to the leader, like a real process.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

import grpc

from persys.infra.clock import Clock
from persys.scheduler.app import Scheduler
from persys.scheduler.build import MachineSources
from persys.scheduler.ha.forwarding import LeaderRouter
from persys.scheduler.ha.leader_client import LeaderConnection
from persys.scheduler.ha.standby import Standby
from persys.scheduler.server import SchedulerServer
from persys.scheduler.settings import SchedulerSettings
from persys.sim.engine.process import SimProcess
from persys.sim.fakes.journal_disk import CLUSTER, MemoryKey
from persys.sim.fakes.scheduler import METHODS, SimScheduler, has_records
from persys.sim.fakes.store import Committing, SharedStore, SimStore
from persys.sim.network.channel import SimChannel
from persys.sim.network.network import Network


class SimSchedulerServer(SchedulerServer):
    def __init__(
        self,
        name: str,
        settings: SchedulerSettings,
        store: SimStore,
        clock: Clock,
        router: LeaderRouter,
        new_replica: Callable[..., Scheduler],
    ) -> None:
        super().__init__(
            settings, store, clock, tls=None, shared=True, router=router, new_replica=new_replica
        )
        self.name = name
        self.router = router

    @property
    def scheduler(self) -> Scheduler | None:
        return self._replica

    @property
    def standby(self) -> Standby | None:
        return self._standby


class HaScheduler(SimScheduler):
    scheduler_type = Scheduler

    def __init__(
        self,
        seed: int,
        network: Network,
        *,
        committed: Committing,
        name: str,
        store: SharedStore,
        cluster: str = CLUSTER,
        machines: MachineSources | None = None,
    ) -> None:
        super().__init__(
            seed,
            network,
            committed=committed,
            name=name,
            store=store,
            cluster=cluster,
            machines=machines,
        )
        self.settings = replace(self.settings, advertise_ip=name)
        self.server: SimSchedulerServer | None = None

    @property
    def leads(self) -> bool:
        """Whether it considers itself the leader."""
        return self.is_up and self.server is not None and self.server.router.leads

    @property
    def scheduler(self) -> Scheduler | None:
        return self.server.scheduler if self.leads and self.server is not None else None

    @property
    def follower(self) -> Scheduler | None:
        """The state of a standby, if it has read the store."""
        server = self.server
        if not self.is_up or server is None or self.leads or server.standby is None:
            return None
        return server.scheduler if server.standby.has_read else None

    @property
    def in_recovery(self) -> bool:
        """Whether it is in recovery mode and does not follow the store."""
        scheduler = self.server.scheduler if self.server is not None else None
        return scheduler is not None and scheduler.modes.in_recovery

    def with_records(self) -> list[str]:
        known = self.scheduler or self.follower
        return [self.newest.title] if self.newest is not None and has_records(known) else []

    @property
    def is_up(self) -> bool:
        newest = self.newest
        return newest is not None and newest.alive and not newest.frozen

    async def run(self, process: SimProcess) -> None:
        router = LeaderRouter(upstream=partial(self._upstream, process))
        store = self._reach_store(process)
        server = self.server = SimSchedulerServer(
            process.title,
            self.settings,
            store,
            self.wall.as_read(),
            router,
            partial(
                self.scheduler_type,
                connect=partial(self._connect, process),
                random=self._random,
                secrets_key=MemoryKey(),
                machines=self._machines,
            ),
        )
        await process.together([server.run_replicas(), self._open(process, router)])

    async def _open(self, process: SimProcess, router: LeaderRouter) -> None:
        await router.until_serving()
        process.serves = {name: getattr(router, name) for name in METHODS}
        await asyncio.Event().wait()

    def _upstream(self, process: SimProcess, endpoint: str) -> LeaderConnection:
        def connect(address: str) -> grpc.aio.Channel:
            return cast("grpc.aio.Channel", SimChannel(self._network, process, address))

        return LeaderConnection(endpoint, connect)
