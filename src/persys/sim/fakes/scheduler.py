"""A simulated scheduler host: the real scheduler on a store with faults, sometimes with a second process."""

from functools import partial

from persys.model.ids import NodeId
from persys.scheduler.app import Scheduler
from persys.scheduler.build import MachineSources
from persys.scheduler.dispatch.agent_client import Close
from persys.scheduler.dispatch.agent_client import Stub as AgentStub
from persys.scheduler.settings import SchedulerSettings
from persys.sim.engine.hardware import WallClock
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import rng
from persys.sim.fakes.journal_disk import CLUSTER, MemoryKey
from persys.sim.fakes.store import Committing, SharedStore, SimStore, StoreFaults
from persys.sim.network.channel import SimChannel
from persys.sim.network.network import Network
from persys.sim.scenario.plan import SCHEDULER
from persys.wire.gen.control.v1 import control_pb2

METHODS = tuple(
    method.name for method in control_pb2.DESCRIPTOR.services_by_name["AgentControl"].methods
)


class SimScheduler:
    def __init__(
        self,
        seed: int,
        network: Network,
        *,
        committed: Committing,
        name: str = SCHEDULER,
        store: SharedStore | None = None,
        cluster: str = CLUSTER,
        machines: MachineSources | None = None,
    ) -> None:
        """`machines`: where the machines of node pools come from."""
        self.name = name
        self._machines = machines
        self.settings = SchedulerSettings(cluster_id=cluster)
        self.wall = WallClock()
        self.faults = StoreFaults()
        self.store = store or SharedStore(self.wall.elapsed)
        self.processes: list[SimProcess] = []  # the newest last
        self.schedulers: dict[str, Scheduler] = {}
        self._network = network
        self._committed = committed
        self._random = rng(seed, name)
        self._count = 0

    @property
    def newest(self) -> SimProcess | None:
        return self.processes[-1] if self.processes else None

    @property
    def scheduler(self) -> Scheduler | None:
        """The scheduler of the newest process, if it leads."""
        newest = self.newest
        if newest is None or not newest.alive or not newest.serves:
            return None
        return self.schedulers.get(newest.title)

    def with_records(self) -> list[str]:
        """The titles of the processes with records in memory."""
        return [
            process.title
            for process in self.processes
            if process.alive and process.serves and has_records(self.schedulers.get(process.title))
        ]

    async def run(self, process: SimProcess) -> None:
        """Run a scheduler until it crashes."""
        store = self._reach_store(process)
        scheduler = Scheduler(
            self.settings,
            store,
            self.wall.as_read(),
            name=process.title,
            connect=partial(self._connect, process),
            random=self._random,
            secrets_key=MemoryKey(),
            machines=self._machines,
        )
        await scheduler.take_over()
        self.schedulers[process.title] = scheduler
        api = scheduler.api()
        process.serves = {name: getattr(api, name) for name in METHODS}
        await process.together(scheduler.parts())

    def _reach_store(self, process: SimProcess) -> SimStore:
        """Give the process a unique title and its view of the store."""
        self._count += 1
        process.title = f"{self.name}-{self._count}"
        return SimStore(self.store, process, self.faults, self._random, committed=self._committed)

    def _connect(
        self, process: SimProcess, node_id: NodeId, endpoint: str
    ) -> tuple[AgentStub, Close]:
        channel = SimChannel(self._network, process, endpoint)
        return AgentStub(channel), channel.close


def has_records(scheduler: Scheduler | None) -> bool:
    return scheduler is not None and bool(scheduler.cluster.nodes or scheduler.cluster.workloads)
