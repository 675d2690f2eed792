"""The table of all faults: how each is drawn from a seed, and how it is injected.

A fault starts at its time and ends after its duration, or at the end of the fault phase. An unknown fault in
a plan is an error. Faults of the group ANY can occur with every seed; the other groups belong to seeds with
several schedulers, with control streams, with a remote cluster or with a node pool.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto

from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import rng
from persys.sim.engine.virtual_loop import later
from persys.sim.fakes.journal_disk import Part
from persys.sim.fakes.node import SimNode
from persys.sim.fakes.scheduler import SimScheduler
from persys.sim.fakes.store import StoreFaults
from persys.sim.federated_world import FederatedWorld
from persys.sim.network.network import LinkFaults
from persys.sim.pool_world import PoolWorld
from persys.sim.scenario import draws
from persys.sim.scenario.plan import ANY_AGENT, USER, PlannedEvent
from persys.sim.world import World
from persys.store import keys

BOOT_SECONDS = 5.0
REINSTALL_SECONDS = 60.0
SKEW_SECONDS_MAX = 200.0
FOR_GOOD_SECONDS = 10_000.0
TOLD_SECONDS = 120.0  # a clone that is refused for this long must have stopped its data copies
# Records that operators may change with a tool of the store.
REWRITTEN = (
    keys.WORKLOADS,
    keys.ASSIGNMENTS,
    keys.STATUSES,
    keys.RETRIES,
    keys.NODES,
    keys.TOMBSTONES,
    keys.SETS,
    keys.JOBS,
    keys.RUNS,
)


class Group(Enum):
    ANY = auto()
    MANY_SCHEDULERS = auto()
    STREAMS = auto()
    LOSSES = auto()  # drawn together with snapshots and recoveries
    FEDERATION = auto()
    NODE_POOL = auto()


Inject = Callable[[World, PlannedEvent], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """`draw` returns the event without time and kind. `timely`: mostly near a user request."""

    draw: draws.Draw
    inject: Inject
    group: Group = Group.ANY
    timely: bool = False


def inject(world: World, event: PlannedEvent) -> None:
    FAULTS[event.kind].inject(world, event)


def kinds_of(group: Group) -> list[str]:
    return [kind for kind, fault in FAULTS.items() if fault.group is group]


def _crash_agent(world: World, event: PlannedEvent) -> None:
    if (process := world.nodes[event.target].process) is not None:
        _crash(process, event)


def _crash(process: SimProcess, event: PlannedEvent) -> None:
    process.restart_seconds = event.seconds
    process.crash()


def _crash_agent_at(world: World, event: PlannedEvent) -> None:
    """Crash an agent at a gate; with ANY_AGENT the first agent that reaches it."""
    if event.target == ANY_AGENT:
        processes = [node.process for node in world.nodes.values()]
    else:
        processes = [world.nodes[event.target].process]
    targets = [process for process in processes if process is not None and process.alive]

    def cancel_crash() -> None:
        for process in targets:
            process.cancel_crash()

    for process in targets:
        process.restart_seconds = event.seconds
        process.crash_at(event.word, int(event.amount), on_crash=cancel_crash)
    world.undo_after(FOR_GOOD_SECONDS, cancel_crash)


def _on_newest(act: Callable[[World, SimScheduler, SimProcess, PlannedEvent], None]) -> Inject:
    def inject_it(world: World, event: PlannedEvent) -> None:
        host = world.host_of(event.target)
        if (newest := host.newest) is not None:
            act(world, host, newest, event)

    return inject_it


def _crash_scheduler(
    _world: World, _host: SimScheduler, newest: SimProcess, event: PlannedEvent
) -> None:
    _crash(newest, event)


def _crash_scheduler_at(
    world: World, _host: SimScheduler, newest: SimProcess, event: PlannedEvent
) -> None:
    newest.restart_seconds = event.seconds
    newest.crash_at(event.word, int(event.amount))
    world.undo_after(FOR_GOOD_SECONDS, newest.cancel_crash)


def _freeze_scheduler(
    world: World, _host: SimScheduler, newest: SimProcess, event: PlannedEvent
) -> None:
    if newest.alive:
        newest.freeze()
        world.undo_after(event.seconds, newest.thaw)


def _freeze_one_of_many(world: World, event: PlannedEvent) -> None:
    if world.shared:
        _on_newest(_freeze_scheduler)(world, event)


def _second_scheduler(
    world: World, host: SimScheduler, newest: SimProcess, _event: PlannedEvent
) -> None:
    if newest.alive and not world.shared:
        world.add_scheduler(host)


def _power_off(world: World, event: PlannedEvent) -> None:
    node = world.nodes[event.target]
    if node.powered:
        node.power_off()
        world.undo_after(event.seconds, lambda: _power_on(world, node))


def _power_on(world: World, node: SimNode) -> None:
    if not node.powered:
        node.power_on()
        later(BOOT_SECONDS, lambda: world.start_agent(node))


def _destroy_node(world: World, event: PlannedEvent) -> None:
    """Destroy the machine and its data. The operator confirms it, and later installs a new machine."""
    node = world.nodes[event.target]
    if not node.powered:
        return
    node.destroy()

    async def replace() -> None:
        await world.users.confirm_dead(node.id)
        await asyncio.sleep(REINSTALL_SECONDS)
        _power_on(world, node)

    world.spawn(replace())
    world.undo_after(FOR_GOOD_SECONDS, lambda: _power_on(world, node))


def _set_clock(world: World, event: PlannedEvent) -> None:
    node = world.nodes.get(event.target)
    jump = event.amount
    if node is None and world.shared:
        # Retry times are on the leader's clock: the clocks of several schedulers are synchronised by NTP.
        jump = max(-SKEW_SECONDS_MAX, min(jump, SKEW_SECONDS_MAX))
    wall = node.wall if node is not None else world.host_of(event.target).wall
    wall.jump(timedelta(seconds=jump))
    if node is not None:
        world.invariants.contacts.clock_set(node.id, back=event.amount < 0)


def _with_link_faults(make: Callable[[World, PlannedEvent], list[LinkFaults]]) -> Inject:
    def inject_it(world: World, event: PlannedEvent) -> None:
        link_faults = make(world, event)
        world.network.link_faults.extend(link_faults)

        def clear() -> None:
            for each in link_faults:
                world.network.link_faults.remove(each)

        world.undo_after(event.seconds, clear)

    return inject_it


def _partition(world: World, event: PlannedEvent) -> list[LinkFaults]:
    to = [LinkFaults(source=name, target=event.target, loss=1.0) for name in world.hosts]
    back = [LinkFaults(source=event.target, target=name, loss=1.0) for name in world.hosts]
    return {"both": to + back, "to": to, "from": back}[event.word]


def _isolated(world: World, event: PlannedEvent) -> list[LinkFaults]:
    """Isolate a scheduler, but not from the store."""
    name = world.host_of(event.target).name
    others = [other for other in world.hosts if other != name]
    cut_off = {"agents": [*world.nodes], "others": others, "all": [*world.nodes, *others, USER]}
    return [
        link_faults
        for other in cut_off[event.word]
        for link_faults in (
            LinkFaults(source=name, target=other, loss=1.0),
            LinkFaults(source=other, target=name, loss=1.0),
        )
    ]


def _loss(_world: World, event: PlannedEvent) -> list[LinkFaults]:
    return [
        LinkFaults(target=event.target, loss=event.amount),
        LinkFaults(source=event.target, loss=event.amount),
    ]


def _duplicates(_world: World, event: PlannedEvent) -> list[LinkFaults]:
    """Duplicate messages, except user requests: a late duplicate would undo the next request."""
    return [
        LinkFaults(target=event.target, echo=event.amount),
        LinkFaults(source=event.target, echo=event.amount),
    ]


def _delay(_world: World, event: PlannedEvent) -> list[LinkFaults]:
    return [
        LinkFaults(target=event.target, delay_seconds=event.amount),
        LinkFaults(source=event.target, delay_seconds=event.amount),
    ]


def _store_fault(begin: Callable[[StoreFaults, float], None]) -> Inject:
    """A store fault for all schedulers, or for the target of the event."""

    def inject_it(world: World, event: PlannedEvent) -> None:
        hosts = [world.host_of(event.target)] if event.target else list(world.hosts.values())
        for host in hosts:
            begin(host.faults, event.amount)
            world.undo_after(event.seconds, host.faults.heal)

    return inject_it


def _wipe_store(world: World, event: PlannedEvent) -> None:
    """`word` is the recovery that the operator will choose; `amount` 1 also restarts the schedulers.

    The operator also corrects the clock of a restarted scheduler: epochs follow it, and no record is left of
    those that were used at a later time.
    """
    world.lose_store()
    if event.amount:
        for host in world.hosts.values():
            host.wall.catch_up()
            for process in host.processes:
                process.restart_seconds = BOOT_SECONDS
                process.crash()
    world.users.operator.recovery = event.word
    world.users.operator.patience_seconds = event.seconds


def _runtime_fault(name: str) -> Inject:
    """Set a field of the node's runtime faults to the event's amount."""
    return _field_fault(lambda world, event: world.nodes[event.target].faults, name)


def _provider_fault(name: str, *, value: bool | None = None) -> Inject:
    """Set a field of the provider's faults to `value`, by default the event's amount."""

    def faults_of(world: World, _event: PlannedEvent) -> object:
        assert isinstance(world, PoolWorld), "the plan has no node pool"
        return world.provider.faults

    return _field_fault(faults_of, name, value=value)


def _field_fault(
    faults_of: Callable[[World, PlannedEvent], object], name: str, *, value: bool | None = None
) -> Inject:
    def inject_it(world: World, event: PlannedEvent) -> None:
        faults = faults_of(world, event)
        healthy = getattr(type(faults)(), name)
        setattr(faults, name, event.amount if value is None else value)
        world.undo_after(event.seconds, lambda: setattr(faults, name, healthy))

    return inject_it


def _docker_out(world: World, event: PlannedEvent) -> None:
    node = world.nodes[event.target]
    node.docker_fails(asyncio.get_running_loop().time())
    world.undo_after(event.seconds, node.docker_returns)


def _slow_disk(world: World, event: PlannedEvent) -> None:
    disk = world.nodes[event.target].disk
    disk.slow_seconds = event.amount
    world.undo_after(event.seconds, lambda: setattr(disk, "slow_seconds", 0.0))


def _fail_disk(world: World, event: PlannedEvent) -> None:
    disk, part = world.nodes[event.target].disk, Part(event.word)
    disk.errors[part] = event.amount
    world.undo_after(event.seconds, lambda: disk.heal(part))


def _silence_registry(world: World, event: PlannedEvent) -> None:
    silent = world.network.silent_registries
    silent.add(event.word)
    world.undo_after(event.seconds, lambda: silent.discard(event.word))


def _false_reports(world: World, event: PlannedEvent) -> None:
    node = world.nodes[event.target]
    node.false_reports = event.amount
    world.undo_after(event.seconds, lambda: setattr(node, "false_reports", 0.0))


def _write_from_outside(world: World, event: PlannedEvent) -> None:
    """Write some records at a new version that no scheduler has read."""
    random = rng(world.plan.seed, "outside", event.at)
    for key in world.store.written(REWRITTEN):
        if random.random() < event.amount:
            world.store.rewrite(key)


def _kill_one(world: World, event: PlannedEvent) -> None:
    node = world.nodes[event.target]
    if node.powered:
        node.docker.kill_one(oom=event.word == "oom")


def _lose_half(world: World, event: PlannedEvent) -> None:
    for stream in list(world.network.streams):
        if stream.caller == event.target:
            stream.lose(event.word)


def _break_at_message(world: World, event: PlannedEvent) -> None:
    world.network.breaks[event.target] = int(event.amount)


def _clone_node(world: World, event: PlannedEvent) -> None:
    """Clone a node that is in contact: while its lease is valid the clone must be refused."""
    node = world.nodes[event.target]
    if node.process is None or not node.process.alive or not world.has_contact(node):
        return
    clone = world.start_clone(node)
    first = node.process

    def end() -> None:
        if event.seconds >= TOLD_SECONDS and node.process is first and world.has_contact(node):
            for copy in clone.docker.live():
                if copy.holds_data:
                    text = f"{copy.workload_id} runs on {clone.name}, a clone that was refused"
                    world.invariants.fail("4 one copy of data", text)
        clone.end()

    world.undo_after(event.seconds, end)


def _hostile_node(world: World, event: PlannedEvent) -> None:
    world.start_hostile()
    assert world.hostile is not None
    world.undo_after(event.seconds, world.hostile.crash)


def _late_order(world: World, event: PlannedEvent) -> None:
    world.deliver_old_order(world.nodes[event.target])


def _federated(act: Callable[[FederatedWorld, PlannedEvent], None]) -> Inject:
    def inject_it(world: World, event: PlannedEvent) -> None:
        assert isinstance(world, FederatedWorld), "the plan has no remote cluster"
        act(world, event)

    return inject_it


def _remotely(injector: Inject) -> Inject:
    """The same fault in the remote cluster."""
    return _federated(lambda world, event: injector(world.remote, event))


def _save_snapshot(world: World, event: PlannedEvent) -> None:
    world.users.do(PlannedEvent(event.at, "snapshot"))


def _revoke_token(world: FederatedWorld, event: PlannedEvent) -> None:
    world.token.revoked = True
    world.undo_after(event.seconds, lambda: setattr(world.token, "revoked", False))


def _fill_after_plan(world: FederatedWorld, event: PlannedEvent) -> None:
    """Other users of the remote cluster take its capacity after a plan, or at once without an amount."""
    world.remote.fills = int(event.amount)
    if not world.remote.fills:
        world.remote.fill()

    def end() -> None:
        world.remote.fills = 0
        world.remote.empty()

    world.undo_after(event.seconds, end)


def _answers_to_federation_lost(world: World, event: PlannedEvent) -> list[LinkFaults]:
    return [LinkFaults(source=name, target=event.target, loss=event.amount) for name in world.hosts]


def _out(faults: StoreFaults, _amount: float) -> None:
    faults.out = True


def _answers_lost(faults: StoreFaults, amount: float) -> None:
    faults.answers_lost = amount


def _partial(faults: StoreFaults, amount: float) -> None:
    faults.partial = amount


def _late(faults: StoreFaults, amount: float) -> None:
    faults.late = amount


def _slow(faults: StoreFaults, amount: float) -> None:
    faults.delay_seconds = amount


MANY, STREAMS = Group.MANY_SCHEDULERS, Group.STREAMS
FEDERATION, NODE_POOL = Group.FEDERATION, Group.NODE_POOL
_PARTS = ("both", "to", "from")

FAULTS: dict[str, Fault] = {
    "crash-agent": Fault(draws.on_node(brief=True), _crash_agent, timely=True),
    "crash-agent-at": Fault(draws.agent_call, _crash_agent_at, timely=True),
    "crash-scheduler": Fault(draws.on_scheduler(), _on_newest(_crash_scheduler), timely=True),
    "crash-scheduler-at": Fault(draws.scheduler_call, _on_newest(_crash_scheduler_at), timely=True),
    "second-scheduler": Fault(draws.on_scheduler(), _on_newest(_second_scheduler)),
    "freeze-scheduler": Fault(draws.on_scheduler(), _on_newest(_freeze_scheduler), MANY),
    "isolate-scheduler": Fault(draws.isolate_scheduler, _with_link_faults(_isolated), MANY),
    "power-off": Fault(draws.on_node(), _power_off),
    "destroy-node": Fault(draws.on_node(), _destroy_node),
    "clock": Fault(draws.clock, _set_clock),
    "cut": Fault(draws.cut, _with_link_faults(_partition)),
    "cut-user": Fault(draws.cut_user, _with_link_faults(_partition)),
    "lossy": Fault(draws.on_node(*draws.SHARES), _with_link_faults(_loss)),
    "duplicates": Fault(draws.on_node(*draws.SHARES), _with_link_faults(_duplicates)),
    "slow-net": Fault(draws.on_node(0.2, 1.0, 4.0), _with_link_faults(_delay)),
    "clone-node": Fault(draws.clone, _clone_node, timely=True),
    "hostile-node": Fault(draws.hostile, _hostile_node),
    "false-reports": Fault(draws.on_node(0.3, 1.0), _false_reports),
    "late-order": Fault(draws.on_node(), _late_order),
    "store-out": Fault(draws.on_all(), _store_fault(_out)),
    "answers-lost": Fault(draws.on_all(*draws.SHARES), _store_fault(_answers_lost), timely=True),
    "partial-commits": Fault(draws.on_all(*draws.SHARES), _store_fault(_partial), timely=True),
    "late-commits": Fault(draws.on_all(*draws.SHARES), _store_fault(_late), timely=True),
    "outside-write": Fault(draws.outside_write, _write_from_outside),
    "slow-store": Fault(draws.on_all(0.1, 2.0), _store_fault(_slow)),
    "cut-store": Fault(draws.on_scheduler(), _store_fault(_out), MANY),
    "one-answers-lost": Fault(draws.on_scheduler(0.1, 0.5), _store_fault(_answers_lost), MANY),
    "one-late-commits": Fault(draws.on_scheduler(0.1, 0.5), _store_fault(_late), MANY),
    "one-slow-store": Fault(draws.on_scheduler(0.1, 1.0), _store_fault(_slow), MANY),
    "wipe-store": Fault(draws.drawn_elsewhere, _wipe_store, Group.LOSSES),
    "docker-out": Fault(draws.on_node(), _docker_out),
    "docker-errors": Fault(draws.on_node(*draws.SHARES), _runtime_fault("errors")),
    "docker-answers-lost": Fault(
        draws.on_node(*draws.SHARES), _runtime_fault("answers_lost"), timely=True
    ),
    "slow-docker": Fault(draws.on_node(5.0, 40.0), _runtime_fault("slowness")),
    "os-errors": Fault(draws.on_node(*draws.SHARES), _runtime_fault("os_errors"), timely=True),
    "slow-disk": Fault(draws.on_node(0.1, 2.0, 15.0, 40.0), _slow_disk, timely=True),
    "disk-errors": Fault(draws.disk_errors, _fail_disk, timely=True),
    "silent-registry": Fault(draws.silent_registry, _silence_registry, timely=True),
    "kill-container": Fault(draws.kill_container, _kill_one),
    "break-stream": Fault(draws.break_stream, _break_at_message, STREAMS),
    "half-open": Fault(draws.half_open, _lose_half, STREAMS),
    # The federated node, its link to each cluster, and the remote cluster.
    "federation-crash": Fault(draws.federation(brief=True), _crash_agent, FEDERATION, timely=True),
    "federation-crash-at": Fault(
        draws.federation(1, 1, 2, 4, words=draws.FEDERATION_CALLS, brief=True),
        _crash_agent_at,
        FEDERATION,
        timely=True,
    ),
    "federation-off": Fault(draws.federation(), _power_off, FEDERATION),
    "federation-cut": Fault(
        draws.federation(words=_PARTS), _with_link_faults(_partition), FEDERATION
    ),
    "remote-cut": Fault(
        draws.federation(words=_PARTS), _remotely(_with_link_faults(_partition)), FEDERATION
    ),
    "remote-lossy": Fault(
        draws.federation(*draws.SHARES), _remotely(_with_link_faults(_loss)), FEDERATION
    ),
    "remote-slow": Fault(
        draws.federation(0.2, 1.0, 4.0), _remotely(_with_link_faults(_delay)), FEDERATION
    ),
    "remote-answers-lost": Fault(
        draws.federation(*draws.SHARES, 1.0),
        _remotely(_with_link_faults(_answers_to_federation_lost)),
        FEDERATION,
        timely=True,
    ),
    "remote-crash-scheduler": Fault(
        draws.remotely(draws.on_scheduler()),
        _remotely(_on_newest(_crash_scheduler)),
        FEDERATION,
        timely=True,
    ),
    "remote-crash-scheduler-at": Fault(
        draws.remotely(draws.scheduler_call),
        _remotely(_on_newest(_crash_scheduler_at)),
        FEDERATION,
        timely=True,
    ),
    "remote-freeze-scheduler": Fault(
        draws.remotely(draws.on_scheduler()), _remotely(_freeze_one_of_many), FEDERATION
    ),
    "remote-store-out": Fault(draws.on_all(), _remotely(_store_fault(_out)), FEDERATION),
    "remote-slow-store": Fault(draws.on_all(0.1, 2.0), _remotely(_store_fault(_slow)), FEDERATION),
    "remote-cut-node": Fault(
        draws.remotely(draws.cut), _remotely(_with_link_faults(_partition)), FEDERATION
    ),
    "remote-power-off": Fault(draws.remotely(draws.on_node()), _remotely(_power_off), FEDERATION),
    "remote-destroy-node": Fault(
        draws.remotely(draws.on_node()), _remotely(_destroy_node), FEDERATION
    ),
    "remote-kill-container": Fault(
        draws.remotely(draws.kill_container), _remotely(_kill_one), FEDERATION
    ),
    "remote-full": Fault(draws.federation(0, 1, 1, 2), _federated(_fill_after_plan), FEDERATION),
    "remote-wipe-store": Fault(draws.drawn_elsewhere, _remotely(_wipe_store), Group.LOSSES),
    "remote-snapshot": Fault(draws.drawn_elsewhere, _remotely(_save_snapshot), Group.LOSSES),
    "token-revoked": Fault(draws.federation(), _federated(_revoke_token), FEDERATION),
    # The provider of the node pool, and the machines that it creates.
    "provider-out": Fault(draws.on_all(), _provider_fault("out", value=True), NODE_POOL),
    "provider-lists-fail": Fault(
        draws.provider(0.1, 0.3, 0.7), _provider_fault("lists_fail"), NODE_POOL
    ),
    "provider-throttles": Fault(draws.provider(0.1, 0.3), _provider_fault("throttled"), NODE_POOL),
    "provider-answers-lost": Fault(
        draws.provider(0.3, 0.7), _provider_fault("answers_lost"), NODE_POOL
    ),
    "late-machines": Fault(draws.provider(0.3, 0.7), _provider_fault("late"), NODE_POOL),
    "dead-machines": Fault(draws.provider(0.3, 0.7, 1.0), _provider_fault("dead"), NODE_POOL),
    "slow-machines": Fault(draws.provider(0.3, 0.7), _provider_fault("slow"), NODE_POOL),
}
