"""Several schedulers on one store, each with its own connection that can be cut."""

import asyncio
import json
import re
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from persys.infra.clock import SystemClock
from persys.infra.tls.tls import Tls
from persys.scheduler.app import Scheduler
from persys.scheduler.auth.tls import agent_connector, leader_connector
from persys.scheduler.dispatch.agent_client import Connect
from persys.scheduler.ha.forwarding import LeaderRouter
from persys.scheduler.server import SchedulerServer
from persys.scheduler.settings import SchedulerSettings
from persys.store.memory import MemoryStore
from persys.store.port import Store
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.metadata_keys import ROLE
from shells.scheduler.harness import DEADLINE_SECONDS, Control, eventually, fast_settings
from shells.scheduler.stores import FaultyStore

# Long enough that a leader on a busy machine renews it in time.
LEASE = timedelta(seconds=3)


class Replicas:
    def __init__(
        self,
        store: Store,
        *,
        start_seconds: float = 10,
        settings: Callable[..., SchedulerSettings] = fast_settings,
        wrap: Callable[[Store], FaultyStore] = FaultyStore,
        connect: Connect | None = None,
    ) -> None:
        """`wrap` makes the connection of each scheduler to the store, `connect` those to agents."""
        self.store = store
        self._start_seconds = start_seconds
        self._settings = settings
        self._wrap = wrap
        self._connect = connect
        self.running: list[asyncio.Task[None]] = []
        self.stores: list[FaultyStore] = []
        self.controls: list[Control] = []
        self.endpoints: list[str] = []
        self._metrics_ports: list[int] = []
        self._stops: list[asyncio.Event] = []

    async def add(
        self, *, tls: Tls | None = None, user: Tls | None = None, key_file: str = ""
    ) -> Control:
        """Add a scheduler that serves, with `tls` if given."""
        store = self._wrap(self.store)
        settings = self._settings(leader_lease=LEASE, secrets_key_file=key_file)
        stop = asyncio.Event()
        server = SchedulerServer(
            settings,
            store,
            SystemClock(),
            shared=True,
            tls=tls,
            router=LeaderRouter(leader_connector(tls)),
            new_replica=partial(
                Scheduler,
                connect=self._connect or agent_connector(tls),
                connect_by_host=self._connect or agent_connector(tls, by_host=True),
                watches_certificates=tls is not None,
            ),
        )
        self.running.append(asyncio.get_running_loop().create_task(server.run(stop)))
        self.stores.append(store)
        self._stops.append(stop)
        control = Control(settings.grpc_port, user)
        self.controls.append(control)
        self.endpoints.append(f"127.0.0.1:{settings.grpc_port}")
        self._metrics_ports.append(settings.metrics_port)
        await control.stub.GetMode(
            pb.GetModeRequest(), timeout=self._start_seconds, wait_for_ready=True
        )
        return control

    async def stop(self, number: int) -> None:
        self._stops[number].set()
        await self.running[number]

    async def close(self) -> None:
        for stop in self._stops:
            stop.set()
        for control in self.controls:
            await control.channel.close()
        await asyncio.gather(*self.running)

    async def health(self, number: int) -> Any:
        return json.loads(await self._page(number, "health"))

    async def metric(self, number: int, name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", await self._page(number, "metrics"), re.MULTILINE)
        assert found is not None, f"{name} is not among the metrics"
        return float(found[1])

    async def _page(self, number: int, name: str) -> str:
        url = f"http://127.0.0.1:{self._metrics_ports[number]}/{name}"

        def fetch() -> str:
            with urllib.request.urlopen(url, timeout=10) as response:
                return str(response.read().decode())

        return await asyncio.to_thread(fetch)


@asynccontextmanager
async def some_replicas() -> AsyncIterator[Replicas]:
    created = Replicas(MemoryStore(SystemClock().monotonic))
    try:
        yield created
    finally:
        await created.close()


async def mode_of(control: Control) -> tuple[pb.ModeView, dict[str, str]]:
    call = control.stub.GetMode(pb.GetModeRequest(), timeout=5)
    view = await call
    beside = await call.trailing_metadata()
    return view, {key: str(value) for key, value in beside or ()}


async def until_leading(control: Control, *, within: float = DEADLINE_SECONDS) -> None:
    async def leads() -> bool:
        return (await mode_of(control))[0].role == "leader"

    await eventually(leads, lambda: "it to lead", within=within)


async def until_standby(control: Control, *, within: float = DEADLINE_SECONDS) -> None:
    async def is_standby() -> bool:
        return (await mode_of(control))[1].get(ROLE) == "standby"

    await eventually(is_standby, lambda: "it to stand by", within=within)


async def until_listed(control: Control, *names: str) -> None:
    async def named() -> bool:
        return await control.names() == sorted(names)

    await eventually(named, lambda: f"{names} to be listed")


async def until_mode(control: Control, mode: str) -> None:
    async def has_mode() -> bool:
        return (await mode_of(control))[0].mode == mode

    await eventually(has_mode, lambda: f"{mode} mode")
