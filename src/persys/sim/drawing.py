"""Draw a plan from a seed. Each seed has its own few kinds of misfortune, so that rare pairs meet often."""

from random import Random

from msgspec.structs import replace

from persys.sim.dice import dice
from persys.sim.happening import ANYBODY, SCHEDULER, USER, Happening, Plan, Shape

VARIANTS = 5
MANY_SHARE = 0.2  # of seeds: those with three schedulers
LOSS_SHARE = 0.35  # of seeds: those whose store is lost
SETTLING_SECONDS = 20.0  # before the first misfortune: something shall run that can be harmed
# The deeds at which a process may be made to die.
AGENT_DEEDS = (
    "disk.write", "disk.written", "create", "create.done", "start", "start.done", "stop", "stop.done",
    "remove", "remove.done", "pull.done", "volumes", "volumes.done", "send", "answer", "receive",
    "answered", "inspect",
)  # fmt: skip
SCHEDULER_DEEDS = (
    "store.commit", "store.committed", "send", "answered", "receive", "answer", "store.read",
)  # fmt: skip


def draw(seed: int, shape: Shape) -> Plan:
    random = dice(seed, "plan")
    shape = _whole(seed, shape)
    wishes = [*_users(random, shape), *_operators(random, shape)]
    found = [*wishes, *_misfortunes(random, shape, wishes)]
    found += _of_removals(dice(seed, "removals"), shape)
    found += _of_losses(dice(seed, "losses"), shape, wishes)
    found += _of_many(dice(seed, "many"), shape, wishes) if shape.schedulers > 1 else ()
    found += _of_streams(dice(seed, "streams"), shape) if shape.streams else ()
    return Plan(seed, shape, tuple(sorted(found, key=lambda each: (each.at, each.kind))))


def node_names(shape: Shape) -> list[str]:
    return [f"n{number}" for number in range(1, shape.nodes + 1)]


def scheduler_names(shape: Shape) -> list[str]:
    if shape.schedulers <= 1:
        return [SCHEDULER]
    return [f"s{number}" for number in range(1, shape.schedulers + 1)]


def streaming_nodes(seed: int, shape: Shape) -> frozenset[str]:
    random = dice(seed, "links")
    return frozenset(name for name in node_names(shape) if random.random() < shape.streams)


def _whole(seed: int, shape: Shape) -> Shape:
    """With what the seed decides, where nobody has."""
    random = dice(seed, "shape")
    schedulers = 3 if random.random() < MANY_SHARE else 1
    streams = random.choice((0.0, 0.0, 0.5, 1.0))
    return replace(
        shape,
        schedulers=shape.schedulers or schedulers,
        streams=streams if shape.streams < 0 else shape.streams,
    )


def _of_removals(random: Random, shape: Shape) -> list[Happening]:
    """An operator takes a node out of the books: drained before, or while it is away."""
    found = []
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        node = random.choice(node_names(shape))
        at = random.uniform(SETTLING_SECONDS, shape.minutes * 60)
        before = random.choice(("drain", "cordon", "power-off", "cut", ""))
        word = random.choice(("both", "from")) if before == "cut" else ""
        if before:
            away = random.uniform(80, 250) if before in ("power-off", "cut") else 0.0
            found.append(Happening(at, before, node, seconds=away, word=word))
        found.append(Happening(at + random.uniform(0, 180), "remove", node))
    return [each for each in found if each.at < shape.minutes * 60]


def _of_losses(random: Random, shape: Shape, wishes: list[Happening]) -> list[Happening]:
    """Snapshots, and a store that loses all it held, once or twice."""
    end = shape.minutes * 60
    found = []
    if random.random() >= LOSS_SHARE:
        return []
    for _ in range(random.randint(0, 3)):
        found.append(Happening(random.uniform(SETTLING_SECONDS, end), "snapshot"))
    for _ in range(random.choice((1, 1, 1, 2))):
        at = random.uniform(SETTLING_SECONDS, end)
        if random.random() < 0.5:  # while something is under way
            at = max(SETTLING_SECONDS, random.choice(wishes).at + random.uniform(-0.1, 0.4))
        ruling = random.choice(("rebuild", "rebuild", "restore", "accept"))
        patience = random.choice((0, 10, 60)) * random.uniform(0.5, 1.5)
        forgets = random.choice((0, 0, 1))
        found.append(Happening(at, "wipe-store", seconds=patience, amount=forgets, word=ruling))
    return found


