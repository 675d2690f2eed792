"""Generates the requests of users for sets and jobs, and faults during rollouts."""

from collections.abc import Callable
from functools import partial
from random import Random

from persys.sim.scenario.plan import PlannedEvent, Shape, job_names, set_names
from persys.sim.scenario.set_specs import REPLICAS_MAX, VARIANTS, is_plain_first

SET_CHANGES = 7.0  # per set and run
JOB_CHANGES = 5.0
FIRST_SECONDS = 20.0
SECOND_SHARE = 0.2  # of requests are followed by another one at once
FAULT_SHARE = 0.4  # of rollouts have a fault
# Kinds of faults during rollouts, most of them of the leader.
ROLLOUT_FAULTS = (
    "crash-scheduler-at", "crash-scheduler-at", "crash-scheduler-at", "crash-scheduler",
    "partial-commits", "answers-lost", "late-commits", "power-off", "cut", "kill-container", "docker-out",
)  # fmt: skip
SET_KINDS = {
    "set-apply": 45, "set-scale": 15, "set-pause": 8, "set-resume": 9, "set-undo": 8, "set-promote": 8,
    "set-stop": 3, "set-start": 6, "set-delete": 4,
}  # fmt: skip
JOB_KINDS = {
    "job-apply": 20, "job-run": 45, "job-cancel": 18, "job-suspend": 4, "job-continue": 8,
    "job-delete": 5,
}  # fmt: skip


def set_requests(random: Random, seed: int, shape: Shape) -> list[PlannedEvent]:
    found: list[PlannedEvent] = []
    for name in set_names(shape):
        at = random.uniform(1, FIRST_SECONDS)
        if is_plain_first(seed, name):
            found.append(PlannedEvent(at, "set-plain", name))
            at += random.uniform(2, 40)
        first = PlannedEvent(at, "set-apply", name, word=str(random.randint(1, REPLICAS_MAX)))
        found += [first, *_changes(random, shape, at, SET_CHANGES, partial(_set, random, name))]
    for name in job_names(shape):
        at = random.uniform(1, FIRST_SECONDS)
        first = PlannedEvent(at, "job-apply", name, amount=random.randrange(VARIANTS))
        found += [first, *_changes(random, shape, at, JOB_CHANGES, partial(_job, random, name))]
    return [each for each in found if each.at < shape.minutes * 60]


def rollout_faults(
    random: Random, requests: list[PlannedEvent], draw: Callable[[str, float], PlannedEvent]
) -> list[PlannedEvent]:
    """`draw` returns a fault of this kind at this time."""
    return [
        draw(random.choice(ROLLOUT_FAULTS), request.at + random.uniform(0, 45))
        for request in requests
        if request.kind in ("set-apply", "set-undo", "job-run") and random.random() < FAULT_SHARE
    ]


def _changes(
    random: Random, shape: Shape, at: float, count: float, draw: Callable[[float], PlannedEvent]
) -> list[PlannedEvent]:
    end = shape.minutes * 60
    found: list[PlannedEvent] = []
    while (at := at + random.expovariate(count / end)) < end:
        found.append(draw(at))
        if random.random() < SECOND_SHARE:
            found.append(draw(at + random.uniform(0, 5)))
    return found


def _set(random: Random, name: str, at: float) -> PlannedEvent:
    kind = random.choices(tuple(SET_KINDS), weights=tuple(SET_KINDS.values()))[0]
    replicas = random.randint(1, REPLICAS_MAX)
    variant = random.randrange(VARIANTS)
    match kind:
        case "set-apply":
            return PlannedEvent(at, kind, name, amount=variant, word=str(replicas))
        case "set-scale":
            return PlannedEvent(at, kind, name, amount=random.choice((0, replicas, replicas)))
        case _:
            return PlannedEvent(at, kind, name)


def _job(random: Random, name: str, at: float) -> PlannedEvent:
    kind = random.choices(tuple(JOB_KINDS), weights=tuple(JOB_KINDS.values()))[0]
    variant = random.randrange(VARIANTS)
    return PlannedEvent(at, kind, name, amount=variant if kind == "job-apply" else 0)
