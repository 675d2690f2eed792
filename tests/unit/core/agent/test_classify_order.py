"""Classification of a received order."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persys.core.agent.admission import (
    AcceptedOrder,
    Draining,
    OrderClass,
    Stale,
    Unchanged,
    classify_order,
)
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import ContainerSpec, WorkloadType
from persys.model.workload import Desired, Order

ORDER = Order(
    workload_id=WorkloadId("web"),
    type=WorkloadType.CONTAINER,
    revision=Revision("r1"),
    epoch=5,
    desired=Desired.RUNNING,
    spec=ContainerSpec("nginx"),
)


def received(
    order: Order,
    known: Order | None = ORDER,
    *,
    failed: bool = False,
    deleted_epoch: int = 0,
    draining: bool = False,
) -> OrderClass:
    return classify_order(
        order, known, failed=failed, deleted_epoch=deleted_epoch, draining=draining
    )


def test_an_unknown_workload_is_taken() -> None:
    assert received(ORDER, None) == AcceptedOrder(ORDER)


def test_the_same_again_is_unchanged() -> None:
    assert received(ORDER) == Unchanged(ORDER)


def test_the_same_again_after_a_failure_is_a_new_try() -> None:
    assert received(ORDER, failed=True) == AcceptedOrder(ORDER)


def test_a_new_revision_or_desired_state_is_taken() -> None:
    for order in (
        replace(ORDER, revision=Revision("r2")),
        replace(ORDER, desired=Desired.STOPPED),
        replace(ORDER, desired=Desired.DELETED),
    ):
        assert received(order) == AcceptedOrder(order)


def test_the_proof_of_the_newest_epoch_is_kept() -> None:
    known = replace(ORDER, proof=b"old")
    newer = replace(ORDER, epoch=6, proof=b"new")
    without = replace(ORDER, epoch=0, revision=Revision("r2"))

    assert received(newer, known) == Unchanged(replace(known, epoch=6, proof=b"new"))
    assert received(without, known) == AcceptedOrder(replace(without, epoch=5, proof=b"old"))
    assert received(ORDER, known) == Unchanged(known)


def test_a_newer_epoch_of_the_same_revision_is_only_recorded() -> None:
    newer = replace(ORDER, epoch=6)

    assert received(newer) == Unchanged(newer)


def test_a_sender_without_epochs_does_not_lower_the_known_one() -> None:
    order = replace(ORDER, epoch=0, revision=Revision("r2"))

    assert received(order) == AcceptedOrder(replace(order, epoch=5))


def test_an_apply_of_an_assignment_that_was_deleted_here_is_refused() -> None:
    assert received(replace(ORDER, epoch=4), None, deleted_epoch=5) == Stale(5, deleted=True)
    assert received(ORDER, None, deleted_epoch=5) == Stale(5, deleted=True)
    assert received(replace(ORDER, epoch=6), None, deleted_epoch=5) == AcceptedOrder(
        replace(ORDER, epoch=6)
    )


def test_an_apply_without_an_epoch_is_taken_after_a_delete() -> None:
    order = replace(ORDER, epoch=0)
    assert received(order, None, deleted_epoch=5) == AcceptedOrder(order)


def test_an_apply_of_the_same_assignment_does_not_undo_a_delete_that_is_under_way() -> None:
    deleting = replace(ORDER, desired=Desired.DELETED)
    newer = replace(ORDER, epoch=ORDER.epoch + 1)

    assert received(ORDER, deleting) == Stale(ORDER.epoch, deleted=True)
    assert received(deleting, deleting) == Unchanged(deleting)
    assert received(newer, deleting) == AcceptedOrder(newer)


def test_a_draining_node_accepts_orders_only_for_its_workloads() -> None:
    assert received(replace(ORDER, epoch=0), None, draining=True) == Draining()
    stopped = replace(ORDER, desired=Desired.STOPPED)
    assert received(stopped, draining=True) == AcceptedOrder(stopped)


def test_an_order_with_an_epoch_is_accepted_by_a_node_that_still_assumes_a_drain() -> None:
    assert received(ORDER, None, draining=True) == AcceptedOrder(ORDER)


@given(st.integers(0, 10), st.integers(0, 10), st.sampled_from(Desired), st.booleans())
def test_the_known_epoch_never_decreases(
    sent: int, known: int, desired: Desired, failed: bool
) -> None:
    order = replace(ORDER, epoch=sent, desired=desired)

    match received(order, replace(ORDER, epoch=known), failed=failed):
        case AcceptedOrder(order=kept) | Unchanged(order=kept):
            assert kept.epoch >= known
        case Stale(known_epoch=epoch):
            assert 0 < sent < epoch
        case Draining():
            raise AssertionError("this node is not draining")
