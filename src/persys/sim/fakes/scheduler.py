"""A simulated scheduler host: the real scheduler on a store with faults, sometimes with a second process."""

from functools import partial

from persys.model.ids import NodeId
from persys.scheduler.app import Scheduler
from persys.scheduler.dispatch.agent_client import Close
from persys.scheduler.dispatch.agent_client import Stub as AgentStub
from persys.scheduler.settings import SchedulerSettings
from persys.sim.engine.hardware import WallClock
from persys.sim.engine.process import Life
from persys.sim.engine.trace import dice
from persys.sim.fakes.journal_disk import CLUSTER
from persys.sim.fakes.store import Committing, SharedStore, SimStore, StoreTrouble
from persys.sim.network.channel import SimChannel
from persys.sim.network.network import Network
from persys.sim.scenario.plan import SCHEDULER
from persys.wire.gen.control.v1 import control_pb2

METHODS = tuple(
    method.name for method in control_pb2.DESCRIPTOR.services_by_name["AgentControl"].methods
)


class Seat:
    def __init__(
        self,
        seed: int,
        network: Network,
        *,
        committed: Committing,
        name: str = SCHEDULER,
        store: SharedStore | None = None,
    ) -> None:
        self.name = name
        self.settings = SchedulerSettings(cluster_id=CLUSTER)
        self.wall = WallClock()
        self.trouble = StoreTrouble()
        self.store = store or SharedStore(self.wall.elapsed)
        self.lives: list[Life] = []  # the newest last
        self.schedulers: dict[str, Scheduler] = {}
        self._network = network
        self._committed = committed
        self._random = dice(seed, name)
        self._count = 0

    @property
    def newest(self) -> Life | None:
        return self.lives[-1] if self.lives else None

    @property
    def scheduler(self) -> Scheduler | None:
        """The scheduler of the newest process, if it leads."""
        newest = self.newest
        if newest is None or not newest.alive or not newest.serves:
            return None
        return self.schedulers.get(newest.title)

    def remembering(self) -> list[str]:
        """The titles of the processes with records in memory."""
        return [
            life.title
            for life in self.lives
            if life.alive and life.serves and remembers(self.schedulers.get(life.title))
        ]

    async def run(self, life: Life) -> None:
        """Run a scheduler until it crashes."""
        store = self._reach_store(life)
        scheduler = Scheduler(
            self.settings,
            store,
            self.wall.as_read(),
            name=life.title,
            connect=partial(self._connect, life),
            random=self._random,
        )
        await scheduler.take_over()
        self.schedulers[life.title] = scheduler
        api = scheduler.api()
        life.serves = {name: getattr(api, name) for name in METHODS}
        await life.together(scheduler.parts())

    def _reach_store(self, life: Life) -> SimStore:
        """Give the process a unique title and its view of the store."""
        self._count += 1
        life.title = f"{self.name}-{self._count}"
        return SimStore(self.store, life, self.trouble, self._random, committed=self._committed)

    def _connect(self, life: Life, node_id: NodeId, endpoint: str) -> tuple[AgentStub, Close]:
        channel = SimChannel(self._network, life, endpoint)
        return AgentStub(channel), channel.close


def remembers(scheduler: Scheduler | None) -> bool:
    return scheduler is not None and bool(scheduler.cluster.members or scheduler.cluster.entries)
