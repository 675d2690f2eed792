"""Node pools at any interleaving of load, faults of the provider, lists without an answer and crashes.

The spend and the number of machines are never above the limits, no machine is created twice, and once the
pool is deleted none is left.
"""

from datetime import datetime, timedelta
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from examples import times
from nodepool_builders import LARGE, NOW, SMALL, a_pool, a_waiting
from persys.core.nodepools.steps import PoolNode, Waiting
from persys.model.ids import NodeId
from persys.model.nodepool import NodePool
from persys.sim.nodepools.control import CrashError, PoolControl
from persys.sim.nodepools.provider import CreateFault, SimulatedProvider

PRICES = {SMALL.name: SMALL.hour_price, LARGE.name: LARGE.hour_price}
STEPS = 150


class PoolWalk:
    """A random walk. A provider lists an instance before the deadline at the latest."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now: datetime = NOW
        self.waiting: tuple[Waiting, ...] = ()
        self.nodes: dict[NodeId, PoolNode] = {}
        self.steps_left: int | None = None
        self.provider = SimulatedProvider(boot=timedelta(minutes=2), slow_boot=timedelta(hours=1))
        # Without a record, an instance is known only from a complete list.
        self.loses_records = random.random() < 0.5
        self.limit = random.choice([0.1, 0.3, 0.5, 0.9])
        self.control = PoolControl(
            a_pool(
                spend_per_hour_max=self.limit,
                max_machines=random.randint(1, 5),
                min_machines=random.randint(0, 1),
            ),
            self.provider,
            fault=self._fault,
            late=lambda: timedelta(minutes=random.choice([1, 5, 14])),
            drain=lambda node_id: None,
            remove=self._remove,
            reached=self._reached,
        )

    @property
    def pool(self) -> NodePool:
        assert self.control.pool is not None
        return self.control.pool

    def step(self) -> None:
        self.now += timedelta(seconds=self.random.choice([10, 30, 60, 300, 900]))
        match self.random.randint(0, 9):
            case 0 | 1:
                self._load_changes()
            case 2:
                self._nodes_change()
            case 3:
                self._an_instance_vanishes()
            case 4:
                paused = self.random.random() < 0.3
                self.control.pool = replace(self.pool, paused=paused)
            case 5 if not self.loses_records:
                self._a_list_is_incomplete()
            case 6 if self.loses_records and not self._is_one_late():
                self._records_are_restored()
        self._pass()

    def _load_changes(self) -> None:
        count = self.random.choice([0, 1, 3, 8])
        self.waiting = tuple(
            a_waiting(f"w{at}", self.random.choice([500, 1500, 1500, 6000])) for at in range(count)
        )

    def _nodes_change(self) -> None:
        for node_id, node in self.nodes.items():
            busy = self.random.random() < 0.5
            idle = None if busy else node.idle_since or self.now
            self.nodes[node_id] = PoolNode(node.ready, node.since, int(busy), 0, idle)

    def _an_instance_vanishes(self) -> None:
        if existing := self.provider.existing(self.now):
            self.random.choice(existing).ended_at = self.now

    def _a_list_is_incomplete(self) -> None:
        if existing := self.provider.existing(self.now):
            self.provider.omit_once(self.random.choice(existing))

    def _is_one_late(self) -> bool:
        return len(self.provider.existing(self.now + timedelta(days=1))) != len(
            self.provider.existing(self.now)
        )

    def _records_are_restored(self) -> None:
        """Some records are missing, as in an older snapshot."""
        names = list(self.control.machines)
        for name in self.random.sample(names, k=self.random.randint(0, len(names))):
            del self.control.machines[name]
        created_count = self.random.randint(0, self.pool.provisioning.created_count)
        provisioning = replace(self.pool.provisioning, created_count=created_count)
        self.control.pool = replace(self.pool, provisioning=provisioning)

    def _pass(self) -> None:
        self.steps_left = self.random.choice([None, None, 0, 1, 2, 3, 5, 8])
        self._boot()
        try:
            answers = self.random.random() < 0.8
            self.control.run_pass(self.waiting, self.nodes, self.now, answers=answers)
        except CrashError:
            self.control.restart()
        finally:
            self.steps_left = None
            self.check()

    def _boot(self) -> None:
        for instance in self.provider.booted(self.now):
            node_id = NodeId(instance.name)
            self.nodes.setdefault(node_id, PoolNode(True, self.now, idle_since=self.now))

    def _fault(self) -> CreateFault:
        faults: list[CreateFault] = [CreateFault.NONE, *CreateFault]
        return self.random.choice(faults)

    def _remove(self, node_id: NodeId) -> None:
        self.nodes.pop(node_id, None)

    def _reached(self) -> None:
        self.check()
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise CrashError("crashed")

    def check(self) -> None:
        """What exists or may exist is within the limits, and no machine exists twice."""
        existing = self.provider.existing(self.now)
        prices = {one.name: one.hour_price for one in self.control.machines.values()}
        prices |= {one.name: PRICES[one.size] for one in existing}
        names = [one.name for one in existing]

        assert round(sum(prices.values()), 6) <= self.limit
        assert len(prices) <= self.pool.max_machines
        assert len(names) == len(set(names))

    def delete(self) -> None:
        """After the pool is deleted, nothing is left."""
        self.control.pool = replace(self.pool, deleting=True, paused=False)
        for _ in range(200):
            self.now += timedelta(minutes=1)
            self._boot()
            for node_id, node in self.nodes.items():
                self.nodes[node_id] = PoolNode(node.ready, node.since, 0, 0, node.idle_since)
            self.control.run_pass((), self.nodes, self.now)

        assert not self.control.machines
        assert not self.provider.existing(self.now + timedelta(days=1))


@given(seed=st.integers(0, 2**32))
@example(seed=1)
@settings(max_examples=times(0.6), deadline=None)
def test_no_interleaving_exceeds_the_limits_or_loses_a_machine(seed: int) -> None:
    walk = PoolWalk(Random(seed))

    for _ in range(STEPS):
        walk.step()

    walk.delete()
    assert walk.control.pool is None
