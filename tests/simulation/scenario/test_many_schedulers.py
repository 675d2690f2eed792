"""Several schedulers and control streams: the promises hold, and a planted fault is found."""

import asyncio

import pytest

from persys.scheduler.app import Scheduler
from persys.scheduler.ha.leader_lease import LeaderLease
from persys.sim.fakes.ha_scheduler import HaScheduler
from persys.sim.run import Outcome, run
from persys.sim.scenario.plan import Plan, PlannedEvent, Shape, nodes_behind_nat
from persys.sim.world import World

SHAPE = Shape(nodes=3, workloads=4, minutes=4, schedulers=3, streams=0.5)
USER_KINDS = [
    PlannedEvent(2.0 + number, "apply", f"w{number:02d}", amount=1) for number in range(4)
]


def run_with(*misfortunes: PlannedEvent, shape: Shape = SHAPE) -> Outcome:
    planned_events = sorted([*USER_KINDS, *misfortunes], key=lambda each: each.at)
    return run(Plan(3, shape, tuple(planned_events)))


def leaders_of(outcome: Outcome) -> list[str]:
    """The leaders in order."""
    found: list[str] = []
    for line in outcome.lines:
        if "+/leader" in line.what and found[-1:] != [line.who]:
            found.append(line.who)
    return found


@pytest.mark.parametrize("kind", ["crash-scheduler", "freeze-scheduler", "cut-store"])
def test_after_the_loss_of_the_leader_another_is_elected(kind: str) -> None:
    outcome = run_with(PlannedEvent(30.0, kind, "scheduler", seconds=40))

    assert outcome.violation is None
    assert len(leaders_of(outcome)) == 2


def test_a_freeze_shorter_than_the_lease_changes_nothing() -> None:
    outcome = run_with(PlannedEvent(30.0, "freeze-scheduler", "scheduler", seconds=4))

    assert outcome.violation is None
    assert len(leaders_of(outcome)) == 1


def test_broken_and_half_open_streams_are_reopened() -> None:
    faults = [
        PlannedEvent(20.0 + number, kind, f"n{number}", amount=1, word="from")
        for number in (1, 2, 3)
        for kind in ("break-stream", "half-open")
    ]
    shape = Shape(nodes=3, workloads=4, minutes=3, schedulers=1, streams=1.0)

    assert run_with(*faults, shape=shape).violation is None


@pytest.mark.parametrize("seed", [6, 7, 9])
def test_a_node_behind_nat_gets_orders_after_a_late_registration_response(
    seed: int,
) -> None:
    """Found by seed 47: the agent switched to unary calls permanently, and no order could reach it."""
    shape = Shape(nodes=1, workloads=1, minutes=4, schedulers=1, streams=1.0)
    assert nodes_behind_nat(seed, shape)
    planned_events = (
        PlannedEvent(20.0, "slow-net", "n1", seconds=60, amount=4.0),
        PlannedEvent(100.0, "apply", "w00", amount=1),
    )

    assert run(Plan(seed, shape, planned_events)).violation is None


def test_a_resumed_scheduler_does_not_forward_an_expired_call() -> None:
    """Found by seed 20: the request arrived after a newer, acknowledged one."""
    plan = Plan(
        20,
        Shape(schedulers=3, streams=0.0),
        (
            PlannedEvent(200.101, "freeze-scheduler", "s1", seconds=63.4),
            PlannedEvent(200.269, "delete", "w21"),
            PlannedEvent(210.159, "stop", "w02"),
            PlannedEvent(378.616, "freeze-scheduler", "s1", seconds=45.9),
            PlannedEvent(384.616, "delete", "w21"),
            PlannedEvent(387.420, "apply", "w21", amount=4),
        ),
    )

    assert run(plan).violation is None


class UnconfirmedLease(LeaderLease):
    """Never renews its lease, and always claims to hold it."""

    @property
    def is_confirmed(self) -> bool:
        return True

    async def run(self) -> None:
        await asyncio.Event().wait()


class UnconfirmedScheduler(Scheduler):
    leader_lease_type = UnconfirmedLease


class UnconfirmedHaScheduler(HaScheduler):
    scheduler_type = UnconfirmedScheduler


class UnconfirmedWorld(World):
    ha_scheduler_type = UnconfirmedHaScheduler


def test_a_leader_without_a_valid_lease_is_detected() -> None:
    outcome = run(Plan(3, SHAPE, tuple(USER_KINDS)), UnconfirmedWorld)

    assert outcome.violation is not None
    assert outcome.violation.promise == "authority"
