"""Checks that run in the background during a whole run.

Several schedulers: a leader is elected in time, and standbys match the store. Control streams: a cancelled
call does not affect the next one. Images: a registry that does not respond delays only its own images.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

from persys.core.agent.progress import Progress
from persys.errors import PersysError
from persys.model.ids import NodeId, WorkloadId
from persys.model.workload import Desired
from persys.scheduler.app import Scheduler
from persys.sim.checks.liveness import differences
from persys.sim.engine.trace import rng
from persys.sim.fakes.docker import behaviour_of
from persys.sim.fakes.ha_scheduler import HaScheduler
from persys.sim.fakes.node import SimNode
from persys.sim.world import World

PAUSE_SECONDS = 20.0
IMPATIENT_SECONDS = (0.0005, 0.006)
PATIENT_SECONDS = 3.0
LOOK_SECONDS = 0.5
LEASES_MAX = 1.5
# To read the store and to write the leader key.
SLACK_SECONDS = 1.0
# Effects of a fault may appear this much later.
RECOVERY_SECONDS = 8.0
DIFFER_SECONDS = 10.0
CHECK_SECONDS = 5.0
START_SECONDS_MAX = 45.0


async def probe_streams(world: World) -> None:
    random = rng(world.plan.seed, "probe")
    while world.plan.shape.streams > 0:
        await asyncio.sleep(PAUSE_SECONDS)
        scheduler = world.host.scheduler
        choices = _choices(scheduler) if scheduler is not None else []
        if scheduler is None or not choices:
            continue
        node_id, workload_ids = random.choice(choices)
        first, second = random.sample(workload_ids, 2)
        await _call_agent(scheduler, node_id, first, random.uniform(*IMPATIENT_SECONDS))
        answered = await _call_agent(scheduler, node_id, second, PATIENT_SECONDS)
        if answered not in ("", second):
            text = f"{node_id} was queried for {second}, but the response is for {answered}"
            world.invariants.fail("stream", text)


async def _call_agent(
    scheduler: Scheduler, node_id: NodeId, workload_id: WorkloadId, seconds: float
) -> str:
    """The workload id of the response; empty without a response."""
    with suppress(PersysError, TimeoutError):
        async with asyncio.timeout(seconds):
            return (await scheduler.agents.get_status(node_id, "", workload_id)).workload_id
    return ""


def _choices(scheduler: Scheduler) -> list[tuple[NodeId, list[WorkloadId]]]:
    """Nodes with a control stream and two or more workloads."""
    found = (
        (node_id, sorted(workload_ids))
        for node_id, workload_ids in sorted(scheduler.cluster.on_node.items())
        if scheduler.streams.get(node_id) is not None
    )
    return [(node_id, workload_ids) for node_id, workload_ids in found if len(workload_ids) > 1]


async def watch_leadership(world: World) -> None:
    """While the store responds, there is no leader for at most one and a half leases."""
    time = asyncio.get_running_loop().time
    healthy_since = taken_at = time()
    leader = ""
    while world.shared:
        await asyncio.sleep(LOOK_SECONDS)
        if leader != world.leader_name:
            leader, taken_at = world.leader_name, time()
        if leader and not _is_up(world, leader):
            healthy_since = max(
                healthy_since, taken_at
            )  # the next leader had been elected, and failed too
        lease = world.shared[0].settings.leader_lease.total_seconds()
        candidates = [host for host in world.shared if host.is_up]
        has_faults = world.invariants.losses.open or not all(
            host.faults.none for host in candidates
        )
        if not candidates or has_faults:
            healthy_since = time() + RECOVERY_SECONDS
        elif _leads(world):
            healthy_since = max(healthy_since, time())
        if time() - healthy_since > LEASES_MAX * lease + SLACK_SECONDS:
            text = (
                f"no leader for {time() - healthy_since:.1f}s; the store has {world.leader_name!r}"
            )
            world.invariants.fail("7 leader", text)


async def compare_followers(world: World) -> None:
    """A standby may lag behind the store only for a short time."""
    time = asyncio.get_running_loop().time
    since: dict[str, float] = {}
    while world.shared:
        await asyncio.sleep(LOOK_SECONDS * 2)
        for host in world.shared:
            found = next(_differences(world, host), "")
            if (
                not found
                or not host.faults.is_long_over
                or world.invariants.losses.open
                or host.in_recovery
            ):
                since.pop(host.name, None)
            elif time() - since.setdefault(host.name, time()) > DIFFER_SECONDS:
                world.invariants.fail("memory", f"standby {host.name}: {found}")


def standby_differences(world: World) -> Iterator[str]:
    for host in world.shared:
        if host.in_recovery:
            continue
        for difference in _differences(world, host):
            yield f"standby {host.name}: {difference}"


def _differences(world: World, host: HaScheduler) -> Iterator[str]:
    if (scheduler := host.follower) is not None:
        yield from differences(world.invariants.mirror, scheduler)


def _is_up(world: World, leader: str) -> bool:
    return any(
        host.is_up and host.newest is not None and host.newest.title == leader
        for host in world.shared
    )


def _leads(world: World) -> bool:
    """Whether a scheduler leads and the store confirms it."""
    leader = world.leader_name
    return any(
        host.leads and host.newest is not None and host.newest.title == leader
        for host in world.shared
    )


async def watch_present_images(world: World) -> None:
    time = asyncio.get_running_loop().time
    waiting: dict[tuple[NodeId, WorkloadId], float] = {}
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        found = list(_waiting(world)) if world.network.silent_registries else []
        waiting = {copy: waiting.get(copy, time()) for copy in found}
        for (node_id, workload_id), since in waiting.items():
            if time() - since > START_SECONDS_MAX:
                text = f"{workload_id} waits on {node_id}, which has its image"
                world.invariants.fail("image pull", text)


def _waiting(world: World) -> Iterator[tuple[NodeId, WorkloadId]]:
    """Workloads whose agent has done nothing yet although their image is present.

    A pull that hangs does not end when another pull of the same image completes.
    """
    for node in world.nodes.values():
        if not _is_disturbed(node):
            for entry in node.disk.all_kept():
                order, image = entry.order, behaviour_of(entry.order.spec).image
                if (
                    order.desired is Desired.RUNNING
                    and entry.progress == Progress()
                    and order.workload_id not in node.docker.containers
                    and image in node.docker.images
                    and not node.docker.hanging_pulls[image]
                ):
                    yield node.id, order.workload_id


def _is_disturbed(node: SimNode) -> bool:
    return (
        not node.powered or node.cannot_act or bool(node.disk.errors) or node.disk.slow_seconds > 0
    )
