"""Checks of several schedulers: a leader is elected in time, and standbys match the store."""

import asyncio
from collections.abc import Iterator

from persys.sim.checks.liveness import differences
from persys.sim.fakes.ha_scheduler import HaScheduler
from persys.sim.world import World

LOOK_SECONDS = 0.5
LEASES_MAX = 1.5
# To read the store and to write the leader key.
SLACK_SECONDS = 1.0
# Effects of a fault may appear this much later.
AFTERMATH_SECONDS = 8.0
DIFFER_SECONDS = 10.0


async def watch_leadership(world: World) -> None:
    """While the store responds, there is no leader for at most one and a half leases."""
    time = asyncio.get_running_loop().time
    well_at = taken_at = time()
    leader = ""
    while world.shared:
        await asyncio.sleep(LOOK_SECONDS)
        if leader != world.leader_name:
            leader, taken_at = world.leader_name, time()
        if leader and not _is_up(world, leader):
            well_at = max(well_at, taken_at)  # the next leader had been elected, and failed too
        lease = world.shared[0].settings.leader_lease.total_seconds()
        candidates = [host for host in world.shared if host.is_up]
        ailing = world.invariants.losses.open or not all(host.trouble.none for host in candidates)
        if not candidates or ailing:
            well_at = time() + AFTERMATH_SECONDS
        elif _leads(world):
            well_at = max(well_at, time())
        if time() - well_at > LEASES_MAX * lease + SLACK_SECONDS:
            text = f"no leader for {time() - well_at:.1f}s; the store has {world.leader_name!r}"
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
                or not host.trouble.is_long_over
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
