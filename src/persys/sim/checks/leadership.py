"""Checks of several schedulers: a leader is elected in time, and standbys match the store."""

import asyncio
from collections.abc import Iterator

from persys.sim.checks.liveness import differences
from persys.sim.fakes.ha_scheduler import SharedSeat
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
        candidates = [seat for seat in world.shared if seat.is_up]
        ailing = world.invariants.losses.open or not all(seat.trouble.none for seat in candidates)
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
        for seat in world.shared:
            found = next(_differences(world, seat), "")
            if (
                not found
                or not seat.trouble.is_long_over
                or world.invariants.losses.open
                or seat.mourns
            ):
                since.pop(seat.name, None)
            elif time() - since.setdefault(seat.name, time()) > DIFFER_SECONDS:
                world.invariants.fail("memory", f"standby {seat.name}: {found}")


def standby_differences(world: World) -> Iterator[str]:
    for seat in world.shared:
        if seat.mourns:
            continue
        for difference in _differences(world, seat):
            yield f"standby {seat.name}: {difference}"


def _differences(world: World, seat: SharedSeat) -> Iterator[str]:
    if (scheduler := seat.follower) is not None:
        yield from differences(world.invariants.mirror, scheduler)


def _is_up(world: World, leader: str) -> bool:
    return any(
        seat.is_up and seat.newest is not None and seat.newest.title == leader
        for seat in world.shared
    )


def _leads(world: World) -> bool:
    """Whether a scheduler leads and the store confirms it."""
    leader = world.leader_name
    return any(
        seat.leads and seat.newest is not None and seat.newest.title == leader
        for seat in world.shared
    )
