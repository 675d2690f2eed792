"""The world of one run: a store, a scheduler, nodes, users and a network, all in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import grpc

from persys.errors import FencedError, PersysError
from persys.model.ids import NodeId, WorkloadId
from persys.sim.dice import dice
from persys.sim.docker import Container
from persys.sim.drawing import node_names
from persys.sim.happening import SCHEDULER, USER, Plan
from persys.sim.invariants import Invariants, Violation
from persys.sim.life import Life
from persys.sim.loop import later
from persys.sim.network import Network
from persys.sim.node import SimNode
from persys.sim.seat import Seat
from persys.sim.trace import Trace
from persys.sim.users import Users

START_AGAIN_SECONDS = 2.0
_ORDERS = frozenset({"ApplyWorkload", "DeleteWorkload"})
_QUIET = frozenset({"ListNodes", "Heartbeat"})


class World:
    node_type = SimNode

    def __init__(self, plan: Plan) -> None:
        loop = asyncio.get_running_loop()
        self.plan = plan
        self.trace = Trace(loop.time)
        self.violation: Violation | None = None
        self.over = asyncio.Event()
        self.network = Network(dice(plan.seed, "network"), resolve=self._resolve)
        self.invariants = Invariants(
            loop.time,
            self.trace,
            lease_seconds=30.0,
            failed=self._failed,
            live=self.live,
            kept=lambda node_id, workload_id: self.nodes[node_id].disk.kept(workload_id),
        )
        self.seat = Seat(plan.seed, self.network, committed=self.invariants.committed)
        self.nodes = {
            name: self.node_type(plan.seed, name, self.network, self.invariants)
            for name in node_names(plan.shape)
        }
        self.users = Users(
            plan.seed,
            Life(USER, self.trace, died=lambda _: None),
            self.network,
            self.invariants,
            self.trace,
        )
        self.network.on_answer = self._answered
        self.network.on_request = self._requested
        self._past_orders: list[tuple[str, str, Any]] = []
        self._split = dice(plan.seed, "split")
        self._cures: dict[object, Callable[[], None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def open(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self.spawn(self.users.run())
        self.start_scheduler()
        for node in self.nodes.values():
            self.start_agent(node)

    def close(self) -> None:
        """End everything, so that nothing is left to be waited for."""
        for life in (*self.seat.lives, *(node.life for node in self.nodes.values())):
            if life is not None:
                life.restart_seconds = None
                life.crash()
        for task in self._tasks:
            task.cancel()

    def live(self) -> dict[NodeId, list[Container]]:
        return {node.id: node.docker.live() for node in self.nodes.values()}

    def start_scheduler(self) -> None:
        newest = self.seat.newest
        if newest is not None and newest.alive:
            return
        self.add_scheduler()

    def add_scheduler(self) -> None:
        life = Life(SCHEDULER, self.trace, died=self._died)
        self.seat.lives = [each for each in self.seat.lives if each.alive]
        self.seat.lives.append(life)
        self._supervise(life, self.seat.run)

    def start_agent(self, node: SimNode) -> None:
        if not node.powered or (node.life is not None and node.life.alive):
            return
        node.life = Life(node.id, self.trace, died=self._died)
        self._supervise(node.life, node.run)

    def haunt(self, node: SimNode) -> None:
        """An order that the node has long outlived comes once more."""
        for listener, method, request in self._past_orders:
            entry = node.disk.kept(WorkloadId(request.id)) if listener == node.id else None
            if entry is not None and 0 < request.epoch < entry.order.epoch:
                self.spawn(self._whisper(node, method, request))
                return

    async def _whisper(self, node: SimNode, method: str, request: Any) -> None:
        ghost = Life("ghost", self.trace, died=lambda _: None)
        with suppress(grpc.aio.AioRpcError):
            await self.network.call(ghost, node.id, method, request, timeout=START_AGAIN_SECONDS)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        assert self._group is not None
        self._tasks.append(self._group.create_task(work))

    def for_a_while(self, seconds: float, cure: Callable[[], None]) -> None:
        """Undo a misfortune after its time, or when peace comes."""
        name = object()

        def heal() -> None:
            if self._cures.pop(name, None) is not None:
                cure()

        self._cures[name] = cure
        later(seconds, heal)

    def make_peace(self) -> None:
        """All misfortune ends, and whatever is down comes up."""
        self.trace.add("world", "peace")
        cures, self._cures = self._cures, {}
        for cure in cures.values():
            cure()
        for life in self.seat.lives[:-1]:
            life.crash()
        self.start_scheduler()
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
        """It ended by itself, not by a crash."""
        fenced = group.subgroup(FencedError) is not None
        _, surprises = group.split(PersysError)
        if surprises is not None:
            self.invariants.fail("8 process", f"{life.name} died of {_leaf(surprises)!r}")
        self.trace.add(life.name, f"ends: {_leaf(group)}")
        life.restart_seconds = None if fenced else START_AGAIN_SECONDS
        life.crash()

    def _died(self, life: Life) -> None:
        self.trace.add(life.name, "is dead")
        if life.restart_seconds is None:
            return
        node = self.nodes.get(life.name)
        again = self.start_scheduler if node is None else lambda: self.start_agent(node)
        later(life.restart_seconds, again)

    def _resolve(self, source: str, target: str) -> Life | None:
        if target != SCHEDULER:
            return self.nodes[target].life
        alive = [life for life in self.seat.lives if life.alive]
        if source in self.nodes and len(alive) > 1:
            return self._split.choice(alive)
        return alive[-1] if alive else None

    def _requested(self, listener: str, method: str, request: Any) -> None:
        if method in _QUIET:
            return
        self.trace.add(listener, f"hears {method}")
        if listener in self.nodes:
            self.invariants.ordered(NodeId(listener), request)
            if method in _ORDERS:
                self._past_orders.append((listener, method, request))

    def _answered(self, listener: Life, method: str, request: Any, answer: Any) -> None:
        if listener.name in self.nodes:
            self.invariants.obeyed(NodeId(listener.name), request, answer)
        else:
            self.invariants.answered(listener, method, request, answer)

    def _failed(self, violation: Violation) -> None:
        if self.violation is None:
            self.violation = violation
            self.trace.add("VIOLATION", str(violation))
            self.over.set()


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _leaf(first) if isinstance(first, BaseExceptionGroup) else first
