"""The simulated cluster of one run: store, schedulers, nodes, users and network in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import grpc

from persys.agent.journal.records import Entry
from persys.core.placement.index.node_index import NodeIndex
from persys.errors import FencedError, PersysError
from persys.model.ids import NodeId, WorkloadId
from persys.scheduler.build import MachineSources
from persys.scheduler.ha.leader_key import leader_of
from persys.sim.actors.intruders import HOSTILE, Hostile
from persys.sim.actors.users import Users
from persys.sim.checks.context import Probe, Violation
from persys.sim.checks.safety import Invariants
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import Trace, rng
from persys.sim.engine.virtual_loop import later
from persys.sim.fakes.docker import Container
from persys.sim.fakes.ha_scheduler import HaScheduler
from persys.sim.fakes.journal_disk import CLUSTER
from persys.sim.fakes.node import SimNode
from persys.sim.fakes.scheduler import SimScheduler
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
_ORDERS = frozenset({"ApplyWorkload", "ApplyWorkloads", "DeleteWorkload"})
_QUIET = frozenset({"ListNodes", "Heartbeat", "GetMode"})


class World:
    node_type = SimNode
    users_type = Users
    ha_scheduler_type = HaScheduler
    settling_seconds = 0.0  # after convergence, until nothing is written any more

    def __init__(self, plan: Plan, *, trace: Trace | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.plan = plan
        self.cluster = plan.shape.site or CLUSTER
        self.trace = trace or Trace(loop.time)
        self.violation: Violation | None = None
        self.over = asyncio.Event()
        self.network = Network(rng(plan.seed, "network"), resolve=self._resolve)
        probe = Probe(
            loop.time,
            live=self.live,
            journal_entry=self._journal_entry,
            holds=lambda node_id: self.machine(node_id).holds() if node_id != HOSTILE else (),
            keeps=lambda node_id: self.machine(node_id).keeps(),
            silent_since=self._silent_since,
            is_cloned=self._is_cloned,
            reserved_by=self._reserved_by,
        )
        self.invariants = self._new_invariants(probe)
        self.store = SharedStore(loop.time)
        names = scheduler_names(plan.shape)
        self.hosts = {name: self._new_host(name) for name in names}
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
                cluster=self.cluster,
            )
            for name in node_names(plan.shape)
        }
        self.clones: dict[str, SimNode] = {}
        self.hostile: SimProcess | None = None
        self.users = self.users_type(
            plan.seed,
            SimProcess(plan.shape.name(USER), self.trace, died=lambda _: None),
            self.network,
            self.invariants,
            self.trace,
            schedulers=tuple(names),
            leader=lambda: self.host.newest if self.host.scheduler is not None else None,
            offloads=plan.shape.remote_nodes > 0,
        )
        self.network.on_answer = self._answered
        self.network.on_request = self._requested
        self.network.on_send = self._sent
        self._past_orders: list[tuple[str, str, Any]] = []
        self._split = rng(plan.seed, "split")
        self._late = rng(plan.seed, "late")
        self._undo: dict[object, Callable[[], None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def _new_invariants(self, probe: Probe) -> Invariants:
        return Invariants(probe, self.trace, lease_seconds=NODE_LEASE_SECONDS, failed=self._failed)

    @property
    def clusters(self) -> "tuple[World, ...]":
        return (self,)

    def fails_elsewhere(self) -> frozenset[WorkloadId]:
        """Workloads that another cluster runs here, and that fail: it retries them."""
        return frozenset()

    def leftovers(self) -> list[str]:
        """What must not be left once everything has converged."""
        return []

    @property
    def shared(self) -> list[HaScheduler]:
        """The hosts of schedulers that elect a leader; empty with a single scheduler."""
        return [host for host in self.hosts.values() if isinstance(host, HaScheduler)]

    @property
    def host(self) -> SimScheduler:
        """The host of the leader; without a leader, any."""
        hosts = list(self.hosts.values())
        return next((host for host in hosts if host.scheduler is not None), hosts[0])

    def host_of(self, name: str) -> SimScheduler:
        return self.hosts.get(name) or self.host

    @property
    def is_steady(self) -> bool:
        """The leader reaches the store, and leadership is unambiguous."""
        host = self.host
        newest = host.newest
        if not host.faults.none or newest is None or self.invariants.losses.open:
            return False
        return newest.title == self.leader_name if self.shared else len(host.processes) == 1

    @property
    def leader_name(self) -> str:
        """The leader in the store."""
        found = self.store.peek(keys.LEADER)
        return leader_of(found).name if found is not None else ""

    def open(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self.spawn(self.users.run())
        for host in self.hosts.values():
            self.start_scheduler(host)
        for node in self.nodes.values():
            self.start_agent(node)

    def close(self) -> None:
        """Stop all processes and tasks."""
        schedulers = (process for host in self.hosts.values() for process in host.processes)
        nodes = (*self.nodes.values(), *self.clones.values())
        for process in (*schedulers, *(node.process for node in nodes), self.hostile):
            if process is not None:
                process.restart_seconds = None
                process.crash()
        for task in self._tasks:
            task.cancel()

    def machine(self, address: str) -> SimNode:
        """A node or a clone."""
        return self.nodes.get(address) or self.clones[address]

    def _journal_entry(self, node_id: NodeId, workload_id: WorkloadId) -> Entry | None:
        if node_id == HOSTILE:
            return None
        return self.machine(node_id).disk.journal_entry(workload_id)

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

    def start_scheduler(self, host: SimScheduler) -> None:
        newest = host.newest
        if newest is not None and newest.alive:
            return
        self.add_scheduler(host)

    def add_scheduler(self, host: SimScheduler) -> None:
        process = SimProcess(host.name, self.trace, died=self._died)
        host.processes = [each for each in host.processes if each.alive]
        host.processes.append(process)
        self._supervise(process, host.run)

    def _reserved_by(self, process: SimProcess) -> NodeIndex | None:
        """The reservations in the memory of a process, once it has read the store."""
        for host in self.hosts.values():
            scheduler = host.schedulers.get(process.title)
            if scheduler is not None and process.alive:
                return scheduler.cluster.node_index
        return None

    def _new_host(self, name: str) -> SimScheduler:
        kind = SimScheduler if self.plan.shape.schedulers <= 1 else self.ha_scheduler_type
        committed = self.invariants.committed
        return kind(
            self.plan.seed,
            self.network,
            committed=committed,
            name=name,
            store=self.store,
            cluster=self.cluster,
            machines=self._machine_sources(),
        )

    def _machine_sources(self) -> MachineSources | None:
        """Where the machines of node pools come from; None: there are no pools."""
        return None

    def start_agent(self, node: SimNode) -> None:
        if not node.powered or (node.process is not None and node.process.alive):
            return
        node.process = SimProcess(node.id, self.trace, died=self._died)
        self._supervise(node.process, node.run)

    def start_clone(self, node: SimNode) -> SimNode:
        """Start a second machine from a copy of this node's disk, in parallel to the node."""
        name = f"{node.id}-clone-{len(self.clones) + 1}"
        clone = self.clones[name] = self.node_type(
            self.plan.seed,
            name,
            self.network,
            self.invariants,
            schedulers=tuple(self.hosts),
            streams=node.streams,
            size=node_size(self.plan.shape),
            clone_of=node,
            cluster=self.cluster,
        )
        clone.process = SimProcess(name, self.trace, died=self._died)
        self._supervise(clone.process, clone.run)
        return clone

    def has_contact(self, node: SimNode) -> bool:
        """A scheduler has acknowledged a recent heartbeat, and the node is still on record."""
        is_recorded = keys.node_key(NodeId(node.id)) in self.invariants.mirror.nodes
        return is_recorded and self.invariants.heartbeats.silent_for(node.id) < IN_TOUCH_SECONDS

    def start_hostile(self) -> None:
        """Start a node with a valid identity that sends arbitrary reports; at most one at a time."""
        if self.hostile is not None and self.hostile.alive:
            return
        process = self.hostile = SimProcess(HOSTILE, self.trace, died=lambda _: None)
        random = rng(self.plan.seed, HOSTILE)
        names = sorted(workload.id for workload in self.invariants.mirror.workloads.values())

        async def report(process: SimProcess) -> None:
            hostile = Hostile(
                self.network,
                process,
                random,
                schedulers=[*self.hosts],
                workload_ids=names,
                joins=lambda: self.invariants.joins(NodeId(HOSTILE)),
            )
            await hostile.run()

        self._supervise(process, report)

    def lose_store(self) -> None:
        """Delete all data of the store. Running schedulers keep their memory."""
        titles = [title for host in self.hosts.values() for title in host.with_records()]
        self.invariants.store_lost([node.id for node in self.nodes.values()], frozenset(titles))
        self.store.wipe()

    def deliver_old_order(self, node: SimNode) -> None:
        """Deliver again an order that is older than the node's entry or removal."""
        old = [
            (method, request)
            for listener, method, request in self._past_orders
            if listener == node.id
            and 0 < request.epoch < node.disk.newest_epoch(WorkloadId(request.id))
            # After a loss it is unknown whether a record had required a deletion.
            and (method == "ApplyWorkload" or not self.invariants.losses.ever)
        ]
        if old:
            self.spawn(self._deliver(node, *self._late.choice(old)))

    async def _deliver(self, node: SimNode, method: str, request: Any) -> None:
        sender = SimProcess("late", self.trace, died=lambda _: None)
        with suppress(grpc.aio.AioRpcError):
            await self.network.call(sender, node.id, method, request, timeout=START_AGAIN_SECONDS)

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        assert self._group is not None
        self._tasks.append(self._group.create_task(work))

    def undo_after(self, seconds: float, undo_one: Callable[[], None]) -> None:
        """Undo a fault after its duration, or at the end of the fault phase."""
        name = object()

        def heal() -> None:
            if self._undo.pop(name, None) is not None:
                undo_one()

        self._undo[name] = undo_one
        later(seconds, heal)

    def end_faults(self) -> None:
        """End all faults and start everything that is down."""
        self.trace.add("world", "faults end")
        undo, self._undo = self._undo, {}
        for undo_one in undo.values():
            undo_one()
        for host in self.hosts.values():
            for process in host.processes[:-1]:
                process.crash()
            self.start_scheduler(host)
        for node in self.nodes.values():
            self.start_agent(node)

    def _supervise(
        self, process: SimProcess, body: Callable[[SimProcess], Coroutine[None, None, None]]
    ) -> None:
        assert self._group is not None
        self.trace.add(process.name, "starts")
        self._group.create_task(self._run_process(process, body))

    async def _run_process(
        self, process: SimProcess, body: Callable[[SimProcess], Coroutine[None, None, None]]
    ) -> None:
        try:
            await process.run(body)
        except ExceptionGroup as group:
            if process.alive:
                self._ended(process, group)

    def _ended(self, process: SimProcess, group: ExceptionGroup[Exception]) -> None:
        """The process ended without an injected crash."""
        fenced = group.subgroup(FencedError) is not None
        _, unexpected = group.split(PersysError)
        if unexpected is not None:
            self.invariants.fail("8 process", f"{process.name} died of {_leaf(unexpected)!r}")
        self.trace.add(process.name, f"ends: {_leaf(group)}")
        process.restart_seconds = None if fenced else START_AGAIN_SECONDS
        process.crash()

    def _died(self, process: SimProcess) -> None:
        self.trace.add(process.name, "crashed")
        if process.restart_seconds is None:
            return
        if host := self.hosts.get(process.name):
            later(process.restart_seconds, lambda: self.start_scheduler(host))
        elif node := self.nodes.get(process.name):
            later(process.restart_seconds, lambda: self.start_agent(node))

    def _resolve(self, source: str, target: str) -> SimProcess | None:
        if target not in self.hosts:
            known = target in self.nodes or target in self.clones
            return self.machine(target).process if known else None
        alive = [process for process in self.hosts[target].processes if process.alive]
        if source in self.nodes and len(alive) > 1:
            return self._split.choice(alive)
        return alive[-1] if alive else None

    def _requested(self, listener: str, method: str, request: Any) -> None:
        if method in _QUIET:
            return
        self.trace.add(listener, f"receives {method}")
        if listener in self.nodes:
            self.invariants.order_received(NodeId(listener), request)
            if method == "ApplyWorkloads":
                self._past_orders += [(listener, "ApplyWorkload", one) for one in request.orders]
            elif method in _ORDERS:
                self._past_orders.append((listener, method, request))

    def _answered(
        self, listener: SimProcess, method: str, request: Any, answer: Any, metadata: Metadata
    ) -> None:
        if listener.name in self.nodes:
            self.invariants.order_accepted(NodeId(listener.name), request, answer)
        if listener.name not in self.hosts:
            return
        self.invariants.answered(listener, method, request, answer, dict(metadata))
        if method == "ListWorkloads":
            self._check_read(listener, answer, dict(metadata))
        if method == "Heartbeat" and answer.leads:
            self._check_authority(listener, "claims leadership to a node")

    def _check_read(self, listener: SimProcess, answer: Any, metadata: dict[str, str]) -> None:
        """Check reads of the leader, and of standbys with their reported age."""
        host = self.hosts[listener.name]
        if not isinstance(host, HaScheduler) or not host.faults.is_long_over:
            return
        if self.invariants.losses.open or host.in_recovery:
            return
        if ROLE in metadata or self.leader_name == listener.title:
            self.invariants.check_read(answer, int(metadata.get(DATA_AGE_MS, "0")) / 1000)

    def _sent(self, sender: SimProcess, method: str) -> None:
        if method in _ORDERS and sender.name in self.hosts:
            self._check_authority(sender, f"orders {method}")

    def _check_authority(self, process: SimProcess, action: str) -> None:
        """Forwarded calls are not orders of the forwarder."""
        host = self.hosts[process.name]
        if not isinstance(host, HaScheduler) or not host.leads:
            return
        leader = self.leader_name
        if leader not in ("", process.title):
            self.invariants.fail(
                "authority", f"{process.title} {action}, but the leader is {leader}"
            )

    def _failed(self, violation: Violation) -> None:
        if self.violation is None:
            self.violation = violation
            self.trace.add("VIOLATION", str(violation))
            self.over.set()


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _leaf(first) if isinstance(first, BaseExceptionGroup) else first
