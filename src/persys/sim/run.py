"""One run: a phase with faults, then convergence without faults, then a quiet phase without changes.

`shrink` removes the events of a failing plan that are not needed to violate the same promise.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from msgspec.structs import replace

from persys.model.ids import NodeId
from persys.model.node import NodeStatus
from persys.model.status import Status
from persys.sim.actors.intruders import HOSTILE
from persys.sim.checks.context import Violation
from persys.sim.checks.liveness import differences, is_retried_slowly, oversized, unsettled
from persys.sim.checks.watchers import (
    compare_followers,
    probe_streams,
    standby_differences,
    watch_leadership,
    watch_present_images,
)
from persys.sim.engine.trace import Line, captured_logs
from persys.sim.engine.virtual_loop import VirtualLoop
from persys.sim.federated_world import FederatedWorld
from persys.sim.pool_world import PoolWorld
from persys.sim.scenario.faults import inject
from persys.sim.scenario.plan import Plan, PlannedEvent, Shape
from persys.sim.scenario.set_requests import JOB_KINDS, SET_KINDS
from persys.sim.set_world import SetWorld
from persys.sim.world import World
from persys.store import keys

CONVERGENCE_SECONDS_MAX = 1200.0
LOOK_SECONDS = 5.0
QUIET_SECONDS = 120.0
# Allowed reconciler steps per workload in that time: for healthy and for failed workloads.
QUIET_LOOKS_MAX = 6
FAILED_LOOKS_MAX = 40
SHOWN_MAX = 6
# Until orphans are recorded, and workloads that they block are placed again.
ORPHAN_SECONDS = 75.0
HINDRANCE_SECONDS = 0.25
DEFECT_SECONDS = 0.5
DIFFERENCES_MAX = 4
SHRINK_ATTEMPTS_MAX = 250
USER_KINDS = frozenset(
    {
        "apply",
        "stop",
        "start",
        "delete",
        "retry",
        "cordon",
        "drain",
        "uncordon",
        "remove",
        "snapshot",
        "set-plain",
        *SET_KINDS,
        *JOB_KINDS,
    }
)


@dataclass(frozen=True, slots=True)
class Outcome:
    plan: Plan
    violation: Violation | None
    fingerprint: str
    virtual_seconds: float
    steps: int  # lines of the trace
    lines: tuple[Line, ...]


def run(plan: Plan, world_type: type[World] | None = None) -> Outcome:
    """The same plan gives the same outcome, in a process with the same PYTHONHASHSEED."""
    if world_type is None:
        world_type = _world_type(plan.shape)
    loop = VirtualLoop()
    unexpected: list[str] = []
    bugs: list[str] = []
    loop.set_exception_handler(lambda _, context: unexpected.append(str(context)))
    collecting = gc.isenabled()
    gc.disable()  # destructors must not run at random times
    try:
        with captured_logs(bugs.append):
            world = loop.run_until_complete(_run(plan, world_type, bugs))
        if unexpected and world.violation is None:
            world.invariants.fail("8 process", unexpected[0])
        return Outcome(
            plan,
            world.violation,
            world.trace.fingerprint(),
            loop.time(),
            world.trace.count,
            tuple(world.trace.lines),
        )
    finally:
        if collecting:
            gc.enable()
        loop.close()


def _world_type(shape: Shape) -> type[World]:
    if shape.remote_nodes:
        return FederatedWorld
    if shape.sets or shape.jobs:
        return SetWorld
    return PoolWorld if shape.pool_machines else World


async def _run(plan: Plan, world_type: type[World], bugs: list[str]) -> World:
    world = world_type(plan)
    async with asyncio.TaskGroup() as group:
        world.open(group)
        acts = group.create_task(_act(world))
        watches = [
            group.create_task(watch)
            for cluster in world.clusters
            for watch in (
                _compare(cluster),
                watch_leadership(cluster),
                compare_followers(cluster),
                probe_streams(cluster),
                _record_blocked_agents(cluster),
                watch_present_images(cluster),
            )
        ]
        watches.append(group.create_task(_watch_bugs(world, bugs)))
        await world.over.wait()
        acts.cancel()
        for watch in watches:
            watch.cancel()
        world.close()
    return world


async def _act(world: World) -> None:
    await _faults(world)
    world.end_faults()
    await _await_convergence(world)
    if world.violation is not None:
        return
    await asyncio.sleep(world.settling_seconds)
    has_exits = any(map(_has_exits, world.clusters))
    async with asyncio.TaskGroup() as group:
        for cluster in world.clusters:
            group.create_task(_check_quiet_phase(cluster, has_exits=has_exits))
    world.over.set()


async def _faults(world: World) -> None:
    time = asyncio.get_running_loop().time
    for event in world.plan.happenings:
        await asyncio.sleep(max(0.0, event.at - time()))
        _execute(world, event)
    await asyncio.sleep(max(0.0, world.plan.shape.minutes * 60 - time()))


def _execute(world: World, event: PlannedEvent) -> None:
    world.trace.add("plan", f"{event.kind} {event.target} {event.word}")
    if event.kind in USER_KINDS:
        world.users.do(event)
    else:
        inject(world, event)


async def _await_convergence(world: World) -> None:
    time = asyncio.get_running_loop().time
    until = time() + CONVERGENCE_SECONDS_MAX
    if any(cluster.invariants.has_unaccounted for cluster in world.clusters):
        await asyncio.sleep(ORPHAN_SECONDS)
    while time() < until:
        await asyncio.sleep(LOOK_SECONDS)
        if all(cluster.host.scheduler for cluster in world.clusters) and not any(
            _all_unconverged(world)
        ):
            return
    problems = list(islice(_all_unconverged(world), SHOWN_MAX)) or ["no scheduler"]
    world.invariants.fail("8 everything ends", "; ".join(problems))


def _all_unconverged(world: World) -> Iterator[str]:
    for cluster in world.clusters:
        yield from _unconverged(cluster)


def _unconverged(world: World) -> list[str]:
    if world.invariants.losses.open:
        return ["the store was lost, and no recovery has completed"]
    hostile = world.invariants.mirror.nodes.get(keys.node_key(NodeId(HOSTILE)))
    if hostile is not None and hostile.status is NodeStatus.READY:
        return ["the lease of the hostile node has not expired"]
    return [
        *_soon_stopped(world),
        *unsettled(world.invariants.mirror, world.live(), ignored=world.fails_elsewhere()),
        *world.leftovers(),
    ]


def _soon_stopped(world: World) -> list[str]:
    """Containers that an agent may be stopping because of an earlier loss of contact."""
    contacts = world.invariants.contacts
    return [
        f"{container.workload_id} may be stopped on {node_id}"
        for node_id, containers in world.live().items()
        for container in containers
        if contacts.was_long_silent(node_id, container.stop_after_seconds)
    ]


async def _compare(world: World) -> None:
    """While the store is healthy, memory may lag behind it only for a short time."""
    differ_count, before = 0, world.host.scheduler
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        scheduler = world.host.scheduler
        if scheduler is not None and (excess := oversized(scheduler)):
            world.invariants.fail("input limits", excess)
        steady = scheduler is before and world.is_steady
        before = scheduler
        if scheduler is None or not steady:
            differ_count = 0
            continue
        found = next(differences(world.invariants.mirror, scheduler), "")
        differ_count = differ_count + 1 if found else 0
        if differ_count >= DIFFERENCES_MAX:
            world.invariants.fail("memory", found)


async def _watch_bugs(world: World, bugs: list[str]) -> None:
    """A contained exception fails only one key, but it is still a bug."""
    while True:
        await asyncio.sleep(DEFECT_SECONDS)
        if bugs:
            world.invariants.fail("no defect", bugs[0])


async def _record_blocked_agents(world: World) -> None:
    """Record agents that are dead or without Docker: deadlines do not apply to them."""
    time = asyncio.get_running_loop().time
    contacts = world.invariants.contacts
    while True:
        nodes = list(world.nodes.values())
        contacts.untrusted.update({node.id: time() for node in nodes if node.false_reports})
        contacts.hindered.update({node.id: time() for node in nodes if node.cannot_act})
        await asyncio.sleep(HINDRANCE_SECONDS)


def _is_placed_again(world: World) -> bool:
    """Whether workloads blocked by orphans are placed again every minute."""
    mirror = world.invariants.mirror
    return bool(mirror.orphans()) and any(
        workload_status.code == "Unplaceable"
        for workload_status in mirror.workload_statuses.values()
    )


def _has_exits(world: World) -> bool:
    """Whether containers exit, or failed workloads are retried: this causes changes."""
    mirror = world.invariants.mirror
    has_exits = any(
        container.exits_alone
        for node in world.nodes.values()
        for container in node.docker.containers.values()
        if container.condition.active or container.is_left_to_agent
    ) or _is_placed_again(world)
    return has_exits or any(is_retried_slowly(mirror, one.id) for one in mirror.workloads.values())


async def _check_quiet_phase(world: World, *, has_exits: bool) -> None:
    scheduler, mirror = world.host.scheduler, world.invariants.mirror
    assert scheduler is not None
    await asyncio.sleep(LOOK_SECONDS)
    for difference in (*differences(mirror, scheduler), *standby_differences(world)):
        world.invariants.fail("memory", difference)
    steps, written = scheduler.reconciler.steps, world.store.transactions
    due = len(mirror.retries)  # retry records are deleted after ten healthy minutes
    await asyncio.sleep(QUIET_SECONDS)
    problems = _unconverged(world)
    if has_exits and problems:
        await asyncio.sleep(LOOK_SECONDS)  # an exited container is about to be restarted
        problems = [problem for problem in _unconverged(world) if problem in problems]
    for problem in problems:
        world.invariants.fail("8 everything ends", f"after convergence: {problem}")
    if has_exits:
        return
    steps, written = scheduler.reconciler.steps - steps, world.store.transactions - written
    failed = sum(
        workload_status.status is Status.FAILED
        for workload_status in mirror.workload_statuses.values()
    )
    if steps > QUIET_LOOKS_MAX * len(mirror.workloads) + FAILED_LOOKS_MAX * failed:
        world.invariants.fail("8 no hot loop", f"{steps} steps in {QUIET_SECONDS:g} quiet seconds")
    if written > due:
        text = f"{written} transactions in {QUIET_SECONDS:g} quiet seconds"
        world.invariants.fail("9 idle writes nothing", text)


def shrink(
    failed: Outcome,
    *,
    attempts_max: int = SHRINK_ATTEMPTS_MAX,
    run: Callable[[Plan], Outcome] = run,
) -> Outcome:
    """The outcome of the shortest plan found. `failed` has a violation."""
    assert failed.violation is not None
    promise, broken_at = failed.violation.promise, failed.violation.at
    best = failed
    attempts = 0

    def breaks(happenings: tuple[PlannedEvent, ...]) -> bool:
        nonlocal best, attempts
        attempts += 1
        outcome = run(replace(best.plan, happenings=happenings))
        if outcome.violation is None or outcome.violation.promise != promise:
            return False
        best = outcome
        return True

    # Events after the violation cannot have caused it.
    breaks(tuple(each for each in failed.plan.happenings if each.at <= broken_at))
    size = max(1, len(best.plan.happenings) // 2)
    while attempts < attempts_max:
        before = len(best.plan.happenings)
        begin = 0
        while begin < len(best.plan.happenings) and attempts < attempts_max:
            remaining = best.plan.happenings
            if not breaks(remaining[:begin] + remaining[begin + size :]):
                begin += size
        if size == 1 and len(best.plan.happenings) == before:
            break
        size = max(1, size // 2)
    return best
