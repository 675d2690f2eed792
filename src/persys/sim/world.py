"""The simulated cluster of one run: store, schedulers, nodes, users and network in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import grpc

from persys.core.placement.index.node_index import NodeIndex
from persys.errors import FencedError, PersysError
from persys.model.ids import NodeId, WorkloadId
from persys.scheduler.ha.leader_key import leader_of
from persys.sim.actors.intruders import HOSTILE, Hostile
from persys.sim.actors.users import Users
from persys.sim.checks.context import Probe, Violation
from persys.sim.checks.safety import Invariants
from persys.sim.engine.process import Life
from persys.sim.engine.trace import Trace, dice
from persys.sim.engine.virtual_loop import later
from persys.sim.fakes.docker import Container
from persys.sim.fakes.ha_scheduler import SharedSeat
from persys.sim.fakes.node import SimNode
from persys.sim.fakes.scheduler import Seat
from persys.sim.fakes.store import SharedStore
from persys.sim.network.network import Metadata, Network
from persys.sim.scenario.plan import (
    USER,
    Plan,
    node_names,
    node_size,
    nodes_behind_nat,
    scheduler_names,
    streaming_nodes,
)
from persys.store import keys
from persys.wire.metadata_keys import DATA_AGE_MS, ROLE

START_AGAIN_SECONDS = 2.0
IN_TOUCH_SECONDS = 12.0
NODE_LEASE_SECONDS = 30.0
_ORDERS = frozenset({"ApplyWorkload", "DeleteWorkload"})
_QUIET = frozenset({"ListNodes", "Heartbeat", "GetMode"})


class World:
    node_type = SimNode
    shared_seat_type = SharedSeat

    def __init__(self, plan: Plan) -> None:
        loop = asyncio.get_running_loop()
        self.plan = plan
        self.trace = Trace(loop.time)
        self.violation: Violation | None = None
        self.over = asyncio.Event()
        self.network = Network(dice(plan.seed, "network"), resolve=self._resolve)
        probe = Probe(
            loop.time,
            live=self.live,
            kept=lambda node_id, workload_id: self.machine(node_id).disk.kept(workload_id),
            holds=lambda node_id: self.machine(node_id).holds() if node_id != HOSTILE else (),
            keeps=lambda node_id: self.machine(node_id).keeps(),
            silent_since=self._silent_since,
            is_cloned=self._is_cloned,
            reserved_by=self._reserved_by,
        )
        self.invariants = Invariants(
            probe, self.trace, lease_seconds=NODE_LEASE_SECONDS, failed=self._failed
        )
        self.store = SharedStore(loop.time)
        names = scheduler_names(plan.shape)
        self.seats = {name: self._new_seat(name) for name in names}
        streaming = streaming_nodes(plan.seed, plan.shape)
        self.network.behind_nat.update(nodes_behind_nat(plan.seed, plan.shape))
        self.nodes = {
            name: self.node_type(
                plan.seed,
                name,
                self.network,
                self.invariants,
                schedulers=tuple(names),
                streams=name in streaming,
                size=node_size(plan.shape),
            )
            for name in node_names(plan.shape)
        }
        self.clones: dict[str, SimNode] = {}
        self.hostile: Life | None = None
        self.users = Users(
            plan.seed,
            Life(USER, self.trace, died=lambda _: None),
            self.network,
            self.invariants,
            self.trace,
            schedulers=tuple(names),
            leader=lambda: self.seat.newest if self.seat.scheduler is not None else None,
        )
        self.network.on_answer = self._answered
        self.network.on_request = self._requested
        self.network.on_send = self._sent
        self._past_orders: list[tuple[str, str, Any]] = []
        self._split = dice(plan.seed, "split")
        self._late = dice(plan.seed, "late")
        self._cures: dict[object, Callable[[], None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def shared(self) -> list[SharedSeat]:
        """The hosts of schedulers that elect a leader; empty with a single scheduler."""
        return [seat for seat in self.seats.values() if isinstance(seat, SharedSeat)]

    @property
    def seat(self) -> Seat:
        """The host of the leader; without a leader, any."""
        seats = list(self.seats.values())
        return next((seat for seat in seats if seat.scheduler is not None), seats[0])

    def seat_of(self, name: str) -> Seat:
        return self.seats.get(name) or self.seat

    @property
    def is_steady(self) -> bool:
        """The leader reaches the store, and leadership is unambiguous."""
        seat = self.seat
        newest = seat.newest
        if not seat.trouble.none or newest is None or self.invariants.losses.open:
            return False
        return newest.title == self.leader_name if self.shared else len(seat.lives) == 1

    @property
    def leader_name(self) -> str:
        """The leader in the store."""
        found = self.store.peek(keys.LEADER)
        return leader_of(found).name if found is not None else ""

    def open(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self.spawn(self.users.run())
        for seat in self.seats.values():
            self.start_scheduler(seat)
        for node in self.nodes.values():
            self.start_agent(node)

    def close(self) -> None:
        """Stop all processes and tasks."""
        schedulers = (life for seat in self.seats.values() for life in seat.lives)
        nodes = (*self.nodes.values(), *self.clones.values())
        for life in (*schedulers, *(node.life for node in nodes), self.hostile):
            if life is not None:
                life.restart_seconds = None
                life.crash()
        for task in self._tasks:
            task.cancel()

    def machine(self, address: str) -> SimNode:
        """A node or a clone."""
        return self.nodes.get(address) or self.clones[address]

    def _silent_since(self, node_id: NodeId) -> float | None:
        """Since when the runtimes of a node do not respond."""
        node = self.nodes.get(node_id)
        return node.silent_since if node is not None else None

    def _is_cloned(self, node_id: NodeId, container: Container) -> bool:
        clone = self.clones.get(node_id)
        return clone is not None and (container.workload_id, container.epoch) in clone.inherited

    def live(self) -> dict[NodeId, list[Container]]:
        nodes = (*self.nodes.values(), *self.clones.values())
        return {node.docker.node_id: node.docker.live() for node in nodes}

    def start_scheduler(self, seat: Seat) -> None:
        newest = seat.newest
        if newest is not None and newest.alive:
            return
        self.add_scheduler(seat)

    def add_scheduler(self, seat: Seat) -> None:
        life = Life(seat.name, self.trace, died=self._died)
        seat.lives = [each for each in seat.lives if each.alive]
        seat.lives.append(life)
        self._supervise(life, seat.run)

    def _reserved_by(self, life: Life) -> NodeIndex | None:
        """The reservations in the memory of a process, once it has read the store."""
        for seat in self.seats.values():
            scheduler = seat.schedulers.get(life.title)
            if scheduler is not None and life.alive:
                return scheduler.cluster.node_index
        return None

    def _new_seat(self, name: str) -> Seat:
        kind = Seat if self.plan.shape.schedulers <= 1 else self.shared_seat_type
        committed = self.invariants.committed
        return kind(self.plan.seed, self.network, committed=committed, name=name, store=self.store)

    def start_agent(self, node: SimNode) -> None:
        if not node.powered or (node.life is not None and node.life.alive):
            return
        node.life = Life(node.id, self.trace, died=self._died)
        self._supervise(node.life, node.run)

    def start_clone(self, node: SimNode) -> SimNode:
        """Start a second machine from a copy of this node's disk, in parallel to the node."""
        name = f"{node.id}-clone-{len(self.clones) + 1}"
        clone = self.clones[name] = self.node_type(
            self.plan.seed,
            name,
            self.network,
            self.invariants,
            schedulers=tuple(self.seats),
            streams=node.streams,
            size=node_size(self.plan.shape),
            clone_of=node,
        )
        clone.life = Life(name, self.trace, died=self._died)
        self._supervise(clone.life, clone.run)
        return clone

    def is_in_touch(self, node: SimNode) -> bool:
        """A scheduler has acknowledged a recent heartbeat."""
        return self.invariants.heartbeats.silent_for(node.id) < IN_TOUCH_SECONDS

    def start_hostile(self) -> None:
        """Start a node with a valid identity that sends arbitrary reports; at most one at a time."""
        if self.hostile is not None and self.hostile.alive:
            return
        life = self.hostile = Life(HOSTILE, self.trace, died=lambda _: None)
        random = dice(self.plan.seed, HOSTILE)
        names = sorted(workload.id for workload in self.invariants.mirror.workloads.values())

        async def report(life: Life) -> None:
            hostile = Hostile(
                self.network,
                life,
                random,
                schedulers=[*self.seats],
                workload_ids=names,
                joins=lambda: self.invariants.joins(NodeId(HOSTILE)),
            )
            await hostile.run()

        self._supervise(life, report)

    def lose_store(self) -> None:
        """Delete all data of the store. Running schedulers keep their memory."""
        titles = [title for seat in self.seats.values() for title in seat.remembering()]
        self.invariants.store_lost([node.id for node in self.nodes.values()], frozenset(titles))
        self.store.wipe()

    def deliver_old_order(self, node: SimNode) -> None:
        """Deliver again an order that is older than the node's entry or removal."""
        old = [
            (method, request)
            for listener, method, request in self._past_orders
            if listener == node.id
            and 0 < request.epoch < self._newest_epoch(node, request.id)
            # After a loss it is unknown whether a record had required a deletion.
            and (method == "ApplyWorkload" or not self.invariants.losses.ever)
        ]
        if old:
            self.spawn(self._deliver(node, *self._late.choice(old)))

    def _newest_epoch(self, node: SimNode, workload_id: str) -> int:
        entry = node.disk.kept(WorkloadId(workload_id))
        return (
            entry.order.epoch if entry is not None else node.disk.removed(WorkloadId(workload_id))
        )

    async def _deliver(self, node: SimNode, method: str, request: Any) -> None:
        sender = Life("late", self.trace, died=lambda _: None)
        with suppress(grpc.aio.AioRpcError):
            await self.network.call(sender, node.id, method, request, timeout=START_AGAIN_SECONDS)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        assert self._group is not None
        self._tasks.append(self._group.create_task(work))

    def for_a_while(self, seconds: float, cure: Callable[[], None]) -> None:
        """Undo a fault after its duration, or at the end of the fault phase."""
        name = object()

        def heal() -> None:
            if self._cures.pop(name, None) is not None:
                cure()

        self._cures[name] = cure
        later(seconds, heal)

    def make_peace(self) -> None:
        """End all faults and start everything that is down."""
        self.trace.add("world", "faults end")
        cures, self._cures = self._cures, {}
        for cure in cures.values():
            cure()
        for seat in self.seats.values():
            for life in seat.lives[:-1]:
                life.crash()
            self.start_scheduler(seat)
        for node in self.nodes.values():
            self.start_agent(node)

    def _supervise(self, life: Life, body: Callable[[Life], Coroutine[None, None, None]]) -> None:
        assert self._group is not None
        self.trace.add(life.name, "starts")
        self._group.create_task(self._live(life, body))

    async def _live(self, life: Life, body: Callable[[Life], Coroutine[None, None, None]]) -> None:
        try:
            await life.run(body)
        except ExceptionGroup as group:
            if life.alive:
                self._ended(life, group)

    def _ended(self, life: Life, group: ExceptionGroup[Exception]) -> None:
        """The process ended without an injected crash."""
        fenced = group.subgroup(FencedError) is not None
        _, surprises = group.split(PersysError)
        if surprises is not None:
            self.invariants.fail("8 process", f"{life.name} died of {_leaf(surprises)!r}")
        self.trace.add(life.name, f"ends: {_leaf(group)}")
        life.restart_seconds = None if fenced else START_AGAIN_SECONDS
        life.crash()

    def _died(self, life: Life) -> None:
        self.trace.add(life.name, "crashed")
        if life.restart_seconds is None:
            return
        if seat := self.seats.get(life.name):
            later(life.restart_seconds, lambda: self.start_scheduler(seat))
        elif node := self.nodes.get(life.name):
            later(life.restart_seconds, lambda: self.start_agent(node))

    def _resolve(self, source: str, target: str) -> Life | None:
        if target not in self.seats:
            known = target in self.nodes or target in self.clones
            return self.machine(target).life if known else None
        alive = [life for life in self.seats[target].lives if life.alive]
        if source in self.nodes and len(alive) > 1:
            return self._split.choice(alive)
        return alive[-1] if alive else None

    def _requested(self, listener: str, method: str, request: Any) -> None:
        if method in _QUIET:
            return
        self.trace.add(listener, f"receives {method}")
        if listener in self.nodes:
            self.invariants.ordered(NodeId(listener), request)
            if method in _ORDERS:
                self._past_orders.append((listener, method, request))

    def _answered(
        self, listener: Life, method: str, request: Any, answer: Any, beside: Metadata
    ) -> None:
        if listener.name in self.nodes:
            self.invariants.obeyed(NodeId(listener.name), request, answer)
        if listener.name not in self.seats:
            return
        self.invariants.answered(listener, method, request, answer, dict(beside))
        if method == "ListWorkloads":
            self._check_read(listener, answer, dict(beside))
        if method == "Heartbeat" and answer.leads:
            self._check_authority(listener, "claims leadership to a node")

    def _check_read(self, listener: Life, answer: Any, beside: dict[str, str]) -> None:
        """Check reads of the leader, and of standbys with their reported age."""
        seat = self.seats[listener.name]
        if not isinstance(seat, SharedSeat) or not seat.trouble.is_long_over:
            return
        if self.invariants.losses.open or seat.mourns:
            return
        if ROLE in beside or self.leader_name == listener.title:
            self.invariants.check_read(answer, int(beside.get(DATA_AGE_MS, "0")) / 1000)

    def _sent(self, sender: Life, method: str) -> None:
        if method in _ORDERS and sender.name in self.seats:
            self._check_authority(sender, f"orders {method}")

    def _check_authority(self, life: Life, deed: str) -> None:
        """Forwarded calls are not orders of the forwarder."""
        seat = self.seats[life.name]
        if not isinstance(seat, SharedSeat) or not seat.leads:
            return
        leader = self.leader_name
        if leader not in ("", life.title):
            self.invariants.fail("authority", f"{life.title} {deed}, but the leader is {leader}")

    def _failed(self, violation: Violation) -> None:
        if self.violation is None:
            self.violation = violation
            self.trace.add("VIOLATION", str(violation))
            self.over.set()


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _leaf(first) if isinstance(first, BaseExceptionGroup) else first
