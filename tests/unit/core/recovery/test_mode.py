"""The mode from the responses of the store."""

import pytest
from msgspec.structs import replace

from builders import NOON
from persys.core.recovery.mode import (
    ACCEPTED_MAX,
    ModeCondition,
    NewCluster,
    RecordsLost,
    SameCluster,
    StoreHealthy,
    StoreUnreachable,
    accepted_uids,
    after,
    classify_store,
    detect_lost_records,
    is_awaited,
)
from persys.model.cluster import ClusterMarker, Mode

OURS = ClusterMarker("ours", NOON)
OTHERS = ClusterMarker("others", NOON)
NORMAL, DEGRADED, RECOVERY = (
    ModeCondition(),
    ModeCondition(Mode.DEGRADED, "no answer"),
    ModeCondition(Mode.RECOVERY, "gone", "ours"),
)


@pytest.mark.parametrize(
    ("before", "outcome", "mode"),
    [
        (NORMAL, StoreHealthy(), Mode.NORMAL),
        (NORMAL, StoreUnreachable("no answer"), Mode.DEGRADED),
        (NORMAL, RecordsLost("gone"), Mode.RECOVERY),
        (DEGRADED, StoreHealthy(), Mode.NORMAL),
        (DEGRADED, StoreUnreachable("still none"), Mode.DEGRADED),
        (DEGRADED, RecordsLost("gone"), Mode.RECOVERY),
        (RECOVERY, StoreHealthy(), Mode.NORMAL),
        (RECOVERY, StoreUnreachable("no answer"), Mode.RECOVERY),
        (RECOVERY, RecordsLost("gone"), Mode.RECOVERY),
    ],
)
def test_each_mode_and_each_outcome_has_one_successor(
    before: ModeCondition, outcome: StoreUnreachable | RecordsLost | StoreHealthy, mode: Mode
) -> None:
    assert after(before, outcome).mode is mode


def test_the_newest_reason_is_shown() -> None:
    assert after(DEGRADED, StoreUnreachable("disk is full")).reason == "disk is full"
    assert after(RECOVERY, StoreUnreachable("disk is full")).reason == "gone"
    assert after(DEGRADED, StoreHealthy()).reason == ""


def test_an_empty_store_is_a_new_cluster_only_without_known_records() -> None:
    new = classify_store(None, holds_records=False, known_uid="", remembers=False)
    lost = classify_store(None, holds_records=False, known_uid="ours", remembers=True)

    assert new == NewCluster()
    assert isinstance(lost, RecordsLost)
    assert lost.awaits == "ours"


def test_records_without_a_marker_are_a_damaged_store() -> None:
    verdict = classify_store(None, holds_records=True, known_uid="", remembers=False)

    assert isinstance(verdict, RecordsLost)
    assert "damaged" in verdict.reason


def test_a_store_of_another_cluster_is_not_ours() -> None:
    assert classify_store(OURS, holds_records=True, known_uid="", remembers=False) == SameCluster(
        OURS
    )
    assert classify_store(
        OURS, holds_records=True, known_uid="ours", remembers=True
    ) == SameCluster(OURS)
    assert isinstance(
        classify_store(OTHERS, holds_records=True, known_uid="ours", remembers=True), RecordsLost
    )


def test_a_store_with_an_accepted_loss_of_this_cluster_is_followed() -> None:
    successor = replace(OTHERS, accepted=("ours",))

    assert classify_store(
        successor, holds_records=True, known_uid="ours", remembers=True
    ) == SameCluster(successor)


def test_recovery_ends_automatically_only_with_the_lost_marker() -> None:
    assert is_awaited(RECOVERY, OURS)
    assert not is_awaited(RECOVERY, OTHERS)
    assert is_awaited(ModeCondition(Mode.RECOVERY, "damaged"), OTHERS)
    assert not is_awaited(NORMAL, OURS)


@pytest.mark.parametrize(
    ("reported_uid", "count", "holds", "lost"),
    [
        ("others", 3, False, True),
        ("others", 0, False, False),  # nothing is lost with it
        ("others", 3, True, False),  # this is a new cluster: existing copies are orphans
        ("ours", 3, False, False),
        ("", 3, False, False),  # third-party agents do not report it
        ("buried", 3, False, False),  # an operator has accepted that loss
    ],
)
def test_a_node_of_another_cluster_shows_that_an_empty_store_is_not_new(
    reported_uid: str, count: int, holds: bool, lost: bool
) -> None:
    marker = ClusterMarker("ours", NOON, accepted=("buried",))
    verdict = detect_lost_records(
        marker,
        reported_uid=reported_uid,
        workload_count=count,
        holds_workloads=holds,
        claims=1,
        others=0,
    )

    assert (verdict is not None) is lost


@pytest.mark.parametrize(("claims", "others", "lost"), [(1, 0, True), (1, 1, False), (2, 1, True)])
def test_a_minority_of_the_nodes_does_not_make_an_empty_store_a_lost_one(
    claims: int, others: int, lost: bool
) -> None:
    verdict = detect_lost_records(
        OURS,
        reported_uid="others",
        workload_count=3,
        holds_workloads=False,
        claims=claims,
        others=others,
    )

    assert (verdict is not None) is lost


def test_the_marker_keeps_a_bounded_number_of_clusters_and_those_on_record_first() -> None:
    named = [f"made-up-{number:05}" for number in range(10_000)]

    accepted = accepted_uids("own", ["zz-known", "", "own"], named)

    assert len(accepted) == ACCEPTED_MAX
    assert "zz-known" in accepted
    assert "own" not in accepted
    assert "" not in accepted
