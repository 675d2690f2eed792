"""Misfortunes, done to a world: each begins at its time and is cured after it, or when peace comes."""

import asyncio
from datetime import timedelta

from persys.sim.happening import ANYBODY, USER, Happening
from persys.sim.life import Life
from persys.sim.loop import later
from persys.sim.network import Weather
from persys.sim.node import SimNode
from persys.sim.seat import Seat
from persys.sim.world import World

BOOT_SECONDS = 5.0
REINSTALL_SECONDS = 60.0
SKEW_SECONDS_MAX = 200.0


def befall(world: World, happening: Happening) -> None:
    node = world.nodes.get(happening.target)
    match happening.kind:
        case "crash-agent" if node is not None and node.life is not None:
            _crash(node.life, happening)
        case "doom-agent" if node is not None and node.life is not None:
            _doom(world, node.life, happening)
        case "doom-agent" if happening.target == ANYBODY:
            _doom_one(world, happening)
        case "ghost" if node is not None:
            world.haunt(node)
        case "crash-scheduler" | "doom-scheduler" | "second-scheduler" | "freeze-scheduler":
            _disturb(world, world.seat_of(happening.target), happening)
        case "cut-scheduler":
            _isolate(world, world.seat_of(happening.target).name, happening)
        case "break-stream":
            world.network.breaks[happening.target] = int(happening.amount)
        case "half-open":
            _open_half(world, happening)
        case "power-off" if node is not None and node.powered:
            power_off(world, node)
            world.for_a_while(happening.seconds, lambda: power_on(world, node))
        case "die-for-good" if node is not None and node.powered:
            _die_for_good(world, node)
        case "clock":
            wall = node.wall if node is not None else world.seat_of(happening.target).wall
            wall.ahead += timedelta(seconds=_jump(world, happening))
            if node is not None:
                world.invariants.contacts.clock_set(node.id, back=happening.amount < 0)
        case "cut" | "cut-user" | "lossy" | "echo" | "slow-net":
            _storm(world, happening)
        case "wipe-store":
            _wipe_store(world, happening)
        case "store-out" | "answers-lost" | "slow-store":
            for seat in world.seats.values():
                _ail_store(world, seat, happening)
        case "cut-store" | "one-answers-lost" | "one-slow-store":
            _ail_store(world, world.seat_of(happening.target), happening)
        case "docker-out" | "docker-errors" | "docker-deaf" | "slow-docker" if node is not None:
            _ail_docker(world, node, happening)
        case "slow-disk" if node is not None:
            node.disk.slow_seconds = happening.amount
            world.for_a_while(happening.seconds, lambda: setattr(node.disk, "slow_seconds", 0.0))
        case "kill-one" if node is not None and node.powered:
            node.docker.kill_one(oom=happening.word == "oom")


def _jump(world: World, happening: Happening) -> float:
    """Plans to retry are times of the leader's clock: those of several schedulers are kept by NTP."""
    if not world.shared or happening.target in world.nodes:
        return happening.amount
    return max(-SKEW_SECONDS_MAX, min(happening.amount, SKEW_SECONDS_MAX))


def power_off(world: World, node: SimNode) -> None:
    node.powered = False
    world.network.powered_off.add(node.id)
    if node.life is not None:
        node.life.crash()
    node.docker.power_off()


def power_on(world: World, node: SimNode) -> None:
    if node.powered:
        return
    node.powered = True
    world.network.powered_off.discard(node.id)
    node.docker.power_on()
    later(BOOT_SECONDS, lambda: world.start_agent(node))


def _die_for_good(world: World, node: SimNode) -> None:
    """The machine and all on it are gone. The operator says so, and later sets up a new one."""
    power_off(world, node)
    node.docker.wipe()
    node.disk.wipe()
    node.state = None

    async def replace() -> None:
        await world.users.confirm_dead(node.id)
        await asyncio.sleep(REINSTALL_SECONDS)
        power_on(world, node)

    world.spawn(replace())
    world.for_a_while(10_000, lambda: power_on(world, node))


def _crash(life: Life, happening: Happening) -> None:
    life.restart_seconds = happening.seconds
    life.crash()


def _disturb(world: World, seat: Seat, happening: Happening) -> None:
    newest = seat.newest
    if newest is None:
        return
    match happening.kind:
        case "crash-scheduler":
            _crash(newest, happening)
        case "doom-scheduler":
            _doom(world, newest, happening)
        case "freeze-scheduler" if newest.alive:
            newest.freeze()
            world.for_a_while(happening.seconds, newest.thaw)
        case "second-scheduler" if newest.alive and not world.shared:
            world.add_scheduler(seat)


