"""Draws the target, duration and amount of each fault from a seed.

A drawn event has no time and no kind; the plan adds both.
"""

from collections.abc import Callable
from random import Random

from persys.agent.runtimes.docker.pull import registry_of
from persys.sim.fakes.journal_disk import Part
from persys.sim.scenario.plan import (
    ANY_AGENT,
    FEDERATED,
    SCHEDULER,
    USER,
    PlannedEvent,
    Shape,
    node_names,
    remote_shape,
    scheduler_names,
)
from persys.sim.scenario.specs import COMMON_IMAGE, OWN_IMAGE

# The gates at which a process can crash.
AGENT_CALLS = (
    "disk.write", "disk.written", "create", "create.done", "start", "start.done", "stop", "stop.done",
    "remove", "remove.done", "pull.done", "volumes", "volumes.done", "send", "answer", "receive",
    "answered", "inspect",
)  # fmt: skip
SCHEDULER_CALLS = (
    "store.commit", "store.committed", "send", "answered", "receive", "answer", "store.read",
)  # fmt: skip

FEDERATION_CALLS = (
    "disk.write", "disk.written", "send", "answered", "answered", "answer", "receive",
)  # fmt: skip

SHARES = (0.1, 0.3, 0.7)

Draw = Callable[[Random, Shape], PlannedEvent]


def event(
    target: str = "", *, seconds: float = 0.0, amount: float = 0.0, word: str = ""
) -> PlannedEvent:
    return PlannedEvent(0.0, "", target, seconds=seconds, amount=amount, word=word)


def node(random: Random, shape: Shape) -> str:
    return random.choice(node_names(shape))


def briefly(random: Random) -> float:
    return random.uniform(0.2, 20)


def for_long(random: Random) -> float:
    return random.choice((2, 10, 40, 130)) * random.uniform(0.5, 1.5)


def on_node(*amounts: float, brief: bool = False) -> Draw:
    def draw(random: Random, shape: Shape) -> PlannedEvent:
        span = briefly if brief else for_long
        amount = random.choice(amounts) if amounts else 0.0
        return event(node(random, shape), seconds=span(random), amount=amount)

    return draw


def on_all(*amounts: float) -> Draw:
    def draw(random: Random, _shape: Shape) -> PlannedEvent:
        amount = random.choice(amounts) if amounts else 0.0
        return event(seconds=for_long(random), amount=amount)

    return draw


def on_scheduler(*amounts: float) -> Draw:
    """One of several schedulers; SCHEDULER means the current leader."""

    def draw(random: Random, shape: Shape) -> PlannedEvent:
        names = scheduler_names(shape)
        target = random.choice((SCHEDULER, SCHEDULER, *(names if shape.schedulers > 1 else ())))
        span = random.choice((4, 12, 25, 60)) * random.uniform(0.5, 1.5)
        return event(target, seconds=span, amount=random.choice(amounts) if amounts else 0.0)

    return draw


def agent_call(random: Random, shape: Shape) -> PlannedEvent:
    target = random.choice((node(random, shape), ANY_AGENT, ANY_AGENT))
    count = random.choice((1, 1, 1, 2, 4))
    word = random.choice(AGENT_CALLS)
    return event(target, seconds=briefly(random), amount=count, word=word)


def scheduler_call(random: Random, shape: Shape) -> PlannedEvent:
    drawn = on_scheduler()(random, shape)
    word, count = random.choice(SCHEDULER_CALLS), random.randint(1, 6)
    return event(drawn.target, seconds=briefly(random), amount=count, word=word)


def clock(random: Random, shape: Shape) -> PlannedEvent:
    target = random.choice((node(random, shape), SCHEDULER))
    return event(target, amount=random.choice((-3600, -60, -2, 2, 45, 200, 7200)))


def cut(random: Random, shape: Shape) -> PlannedEvent:
    word = random.choice(("both", "to", "from"))
    return event(node(random, shape), seconds=for_long(random), word=word)


def cut_user(random: Random, _shape: Shape) -> PlannedEvent:
    return event(USER, seconds=briefly(random), word=random.choice(("to", "from")))


def isolate_scheduler(random: Random, shape: Shape) -> PlannedEvent:
    drawn = on_scheduler()(random, shape)
    word = random.choice(("agents", "others", "all"))
    return event(drawn.target, seconds=drawn.seconds, word=word)


def kill_container(random: Random, shape: Shape) -> PlannedEvent:
    return event(node(random, shape), word=random.choice(("oom", "exit")))


def break_stream(random: Random, shape: Shape) -> PlannedEvent:
    return event(node(random, shape), amount=random.choice((1, 1, 2, 3, 7)))


def half_open(random: Random, shape: Shape) -> PlannedEvent:
    return event(node(random, shape), word=random.choice(("to", "from")))


def clone(random: Random, shape: Shape) -> PlannedEvent:
    return event(node(random, shape), seconds=random.uniform(2, 12))


def silent_registry(random: Random, _shape: Shape) -> PlannedEvent:
    image = random.choice((COMMON_IMAGE, OWN_IMAGE))
    return event(seconds=random.uniform(30, 200), word=registry_of(image))


def disk_errors(random: Random, shape: Shape) -> PlannedEvent:
    drawn = on_node(*SHARES, 1.0)(random, shape)
    return event(
        drawn.target, seconds=drawn.seconds, amount=drawn.amount, word=random.choice(list(Part))
    )


def federation(*amounts: float, words: tuple[str, ...] = ("",), brief: bool = False) -> Draw:
    """A fault of the federated node, or of its link to the remote cluster."""

    def draw(random: Random, _shape: Shape) -> PlannedEvent:
        span = briefly if brief else for_long
        amount = random.choice(amounts) if amounts else 0.0
        word = random.choice(words)
        return event(FEDERATED, seconds=span(random), amount=amount, word=word)

    return draw


def remotely(draw: Draw) -> Draw:
    """A fault of the remote cluster."""
    return lambda random, shape: draw(random, remote_shape(shape))


def provider(*amounts: float) -> Draw:
    """A share of the calls to the provider of a node pool, long enough for some of its few calls."""

    def draw(random: Random, _shape: Shape) -> PlannedEvent:
        seconds = random.choice((60, 200, 500)) * random.uniform(0.5, 1.5)
        return event(seconds=seconds, amount=random.choice(amounts))

    return draw


def outside_write(random: Random, _shape: Shape) -> PlannedEvent:
    return event(amount=random.choice((0.05, 0.3, 1.0)))


def hostile(random: Random, _shape: Shape) -> PlannedEvent:
    return event(seconds=random.uniform(10, 200))


def drawn_elsewhere(_random: Random, _shape: Shape) -> PlannedEvent:
    raise AssertionError("drawn together with its snapshots and recovery")