def _of_many(random: Random, shape: Shape, wishes: list[Happening]) -> list[Happening]:
    """What befalls schedulers of which there are several. SCHEDULER is the one that leads then."""
    end = shape.minutes * 60
    found = []
    for _ in range(random.randint(3, 12)):
        kind = random.choice(_MANY_KINDS)
        at = random.uniform(SETTLING_SECONDS / 2, end)
        if random.random() < 0.6:  # while something is under way
            at = max(0.0, random.choice(wishes).at + random.uniform(-0.2, 0.4))
        who = random.choice((SCHEDULER, SCHEDULER, *scheduler_names(shape)))
        span = random.choice((4, 12, 25, 60)) * random.uniform(0.5, 1.5)
        match kind:
            case "one-answers-lost":
                found.append(
                    Happening(at, kind, who, seconds=span, amount=random.choice((0.1, 0.5)))
                )
            case "one-slow-store":
                found.append(
                    Happening(at, kind, who, seconds=span, amount=random.choice((0.1, 1.0)))
                )
            case "cut-scheduler":
                whom = random.choice(("agents", "others", "all"))
                found.append(Happening(at, kind, who, seconds=span, word=whom))
            case "doom-scheduler":
                deed, count = random.choice(SCHEDULER_DEEDS), random.randint(1, 6)
                found.append(Happening(at, kind, who, seconds=span, amount=count, word=deed))
            case _:
                found.append(Happening(at, kind, who, seconds=span))
    return found


def _of_streams(random: Random, shape: Shape) -> list[Happening]:
    found = []
    for _ in range(random.randint(0, 8)):
        at = random.uniform(SETTLING_SECONDS / 2, shape.minutes * 60)
        node = random.choice(node_names(shape))
        if random.random() < 0.6:
            found.append(Happening(at, "break-stream", node, amount=random.choice((1, 1, 2, 3, 7))))
        else:
            found.append(Happening(at, "half-open", node, word=random.choice(("to", "from"))))
    return found


def _users(random: Random, shape: Shape) -> list[Happening]:
    end = shape.minutes * 60
    found = []
    for number in range(shape.workloads):
        name = f"w{number:02d}"
        variant = random.randrange(VARIANTS)
        at = (
            random.uniform(1, SETTLING_SECONDS) if random.random() < 0.7 else random.uniform(1, end)
        )
        found.append(Happening(at, "apply", name, amount=variant))
        while (at := at + random.expovariate(3 / end)) < end:
            found.append(_wish(random, at, name))
            if random.random() < 0.25:  # people change their minds at once, too
                found.append(_wish(random, at + random.uniform(0, 3), name))
    return [each for each in found if each.at < end]


def _wish(random: Random, at: float, name: str) -> Happening:
    kind = random.choices(
        ("apply", "stop", "start", "delete", "retry"), weights=(40, 15, 20, 20, 5)
    )[0]
    return Happening(at, kind, name, amount=random.randrange(VARIANTS) if kind == "apply" else 0)


def _operators(random: Random, shape: Shape) -> list[Happening]:
    end = shape.minutes * 60
    found = []
    for _ in range(random.choice((0, 0, 1, 2, 4))):
        name = random.choice(node_names(shape))
        at = random.uniform(SETTLING_SECONDS, end)
        found.append(Happening(at, random.choice(("cordon", "drain", "drain")), name))
        found.append(Happening(at + random.expovariate(1 / 120), "uncordon", name))
    return [each for each in found if each.at < end]