def _wipe_store(world: World, happening: Happening) -> None:
    """`word` is what the operator will say, `amount` 1 takes the schedulers' memories too."""
    world.lose_store()
    if happening.amount:
        for seat in world.seats.values():
            for life in seat.lives:
                life.restart_seconds = BOOT_SECONDS
                life.crash()
    world.users.rescue.ruling = happening.word
    world.users.rescue.patience_seconds = happening.seconds


def _isolate(world: World, name: str, happening: Happening) -> None:
    """Cut a scheduler off, but not from the store."""
    others = [other for other in world.seats if other != name]
    cut_off = {"agents": [*world.nodes], "others": others, "all": [*world.nodes, *others, USER]}
    weathers = [
        weather
        for other in cut_off[happening.word]
        for weather in (
            Weather(source=name, target=other, loss=1.0),
            Weather(source=other, target=name, loss=1.0),
        )
    ]
    world.network.weather.extend(weathers)
    world.for_a_while(happening.seconds, lambda: _clear(world, weathers))


def _open_half(world: World, happening: Happening) -> None:
    for stream in list(world.network.streams):
        if stream.caller == happening.target:
            stream.lose(happening.word)


def _doom(world: World, life: Life, happening: Happening) -> None:
    life.restart_seconds = happening.seconds
    life.doom(happening.word, int(happening.amount))
    world.for_a_while(10_000, life.spare)


def _doom_one(world: World, happening: Happening) -> None:
    """The first agent that does this dies of it; the others are spared then."""
    lives = [
        node.life for node in world.nodes.values() if node.life is not None and node.life.alive
    ]

    def spare() -> None:
        for life in lives:
            life.spare()

    for life in lives:
        life.restart_seconds = happening.seconds
        life.doom(happening.word, int(happening.amount), struck=spare)
    world.for_a_while(10_000, spare)


def _storm(world: World, happening: Happening) -> None:
    amount, target = happening.amount, happening.target
    match happening.kind:
        case "cut":
            to = [Weather(source=name, target=target, loss=1.0) for name in world.seats]
            back = [Weather(source=target, target=name, loss=1.0) for name in world.seats]
            weathers = {"both": to + back, "to": to, "from": back}[happening.word]
        case "cut-user":
            to = [Weather(source=USER, target=name, loss=1.0) for name in world.seats]
            back = [Weather(source=name, target=USER, loss=1.0) for name in world.seats]
            weathers = to if happening.word == "to" else back
        case "lossy":
            weathers = [Weather(target=target, loss=amount), Weather(source=target, loss=amount)]
        case "echo":
            # Users' words are not doubled: what they say next would be undone, over gRPC too.
            weathers = [Weather(target=target, echo=amount), Weather(source=target, echo=amount)]
        case _:
            weathers = [
                Weather(target=target, delay_seconds=amount),
                Weather(source=target, delay_seconds=amount),
            ]
    world.network.weather.extend(weathers)
    world.for_a_while(happening.seconds, lambda: _clear(world, weathers))


def _clear(world: World, weathers: list[Weather]) -> None:
    for weather in weathers:
        world.network.weather.remove(weather)


def _ail_store(world: World, seat: Seat, happening: Happening) -> None:
    trouble = seat.trouble
    match happening.kind:
        case "store-out" | "cut-store":
            trouble.out = True
            world.for_a_while(happening.seconds, trouble.heal)
        case "answers-lost" | "one-answers-lost":
            trouble.answers_lost = happening.amount
            world.for_a_while(happening.seconds, trouble.heal)
        case _:
            trouble.delay_seconds = happening.amount
            world.for_a_while(happening.seconds, trouble.heal)


def _ail_docker(world: World, node: SimNode, happening: Happening) -> None:
    trouble = node.trouble
    match happening.kind:
        case "docker-out":
            trouble.out = True
            node.docker.lose_listeners()
            world.for_a_while(happening.seconds, lambda: setattr(trouble, "out", False))
        case "docker-errors":
            trouble.errors = happening.amount
            world.for_a_while(happening.seconds, lambda: setattr(trouble, "errors", 0.0))
        case "docker-deaf":
            trouble.answers_lost = happening.amount
            world.for_a_while(happening.seconds, lambda: setattr(trouble, "answers_lost", 0.0))
        case _:
            trouble.slowness = happening.amount
            world.for_a_while(happening.seconds, lambda: setattr(trouble, "slowness", 1.0))
