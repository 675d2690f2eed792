"""A workload that wrote more than its disk_gb is stopped and has failed."""

from msgspec.structs import replace

from persys.core.agent.next_step import next_step
from persys.core.agent.progress import Condition, Perform, Progress, Settled, Step
from persys.core.agent.run_limits import DISK_LIMIT_EXCEEDED, exceeded, limit_gb, within_disk_limit
from persys.model.node import GIB
from persys.model.placement import Resources
from persys.model.spec import ComposeSpec, ContainerSpec
from persys.model.status import Actual, Failure, FailureReason
from persys.model.workload import Desired, Order
from unit.core.agent.test_next_step import NOW, an_artefact, an_order

LIMITED = replace(an_order(), spec=ContainerSpec("web", disk_gb=1))


def overrun() -> Failure:
    failure = exceeded(LIMITED, 2 * GIB)
    assert failure is not None
    return failure


def decide(order: Order, progress: Progress, **seen: object) -> Perform | Settled:
    condition = Condition.RUNNING
    if "condition" in seen:
        condition = Condition(str(seen.pop("condition")))
    artefact = an_artefact(condition, **seen)
    outcome = next_step(order, artefact, progress, now=NOW)
    return within_disk_limit(outcome, order, artefact, progress)


def test_a_limit_is_exceeded_only_above_its_value() -> None:
    assert exceeded(LIMITED, GIB) is None
    assert exceeded(an_order(), 100 * GIB) is None
    assert overrun().reason is FailureReason.STORAGE_ERROR
    assert not overrun().retryable
    assert "2.00 GiB" in overrun().message


def test_a_stack_is_limited_by_its_reservation() -> None:
    stack = replace(LIMITED, spec=ComposeSpec(reserved=Resources(disk_gb=3)))

    assert limit_gb(stack) == 3


def test_a_workload_over_its_disk_limit_is_stopped() -> None:
    assert decide(LIMITED, Progress(), overrun=overrun()) == Perform(Step.STOP, by_policy=True)


def test_a_workload_stopped_for_its_disk_limit_fails_with_any_restart_policy() -> None:
    progress = Progress(launching=True, failure=overrun())

    settled = decide(LIMITED, progress, condition="exited", exit_code=137)

    assert isinstance(settled, Settled)
    assert (settled.actual, settled.code) == (Actual.FAILED, DISK_LIMIT_EXCEEDED)


def test_a_new_order_starts_it_again() -> None:
    assert decide(LIMITED, Progress(), condition="exited") == Perform(Step.START)


def test_an_order_to_stop_or_delete_it_is_not_a_failure() -> None:
    for desired in (Desired.STOPPED, Desired.DELETED):
        order = replace(LIMITED, desired=desired)
        assert decide(order, Progress(), overrun=overrun()) == Perform(Step.STOP)
