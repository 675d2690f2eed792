"""The life of a machine: created, booted, ready, drained, destroyed, dropped."""

import pytest

from nodepool_builders import (
    LARGE,
    NOW,
    a_machine,
    a_node,
    a_pool,
    an_instance,
    steps_of,
)
from persys.core.nodepools.steps import (
    Destroy,
    Drain,
    DropPool,
    Keep,
    PoolInstance,
    Remove,
    Rule,
    Step,
)
from persys.model.nodepool import MachineState

NODE = "home-burst-1"
CREATING, BOOTING, READY = MachineState.CREATING, MachineState.BOOTING, MachineState.READY
DRAINING, DESTROYING = MachineState.DRAINING, MachineState.DESTROYING


def only(steps: list[Step]) -> Step:
    [step] = steps
    return step


def test_a_machine_whose_create_call_was_not_answered_is_found_by_its_name() -> None:
    step = only(steps_of(machines=(a_machine(state=CREATING),), instances=(an_instance(),)))

    assert isinstance(step, Keep)
    assert (step.machine.state, step.machine.provider_id) == (BOOTING, "i-1")


def test_a_machine_that_is_missing_from_one_list_is_kept() -> None:
    step = only(steps_of(machines=(a_machine(),), nodes={NODE: a_node()}))

    assert isinstance(step, Keep)
    assert step.machine.absent_count == 1


@pytest.mark.parametrize("state", [BOOTING, READY, DRAINING, DESTROYING])
def test_a_machine_that_is_missing_from_two_lists_is_removed(state: MachineState) -> None:
    step = only(steps_of(machines=(a_machine(state=state, absent_count=1),)))

    assert isinstance(step, Remove)


def test_a_create_call_without_an_answer_holds_its_record_until_the_deadline() -> None:
    early = only(steps_of(machines=(a_machine(state=CREATING, age=800, absent_count=1),)))
    late = only(steps_of(machines=(a_machine(state=CREATING, age=901, absent_count=1),)))

    assert isinstance(early, Keep)
    assert isinstance(late, Remove)
    assert late.failed


def test_a_machine_that_is_listed_again_is_no_longer_missing() -> None:
    step = only(
        steps_of(
            machines=(a_machine(absent_count=1),),
            nodes={NODE: a_node(workloads=1)},
            instances=(an_instance(),),
        )
    )

    assert isinstance(step, Keep)
    assert step.machine.absent_count == 0


@pytest.mark.parametrize("state", list(MachineState))
def test_no_answer_of_the_provider_removes_and_destroys_nothing(state: MachineState) -> None:
    step = only(steps_of(machines=(a_machine(state=state, absent_count=1),), instances=None))

    assert isinstance(step, Keep)
    assert step.rule is Rule.NO_ANSWER


def test_a_booting_machine_is_ready_with_its_node() -> None:
    step = only(
        steps_of(
            machines=(a_machine(state=BOOTING, age=60),),
            nodes={NODE: a_node()},
            instances=(an_instance(),),
        )
    )

    assert isinstance(step, Keep)
    assert step.machine.state is READY


def test_a_machine_that_is_not_a_ready_node_in_time_is_destroyed_with_back_off() -> None:
    step = only(steps_of(machines=(a_machine(state=BOOTING, age=900),), instances=(an_instance(),)))

    assert isinstance(step, Destroy)
    assert (step.rule, step.failed) == (Rule.DEADLINE, True)


def test_an_idle_machine_is_drained_then_destroyed_then_removed() -> None:
    ready, draining = a_machine(), a_machine(state=DRAINING)
    destroying = a_machine(state=DESTROYING, absent_count=1)

    first = only(
        steps_of(machines=(ready,), nodes={NODE: a_node(idle=600)}, instances=(an_instance(),))
    )
    second = only(
        steps_of(machines=(draining,), nodes={NODE: a_node()}, instances=(an_instance(),))
    )
    third = only(steps_of(machines=(destroying,), nodes={NODE: a_node(ready=False)}))

    assert isinstance(first, Drain)
    assert isinstance(second, Destroy)
    assert isinstance(third, Remove)


