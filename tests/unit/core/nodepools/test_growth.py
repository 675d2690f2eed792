"""When a node pool creates machines, and which."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from nodepool_builders import (
    LARGE,
    NOW,
    SMALL,
    a_machine,
    a_node,
    a_pool,
    a_waiting,
    an_instance,
    steps_of,
)
from persys.core.nodepools.growth import UNDER_WAY_MAX, after_failure, after_success
from persys.core.nodepools.steps import Create, Hold, PoolNode, Rule, Step
from persys.model.nodepool import MachineState, NodePool, Provisioning
from persys.model.placement import Resources


def created(steps: list[Step]) -> list[str]:
    return [step.machine.size for step in steps if isinstance(step, Create)]


def test_a_waiting_workload_gets_the_cheapest_size_that_takes_it() -> None:
    assert created(steps_of(waiting=(a_waiting(cpu=1000),))) == ["small"]
    assert created(steps_of(waiting=(a_waiting(cpu=4000),))) == ["large"]


def test_a_workload_that_has_not_waited_long_enough_creates_nothing() -> None:
    assert steps_of(waiting=(a_waiting(seconds=-10),)) == []


def test_workloads_that_fit_together_share_a_machine() -> None:
    waiting = tuple(a_waiting(name, cpu=1000) for name in "abc")

    assert created(steps_of(waiting=waiting)) == ["small", "small"]


def test_what_a_booting_machine_will_take_creates_nothing() -> None:
    booting = a_machine(state=MachineState.BOOTING, age=30)

    steps = steps_of(
        waiting=(a_waiting(cpu=2000),), machines=(booting,), instances=(an_instance(),)
    )

    assert created(steps) == []


def test_what_a_ready_node_has_free_creates_nothing() -> None:
    node = PoolNode(True, NOW, free=Resources(2000, 4000, 40), workload_count=1)

    steps = steps_of(
        waiting=(a_waiting(cpu=2000),),
        machines=(a_machine(),),
        nodes={"home-burst-1": node},
        instances=(an_instance(),),
    )

    assert created(steps) == []


def test_a_create_call_without_an_answer_offers_no_capacity_for_ever() -> None:
    unanswered = a_machine(state=MachineState.CREATING, age=300)

    steps = steps_of(waiting=(a_waiting(),), machines=(unanswered,))

    assert created(steps) == ["small"]


def test_a_pool_is_never_above_its_maximum() -> None:
    waiting = tuple(a_waiting(str(number), cpu=2000) for number in range(9))

    steps = steps_of(a_pool(max_machines=2), waiting=waiting)

    assert created(steps) == ["small", "small"]
    assert isinstance(steps[-1], Hold)
    assert steps[-1].rule is Rule.MAXIMUM


def test_a_pool_is_never_above_its_spend_limit() -> None:
    waiting = tuple(a_waiting(str(number), cpu=2000) for number in range(9))

    steps = steps_of(a_pool(spend_per_hour_max=0.3), waiting=waiting)

    assert created(steps) == ["small"] * 3
    assert isinstance(steps[-1], Hold)
    assert steps[-1].rule is Rule.SPEND
    assert "the limit is 0.3" in steps[-1].why


def test_machines_that_are_being_destroyed_and_untracked_instances_count() -> None:
    leaving = a_machine(1, MachineState.DESTROYING)
    instances = (an_instance(1), an_instance(2, age=10))

    steps = steps_of(
        a_pool(max_machines=2), waiting=(a_waiting(),), machines=(leaving,), instances=instances
    )

    assert created(steps) == []


def test_few_machines_are_under_way_at_the_same_time() -> None:
    waiting = tuple(a_waiting(str(number), cpu=2000) for number in range(20))

    steps = steps_of(a_pool(max_machines=100, spend_per_hour_max=100.0), waiting=waiting)

    assert len(created(steps)) == UNDER_WAY_MAX


def test_the_minimum_is_created_without_demand() -> None:
    steps = steps_of(a_pool(min_machines=2))

    assert created(steps) == ["small", "small"]
    assert [step.rule for step in steps if isinstance(step, Create)] == [Rule.MINIMUM] * 2


@pytest.mark.parametrize(
    "pool",
    [
        a_pool(paused=True, min_machines=1),
        a_pool(deleting=True, min_machines=1),
        a_pool(provisioning=Provisioning(retry_at=NOW + timedelta(seconds=1))),
    ],
)
def test_a_paused_deleted_or_delayed_pool_creates_nothing(pool: NodePool) -> None:
    assert created(steps_of(pool, waiting=(a_waiting(),))) == []


def test_a_provider_without_an_answer_creates_nothing() -> None:
    assert steps_of(waiting=(a_waiting(),), instances=None) == []


def test_numbers_are_not_used_again() -> None:
    pool = a_pool(provisioning=Provisioning(created_count=7))

    [step] = steps_of(pool, waiting=(a_waiting(),))
    [*_, after_restore] = steps_of(waiting=(a_waiting(),), instances=(an_instance(9, age=1),))

    assert isinstance(step, Create)
    assert step.machine.name == "home-burst-8"
    assert isinstance(after_restore, Create)
    assert after_restore.machine.number == 10


def test_the_delay_after_failures_doubles_and_ends_with_a_ready_machine() -> None:
    once = after_failure(Provisioning(created_count=3), "quota", now=NOW)
    twice = after_failure(once, "quota", now=NOW)
    asked = after_failure(Provisioning(), "slow down", now=NOW, retry_after=timedelta(minutes=3))

    assert once.retry_at == NOW + timedelta(seconds=30)
    assert twice.retry_at == NOW + timedelta(seconds=60)
    assert asked.retry_at == NOW + timedelta(minutes=3)
    assert after_success(twice) == Provisioning(created_count=3)


def test_sizes_of_equal_price_are_ordered_by_capacity() -> None:
    pool = a_pool(sizes=(replace(LARGE, hour_price=0.1), SMALL))

    assert created(steps_of(pool, waiting=(a_waiting(),))) == ["small"]


def test_an_idle_machine_is_drained_although_others_wait_for_a_larger_one() -> None:
    steps = steps_of(
        a_pool(max_machines=1, sizes=(SMALL, LARGE)),
        waiting=(a_waiting(cpu=8000, memory=8000),),
        machines=(a_machine(),),
        nodes={"home-burst-1": a_node(idle=700)},
        instances=(an_instance(),),
    )

    assert [type(step).__name__ for step in steps] == ["Drain", "Hold"]
