"""One node pool under control: decide, store, call the provider, store the answer. It may crash at any step.

The records survive a crash; everything else is read again, as by a new leader. The steps are those of
`scheduler/nodepools`, without the store and the network.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from persys.core.nodepools.decision import decide
from persys.core.nodepools.outcome import CreateRefused, RecordChange, after_create, change_for
from persys.core.nodepools.steps import (
    Create,
    Destroy,
    Drain,
    DropPool,
    Keep,
    PoolInstance,
    PoolNode,
    Remove,
    Step,
    Waiting,
)
from persys.errors import PersysError
from persys.model.ids import NodeId
from persys.model.nodepool import Machine, NodePool
from persys.sim.nodepools.provider import (
    CreateFault,
    SimulatedOutageError,
    SimulatedProvider,
    SimulatedThrottleError,
)

CLUSTER_ID = "home"


class CrashError(PersysError):
    """The simulated scheduler ended here."""


class PoolControl:
    def __init__(
        self,
        pool: NodePool,
        provider: SimulatedProvider,
        *,
        fault: Callable[[], CreateFault],
        late: Callable[[], timedelta],
        drain: Callable[[NodeId], None],
        remove: Callable[[NodeId], None],
        reached: Callable[[], None],
    ) -> None:
        """`reached` is called before each store and each call to the provider, and may raise CrashError."""
        self.pool: NodePool | None = pool
        self.machines: dict[str, Machine] = {}
        self._absent: dict[str, int] = {}
        self._provider = provider
        self._fault = fault
        self._late = late
        self._drain = drain
        self._remove = remove
        self._reached = reached

    def run_pass(
        self,
        waiting: Sequence[Waiting],
        nodes: Mapping[NodeId, PoolNode],
        now: datetime,
        *,
        answers: bool = True,
    ) -> list[Step]:
        """`answers`: whether the provider lists its instances."""
        if self.pool is None:
            return []
        listed = self._provider.listed(now) if answers else None
        steps = self._decided(waiting, nodes, listed, now)
        self._absent = {
            step.machine.name: step.machine.absent_count for step in steps if isinstance(step, Keep)
        }
        for step in steps:
            if not isinstance(step, Create):
                self._perform(step, now)
        self._create(steps, waiting, nodes, now)
        return steps

    def _create(
        self,
        steps: Sequence[Step],
        waiting: Sequence[Waiting],
        nodes: Mapping[NodeId, PoolNode],
        now: datetime,
    ) -> None:
        """One after the other: the provider is listed again before each."""
        first = [step for step in steps if isinstance(step, Create)][:1]
        while first:
            self._perform_create(first[0], now)
            again = self._decided(waiting, nodes, self._provider.listed(now), now)
            first = [step for step in again if isinstance(step, Create)][:1]

    def _decided(
        self,
        waiting: Sequence[Waiting],
        nodes: Mapping[NodeId, PoolNode],
        listed: Sequence[PoolInstance] | None,
        now: datetime,
    ) -> list[Step]:
        assert self.pool is not None
        machines = [
            replace(machine, absent_count=self._absent.get(name, 0))
            for name, machine in self.machines.items()
        ]
        return decide(self.pool, waiting, machines, nodes, listed, now, cluster_id=CLUSTER_ID)

    def restart(self) -> None:
        """A new leader: only the records are left."""
        self._absent.clear()

    def _perform(self, step: Step, now: datetime) -> None:
        assert self.pool is not None
        if isinstance(step, DropPool):
            self._reached()
            self.pool = None
            return
        if isinstance(step, Drain):
            self._drain(step.machine.node_id)
        known = self._known(step)
        self._store(change_for(self.pool, known, step, now=now))
        if isinstance(step, Destroy) and step.provider_id:
            self._reached()
            self._provider.destroy(step.provider_id, now)
        if isinstance(step, Remove):
            self._remove(step.machine.node_id)

    def _perform_create(self, step: Create, now: datetime) -> None:
        assert self.pool is not None
        machine = step.machine
        self._store(change_for(self.pool, None, step, now=now))
        self._reached()
        try:
            answer: str | CreateRefused = self._provider.create(
                machine.name, machine.size, now, self._fault(), self._late()
            )
        except SimulatedThrottleError as err:
            answer = CreateRefused(str(err))
        except SimulatedOutageError:
            return  # the machine may exist: its record stays
        self._store(after_create(self.pool, machine, answer, now=now))

    def _known(self, step: Step) -> Machine | None:
        machine = getattr(step, "machine", None)
        return self.machines.get(machine.name) if machine is not None else None

    def _store(self, change: RecordChange) -> None:
        if not change:
            return
        self._reached()
        self.pool = change.pool or self.pool
        if change.put is not None:
            self.machines[change.put.name] = change.put
        if change.drop is not None:
            self.machines.pop(change.drop.name, None)