def _misfortunes(random: Random, shape: Shape, wishes: list[Happening]) -> list[Happening]:
    enabled = random.sample(_KINDS, k=random.randint(2, 8))
    end = shape.minutes * 60
    found: list[Happening] = []
    for _ in range(random.randint(4, 30)):
        kind = random.choice(enabled)
        at = random.uniform(SETTLING_SECONDS / 2, end)
        if kind in _TIMELY and random.random() < 0.7:  # when something is going on
            at = max(0.0, random.choice(wishes).at - random.uniform(0, 0.5))
        found.append(_misfortune(random, kind, at, shape))
    return found


def _misfortune(random: Random, kind: str, at: float, shape: Shape) -> Happening:
    node = random.choice(node_names(shape))
    span = random.choice((2, 10, 40, 130)) * random.uniform(0.5, 1.5)
    brief = random.uniform(0.2, 20)
    match kind:
        case "crash-agent":
            return Happening(at, kind, node, seconds=brief)
        case "doom-agent":
            deed, count = random.choice(AGENT_DEEDS), random.choice((1, 1, 1, 2, 4))
            who = random.choice((node, ANYBODY, ANYBODY))
            return Happening(at, kind, who, seconds=brief, amount=count, word=deed)
        case "crash-scheduler" | "second-scheduler":
            return Happening(at, kind, SCHEDULER, seconds=brief)
        case "doom-scheduler":
            deed, count = random.choice(SCHEDULER_DEEDS), random.randint(1, 6)
            return Happening(at, kind, SCHEDULER, seconds=brief, amount=count, word=deed)
        case "power-off" | "docker-out":
            return Happening(at, kind, node, seconds=span)
        case "clock":
            who = random.choice((node, SCHEDULER))
            jump = random.choice((-3600, -60, -2, 2, 45, 200, 7200))
            return Happening(at, kind, who, amount=jump)
        case "cut":
            way = random.choice(("both", "to", "from"))
            return Happening(at, kind, node, seconds=span, word=way)
        case "cut-user":
            return Happening(at, kind, USER, seconds=brief, word=random.choice(("to", "from")))
        case "lossy" | "echo" | "answers-lost" | "docker-errors" | "docker-deaf":
            return Happening(at, kind, node, seconds=span, amount=random.choice((0.1, 0.3, 0.7)))
        case "slow-net":
            return Happening(at, kind, node, seconds=span, amount=random.choice((0.2, 1.0, 4.0)))
        case "slow-docker":
            return Happening(at, kind, node, seconds=span, amount=random.choice((5.0, 40.0)))
        case "slow-disk" | "slow-store":
            return Happening(at, kind, node, seconds=span, amount=random.choice((0.1, 2.0)))
        case "kill-one":
            return Happening(at, kind, node, word=random.choice(("oom", "exit")))
        case "die-for-good" | "ghost":
            return Happening(at, kind, node)
        case _:
            return Happening(at, kind, seconds=span)


_KINDS = (
    "crash-agent",
    "doom-agent",
    "crash-scheduler",
    "doom-scheduler",
    "second-scheduler",
    "power-off",
    "docker-out",
    "clock",
    "cut",
    "cut-user",
    "lossy",
    "echo",
    "slow-net",
    "store-out",
    "answers-lost",
    "slow-store",
    "docker-errors",
    "docker-deaf",
    "slow-docker",
    "slow-disk",
    "kill-one",
    "die-for-good",
    "ghost",
)
_MANY_KINDS = (
    "crash-scheduler",
    "doom-scheduler",
    "freeze-scheduler",
    "freeze-scheduler",
    "cut-store",
    "cut-store",
    "one-answers-lost",
    "one-slow-store",
    "cut-scheduler",
)
_TIMELY = frozenset(
    {
        "crash-agent",
        "doom-agent",
        "crash-scheduler",
        "doom-scheduler",
        "answers-lost",
        "docker-deaf",
    }
)