def test_a_machine_is_not_drained_before_it_was_idle_long_enough() -> None:
    short = a_node(idle=599)
    step = only(steps_of(machines=(a_machine(),), nodes={NODE: short}, instances=(an_instance(),)))

    assert isinstance(step, Keep)


def test_the_minimum_is_kept_and_the_most_expensive_leaves_first() -> None:
    machines = (a_machine(1, size=LARGE), a_machine(2))
    steps = steps_of(
        a_pool(min_machines=1),
        machines=machines,
        nodes={NODE: a_node(idle=999), "home-burst-2": a_node(idle=999)},
        instances=(an_instance(1), an_instance(2)),
    )

    assert [type(step).__name__ for step in steps] == ["Drain", "Keep"]


@pytest.mark.parametrize("state", list(MachineState))
@pytest.mark.parametrize("deleting", [False, True])
@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_node_with_data_is_not_destroyed(
    state: MachineState, deleting: bool, ready: bool, stopped: bool
) -> None:
    if state is DESTROYING:
        return  # decided before, when it had none

    step = only(
        steps_of(
            a_pool(deleting=deleting),
            machines=(a_machine(state=state, age=9999),),
            nodes={NODE: a_node(workloads=1, data=1, ready=ready, idle=9999)},
            instances=(an_instance(stopped=stopped),),
        )
    )

    assert not isinstance(step, Destroy | Remove) or state is CREATING


def test_a_lost_node_without_workloads_is_destroyed_after_the_deadline() -> None:
    lost = a_node(ready=False, idle=900)
    step = only(steps_of(machines=(a_machine(),), nodes={NODE: lost}, instances=(an_instance(),)))

    assert isinstance(step, Destroy)
    assert step.rule is Rule.LOST


def test_a_machine_whose_node_an_operator_removed_is_destroyed() -> None:
    step = only(steps_of(machines=(a_machine(),), instances=(an_instance(),)))

    assert isinstance(step, Destroy)
    assert step.rule is Rule.NODE_REMOVED


def test_an_untracked_instance_is_destroyed_after_the_deadline() -> None:
    young = steps_of(instances=(an_instance(age=899),))
    old = only(steps_of(instances=(an_instance(age=900),)))

    assert young == []
    assert isinstance(old, Destroy)
    assert (old.machine, old.provider_id) == (None, "i-1")


def test_a_second_instance_with_the_name_of_a_machine_is_destroyed() -> None:
    double = PoolInstance("i-double", NODE, "small", NOW.replace(year=2029))
    steps = steps_of(
        machines=(a_machine(),),
        nodes={NODE: a_node(workloads=1)},
        instances=(double, an_instance()),
    )

    assert [type(step).__name__ for step in steps] == ["Keep", "Destroy"]
    assert isinstance(steps[1], Destroy)
    assert steps[1].provider_id == "i-double"


def test_an_untracked_instance_with_a_registered_node_is_adopted() -> None:
    step = only(steps_of(nodes={NODE: a_node(workloads=2)}, instances=(an_instance(age=99999),)))

    assert isinstance(step, Keep)
    assert step.rule is Rule.ADOPTED
    assert (step.machine.number, step.machine.state) == (1, READY)


def test_a_deleted_pool_drains_and_destroys_all_and_is_dropped_last() -> None:
    pool = a_pool(deleting=True, min_machines=1)
    steps = steps_of(
        pool,
        machines=(a_machine(1), a_machine(2, BOOTING, age=10), a_machine(3, CREATING, age=10)),
        nodes={NODE: a_node(workloads=1)},
        instances=(an_instance(1), an_instance(2), an_instance(3)),
    )

    assert [type(step).__name__ for step in steps] == ["Drain", "Destroy", "Destroy"]
    assert steps_of(pool, instances=(an_instance(5, age=1),)) == []
    assert steps_of(pool, instances=None) == []
    assert only(steps_of(pool)) == DropPool(pool.pool_id)
