"""What counts as drift and what is an operation in progress; which orphans are stored."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import (
    N1,
    NOON,
    WEB,
    a_dispatch,
    a_failure,
    a_retry,
    a_situation,
    a_status,
    a_workload,
    after,
    an_assignment,
    an_observation,
)
from persys.core.agent.deviations import DRIFT
from persys.core.drift import (
    ORPHANS_MAX,
    OrphanChanges,
    UnassignedCopy,
    mismatch,
    orphans,
    reported_drift,
    unassigned_copies,
)
from persys.core.nodes import Phase
from persys.core.reconcile.situation import Policy, Situation
from persys.model.ids import WorkloadId
from persys.model.placement import Assignment
from persys.model.status import Actual, Drift, DriftType, Observation, Status
from persys.model.workload import Desired

GRACE = timedelta(seconds=10)
LATER = after(11)


def settled(seen: Observation, **changes: object) -> Situation:
    """A converged workload, with this observation since noon."""
    known: dict[str, object] = {
        "assignment": an_assignment(),
        "workload_status": a_status(),
        "observation": seen,
    }
    return a_situation(**(known | changes))  # type: ignore[arg-type]  # the builder checks them


def drift_of(situation: Situation, *, now: datetime = LATER) -> Drift | None:
    return mismatch(situation, Policy(missing_grace=GRACE), now=now)


@pytest.mark.parametrize(
    ("seen", "kind", "detail"),
    [
        (an_observation(Actual.ABSENT), DriftType.MISSING, "does not have it"),
        (
            an_observation(Actual.STOPPED),
            DriftType.STATE,
            "desired state is running, but it is stopped",
        ),
        (an_observation(revision="r0"), DriftType.REVISION, "revision is r1, but the node has r0"),
    ],
    ids=["missing", "state", "revision"],
)
def test_a_lasting_difference_is_a_drift_of_its_type(
    seen: Observation, kind: DriftType, detail: str
) -> None:
    found = drift_of(settled(seen))

    assert found is not None
    assert (found.type, found.node_id, found.workload_id) == (kind, N1, WEB)
    assert detail in found.detail


def test_a_reported_container_change_is_a_drift_immediately() -> None:
    seen = an_observation(metadata={DRIFT: "network bridge is not attached"})

    found = reported_drift(settled(seen), now=NOON)

    assert found is not None
    assert found.type is DriftType.STATE
    assert found.detail == "runs, but not as it was created: network bridge is not attached"


@pytest.mark.parametrize(
    "situation",
    [
        settled(an_observation()),
        settled(an_observation(Actual.STOPPED, metadata={DRIFT: "x"})),
        settled(
            an_observation(metadata={DRIFT: "x"}), workload=a_workload(desired=Desired.STOPPED)
        ),
    ],
    ids=["as created", "not running", "not wanted to run"],
)
def test_only_a_running_workload_can_be_reported_as_changed(situation: Situation) -> None:
    assert reported_drift(situation, now=NOON) is None


def test_a_running_workload_that_should_be_stopped_is_a_drift() -> None:
    situation = settled(
        an_observation(),
        workload=a_workload(desired=Desired.STOPPED),
        workload_status=a_status(Status.STOPPED),
    )

    found = drift_of(situation)

    assert found is not None
    assert found.type is DriftType.STATE


@pytest.mark.parametrize(
    "seen",
    [
        an_observation(),
        an_observation(revision=""),
        an_observation(Actual.PENDING),
        an_observation(Actual.UNKNOWN),
        an_observation(Actual.FAILED, failure=a_failure()),
    ],
    ids=["as wanted", "says no revision", "pending", "unknown", "failed"],
)
def test_agreement_and_pending_states_are_not_drift(seen: Observation) -> None:
    assert drift_of(settled(seen)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"dispatch": a_dispatch()},
        {"dispatch": a_dispatch(answered=False)},
        {"retry": a_retry(next_at=after(60))},
        {"retry": a_retry(next_at=None)},
        {"workload_status": a_status(Status.PENDING)},
        {"workload_status": a_status(revision="r0")},
        {"workload_status": a_status(epoch=0)},
        {"phase": Phase.SUSPECT},
        {"phase": Phase.LOST},
        {"assignment": None},
        {"workload": a_workload(desired=Desired.DELETED)},
    ],
    ids=[
        "sent",
        "on the way",
        "retry planned",
        "given up",
        "never ran",
        "new revision",
        "new assignment",
        "suspect",
        "lost",
        "unbound",
        "deleted",
    ],
)
def test_an_operation_in_progress_is_not_drift(changes: dict[str, object]) -> None:
    assert drift_of(settled(an_observation(Actual.ABSENT), **changes)) is None


def test_an_agent_gets_the_grace_period_to_repair() -> None:
    situation = settled(an_observation(Actual.ABSENT))

    assert drift_of(situation, now=after(9)) is None
    assert drift_of(situation, now=after(10)) is not None


def test_an_unassigned_copy_has_neither_an_assignment_nor_a_tombstone() -> None:
    listed = [
        replace(an_observation(), workload_id=WorkloadId(name))
        for name in ("bound", "buried", "ghost")
    ]
    gone = replace(an_observation(Actual.ABSENT), workload_id=WorkloadId("gone"))

    found = unassigned_copies([*listed, gone], {WorkloadId("bound")}, {WorkloadId("buried")})

    assert found.keys() == {"ghost"}


@given(*[st.frozensets(st.sampled_from("abcdefgh").map(WorkloadId))] * 3)
def test_an_assignment_or_tombstone_is_never_an_unassigned_copy(
    listed: frozenset[WorkloadId], bound: frozenset[WorkloadId], buried: frozenset[WorkloadId]
) -> None:
    seen = [replace(an_observation(), workload_id=name) for name in listed]

    assert unassigned_copies(seen, bound, buried).keys() == listed - bound - buried


def found_since(names: Iterable[str], since: datetime = NOON) -> dict[WorkloadId, UnassignedCopy]:
    return {
        WorkloadId(name): UnassignedCopy(
            replace(an_observation(), workload_id=WorkloadId(name)), since
        )
        for name in names
    }


def orphan_changes(
    found: Mapping[WorkloadId, UnassignedCopy],
    recorded: Iterable[Drift] = (),
    *,
    elsewhere: Mapping[WorkloadId, Assignment] | None = None,
    now: datetime = LATER,
) -> OrphanChanges:
    on_record = {drift.workload_id: drift for drift in recorded}
    return orphans(N1, found, on_record, elsewhere or {}, grace=GRACE, now=now)


def test_an_orphan_is_recorded_after_the_grace_period() -> None:
    found = found_since(["ghost"])

    assert orphan_changes(found, now=after(9)).found == ()
    (orphan,) = orphan_changes(found, now=after(10)).found
    assert (orphan.type, orphan.workload_id) == (DriftType.ORPHAN, "ghost")
    assert "no matching workload" in orphan.detail


def test_an_orphan_is_recorded_once_and_deleted_when_it_is_gone() -> None:
    found = found_since(["ghost"])
    recorded = orphan_changes(found).found

    assert orphan_changes(found, recorded) == OrphanChanges((), (), 0)
    assert orphan_changes({}, recorded) == OrphanChanges((), recorded, 0)


def test_an_old_copy_of_a_moved_workload_names_its_new_node() -> None:
    bound = an_assignment("n2", epoch=5)

    (orphan,) = orphan_changes(found_since(["web"]), elsewhere={WEB: bound}).found

    assert "assigned to n2 with epoch 5" in orphan.detail


def test_a_node_that_lists_too_many_fills_no_store_and_the_rest_is_counted() -> None:
    found = found_since(f"ghost-{number}" for number in range(10_000))
    first = orphan_changes(found)
    again = orphan_changes(found, first.found)

    assert len(first.found) == ORPHANS_MAX
    assert first.unrecorded == again.unrecorded == 10_000 - ORPHANS_MAX
    assert again.found == ()


def test_free_drift_records_are_used_for_new_orphans() -> None:
    found = found_since(f"ghost-{number:05}" for number in range(ORPHANS_MAX + 1))
    recorded = orphan_changes(found).found
    del found[recorded[0].workload_id]
    after_one_is_gone = orphan_changes(found, recorded)

    assert after_one_is_gone.gone == (recorded[0],)
    assert len(after_one_is_gone.found) == 1
    assert after_one_is_gone.unrecorded == 0
