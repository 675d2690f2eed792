"""Rollouts: which members are updated, when they end, pause and roll back."""

from dataclasses import replace as changed

import pytest
from msgspec.structs import replace

from persys.core.sets.situation import MemberHealth, MemberState, SetDecision
from persys.model.event import EventKind
from persys.model.sets import (
    OnFailure,
    Phase,
    Rollout,
    UpdateOrder,
    UpdatePolicy,
    WorkloadSet,
)
from set_builders import NOW, a_member, a_set, a_template, at, decision_of, members_of

HEALTHY, LOST, STARTING = MemberHealth.HEALTHY, MemberHealth.LOST, MemberHealth.STARTING
UNHEALTHY, FAILED, DELETING = (
    MemberHealth.UNHEALTHY,
    MemberHealth.FAILED,
    MemberHealth.DELETING,
)
TWO = UpdatePolicy(max_parallel=2)
CANARY = UpdatePolicy(canary=1, bake_seconds=60)


def rolling(replicas: int = 3, phase: Phase = Phase.ROLLING, **changes: object) -> WorkloadSet:
    """From revision 1 to revision 2, since 60 seconds."""
    return a_set(replicas, phase=phase, **{"target": 2, "stable": 1, **changes})  # type: ignore[arg-type]


def new(
    number: int,
    index: int,
    health: MemberHealth = HEALTHY,
    *,
    since: float = -30,
    **changes: object,
) -> MemberState:
    """A member that the rollout has updated 30 seconds ago."""
    return a_member(number, health, index=index, revision=2, since=since, changed=-30, **changes)


def after(decision: SetDecision) -> Rollout:
    assert decision.record is not None
    return decision.record.rollout


def puts(decision: SetDecision) -> list[tuple[int, int, int]]:
    """The number, index and revision of each."""
    return [(one.number, one.index, one.revision) for one in decision.put]


def kinds(decision: SetDecision) -> list[EventKind]:
    return [event.kind for event in decision.events]


def test_start_first_creates_the_new_member_beside_the_old_one() -> None:
    decision = decision_of(rolling(), members_of(3))

    assert puts(decision) == [(3, 0, 2)]
    assert decision.delete == ()
    assert decision.rule == "update"


def test_the_old_member_stays_until_the_new_one_has_passed() -> None:
    decision = decision_of(rolling(), (*members_of(3), new(3, 0, since=-4)))

    assert (decision.put, decision.delete) == ((), ())
    assert decision.waits_for == "web-3: healthy for 4s of 10s"
    assert decision.wake_at == at(6)


def test_an_old_member_that_is_not_healthy_stays_too() -> None:
    """It may recover, and it is needed if the new revision fails."""
    decision = decision_of(rolling(1), (a_member(0, UNHEALTHY), new(3, 0, STARTING)))

    assert decision.delete == ()


def test_the_next_index_is_updated_when_the_new_member_has_passed() -> None:
    decision = decision_of(rolling(), (*members_of(3), new(3, 0)))

    assert decision.delete == ("web-0",)
    assert puts(decision) == [(4, 1, 2)]


def test_max_parallel_members_are_updated_at_the_same_time() -> None:
    decision = decision_of(rolling(6, update=TWO), (*members_of(6), new(6, 0, STARTING)))

    assert puts(decision) == [(7, 1, 2)]


def test_members_on_lost_nodes_do_not_count_as_being_updated() -> None:
    decision = decision_of(rolling(), (*members_of(3), new(3, 0, LOST)))

    assert puts(decision) == [(4, 1, 2)]


def test_a_lost_new_member_is_not_replaced_again() -> None:
    members = (a_member(0), new(3, 0, LOST), new(1, 1), new(2, 2))

    decision = decision_of(rolling(), members)

    assert (decision.put, decision.delete) == ((), ())
    assert decision.waits_for == "web-3: its node n3 does not send heartbeats"


def test_in_place_changes_the_member_and_keeps_its_number() -> None:
    members = (a_member(7, index=0), a_member(1), a_member(2))

    assert puts(decision_of(rolling(), members, data=True)) == [(7, 0, 2)]


def test_in_place_changes_members_that_are_not_healthy_first() -> None:
    members = (a_member(0), a_member(1), a_member(2, UNHEALTHY))

    assert puts(decision_of(rolling(), members, data=True)) == [(2, 2, 2)]


def test_available_members_never_fall_below_the_required_number() -> None:
    """One of three is not healthy: a second one must not be stopped."""
    members = (new(0, 0, STARTING), a_member(1), a_member(2))

    assert decision_of(rolling(update=TWO), members, data=True).put != ()
    assert decision_of(rolling(), members, data=True).put == ()


def test_only_healthy_members_count_as_available() -> None:
    members = (new(0, 0), a_member(1), a_member(2, LOST))

    decision = decision_of(rolling(), members, data=True)

    assert decision.put == ()
    assert decision.waits_for == "only 2 of 3 members are healthy, 2 must remain"
    assert decision.rule == "blocked"


def test_a_single_member_is_updated_although_none_is_left() -> None:
    assert puts(decision_of(rolling(1), members_of(1), data=True)) == [(0, 0, 2)]


def test_members_on_lost_nodes_are_changed_in_place_when_the_others_have_passed() -> None:
    members = (a_member(0, LOST), a_member(1, LOST), new(2, 2))

    decision = decision_of(rolling(), members, data=True)

    assert puts(decision) == [(0, 0, 2), (1, 1, 2)]
    assert after(decision).phase is Phase.STEADY


def test_an_unproven_revision_is_not_left_for_the_return_of_lost_nodes() -> None:
    members = (a_member(0, LOST), a_member(1, LOST), new(2, 2, STARTING))

    assert decision_of(rolling(), members, data=True).put == ()
    assert decision_of(rolling(1), (a_member(0, LOST),), data=True).put == ()


def test_members_on_lost_nodes_wait_for_all_others() -> None:
    members = (a_member(0, LOST), new(1, 1, STARTING), new(2, 2))

    assert decision_of(rolling(update=TWO), members, data=True).put == ()


def test_data_of_the_stable_revision_also_requires_in_place() -> None:
    templates = {1: a_template("nginx:1", data=True), 2: a_template("nginx:2")}

    decision = decision_of(rolling(), members_of(3), templates=templates)

    assert puts(decision) == [(0, 0, 2)]


def test_a_given_order_is_used() -> None:
    in_place = UpdatePolicy(order=UpdateOrder.IN_PLACE)

    assert puts(decision_of(rolling(update=in_place), members_of(3))) == [(0, 0, 2)]


def test_a_rollout_is_complete_when_every_index_has_passed() -> None:
    decision = decision_of(rolling(), tuple(new(number, number) for number in range(3)))

    assert decision.record is not None
    assert (after(decision).phase, decision.record.stable) == (Phase.STEADY, 2)
    assert kinds(decision) == [EventKind.ROLLOUT_COMPLETED]
    assert decision.events[0].message == "revision 2 on 3 members"


def test_a_member_on_a_lost_node_does_not_prevent_completion() -> None:
    decision = decision_of(rolling(), (new(0, 0), new(1, 1), new(2, 2, LOST)))

    assert after(decision).phase is Phase.STEADY


def test_a_revision_that_no_member_has_proven_is_not_stable() -> None:
    decision = decision_of(rolling(1), (new(0, 0, LOST),))

    assert after(decision).phase is Phase.ROLLING


def test_a_rollout_without_members_ends_and_proves_nothing() -> None:
    decision = decision_of(rolling(0))

    assert decision.record is not None
    assert (after(decision).phase, decision.record.stable) == (Phase.STEADY, 1)
    assert decision.events == ()


def test_a_set_that_gets_members_again_proves_its_revision_in_steps() -> None:
    decision = decision_of(a_set(2, target=2, stable=1), data=True)

    assert after(decision).phase is Phase.ROLLING
    assert puts(decision) == [(0, 0, 2), (1, 1, 1)]


def test_a_steady_set_with_an_outdated_member_updates_it() -> None:
    decision = decision_of(a_set(2, target=2, stable=2), (new(0, 0), a_member(1)))

    assert after(decision).phase is Phase.ROLLING
    assert puts(decision) == [(2, 1, 2)]


@pytest.mark.parametrize(
    "failed",
    [
        new(3, 0, UNHEALTHY, reason="HTTP 500"),
        new(3, 0, FAILED, final=True, reason="HTTP 500"),
        new(3, 0, STARTING, restarts=3, reason="HTTP 500"),
    ],
)
def test_a_failed_member_rolls_the_set_back(failed: MemberState) -> None:
    decision = decision_of(rolling(), (*members_of(3), failed))

    assert decision.record is not None
    assert (decision.record.target, decision.record.stable) == (1, 1)
    assert kinds(decision)[0] is EventKind.ROLLOUT_ROLLED_BACK
    assert after(decision).rolled_back_from == 2
    assert after(decision).reason.endswith("HTTP 500")
    assert decision.delete == ("web-3",)
    assert decision.rule == "gate-failed"


def test_a_rollback_that_only_deletes_is_complete_at_once() -> None:
    decision = decision_of(rolling(), (*members_of(3), new(3, 0, UNHEALTHY)))

    assert after(decision).phase is Phase.STEADY
    assert kinds(decision) == [EventKind.ROLLOUT_ROLLED_BACK, EventKind.ROLLOUT_COMPLETED]


def test_a_rollback_in_place_is_a_rollout_to_the_stable_revision() -> None:
    members = (new(0, 0), new(1, 1, UNHEALTHY), a_member(2))

    decision = decision_of(rolling(), members, data=True)

    assert after(decision).phase is Phase.ROLLING_BACK
    assert puts(decision) == [(1, 1, 1)]


def test_a_member_that_fails_after_it_has_passed_fails_the_rollout() -> None:
    members = (new(3, 0, UNHEALTHY, since=-5), a_member(1), a_member(2))

    assert kinds(decision_of(rolling(), members))[0] is EventKind.ROLLOUT_ROLLED_BACK


def test_a_failure_of_another_revision_does_not_fail_the_rollout() -> None:
    members = (new(0, 0, STARTING), a_member(1, UNHEALTHY), a_member(2, FAILED, final=True))

    assert after(decision_of(rolling(), members)).phase is Phase.ROLLING


def test_a_lost_member_does_not_fail_the_rollout() -> None:
    members = (new(3, 0, LOST, since=-9999), *members_of(3))

    assert after(decision_of(rolling(), members)).phase is Phase.ROLLING


def test_a_failed_member_that_is_surplus_does_not_fail_the_rollout() -> None:
    members = (*members_of(3), new(5, 3, UNHEALTHY))

    decision = decision_of(rolling(), members)

    assert after(decision).phase is Phase.ROLLING
    assert decision.delete == ("web-5",)


def test_a_failed_first_deployment_pauses() -> None:
    record = a_set(2, phase=Phase.ROLLING, target=1, stable=0)
    members = (a_member(0), a_member(1, UNHEALTHY, since=-5, changed=-30))

    decision = decision_of(record, members)

    assert (after(decision).phase, after(decision).resumes_as) == (Phase.PAUSED, Phase.ROLLING)
    assert after(decision).reason == "web-1: unhealthy"
    assert kinds(decision) == [EventKind.ROLLOUT_PAUSED]


def test_a_failure_pauses_if_the_policy_says_so() -> None:
    record = rolling(update=UpdatePolicy(on_failure=OnFailure.PAUSE))

    decision = decision_of(record, (*members_of(3), new(3, 0, UNHEALTHY)))

    assert decision.record is not None
    assert (after(decision).phase, decision.record.target) == (Phase.PAUSED, 2)
    assert decision.delete == ()


def test_a_rollback_that_fails_pauses() -> None:
    record = a_set(2, phase=Phase.ROLLING_BACK, target=1, stable=1)
    members = (a_member(0), a_member(1, UNHEALTHY, since=-5, changed=-30))

    decision = decision_of(record, members)

    assert after(decision).phase is Phase.PAUSED
    assert after(decision).reason == "the rollback failed: web-1: unhealthy"


def test_an_undo_to_the_stable_revision_that_fails_pauses() -> None:
    record = a_set(2, phase=Phase.ROLLING, target=1, stable=1)
    members = (a_member(0), a_member(1, UNHEALTHY, since=-5, changed=-30))

    assert after(decision_of(record, members)).phase is Phase.PAUSED


def test_a_member_that_was_not_healthy_before_does_not_prevent_a_rollback() -> None:
    record = a_set(2, phase=Phase.ROLLING_BACK, target=1, stable=1)

    one = decision_of(record, (a_member(0), a_member(1, UNHEALTHY)))
    none = decision_of(record, (a_member(0, LOST), a_member(1, UNHEALTHY)))

    assert (after(one).phase, after(none).phase) == (Phase.STEADY, Phase.STEADY)


def test_a_rollback_removes_the_failed_revision_beside_a_lost_member() -> None:
    record = a_set(2, phase=Phase.ROLLING_BACK, target=1, stable=1)
    members = (a_member(0), a_member(1, LOST), new(2, 1, UNHEALTHY))

    decision = decision_of(record, members)

    assert decision.delete == ("web-2",)
    assert after(decision).phase is Phase.STEADY


def test_a_rollback_keeps_a_healthy_member_until_its_replacement_has_passed() -> None:
    record = a_set(1, phase=Phase.ROLLING_BACK, target=1, stable=1)

    decision = decision_of(record, (new(2, 0),))

    assert puts(decision) == [(0, 0, 1)]
    assert decision.delete == ()


def test_a_superseded_rollout_keeps_one_old_member_per_index() -> None:
    """Revision 3 supersedes 2: of index 0 the member with the stable revision stays."""
    record = rolling(2, target=3, stable=1)
    members = (a_member(0, since=-20), new(2, 0), a_member(1))

    decision = decision_of(record, members)

    assert decision.delete == ("web-2",)
    assert puts(decision) == [(3, 0, 3)]


def test_a_superseded_rollout_keeps_the_healthy_member() -> None:
    record = rolling(1, target=3, stable=1)
    members = (a_member(0, UNHEALTHY), new(2, 0))

    assert decision_of(record, members).delete == ("web-0",)


def test_a_paused_rollout_updates_no_member() -> None:
    record = rolling(rollout=Rollout(Phase.PAUSED, started_at=at(-60), reason="paused on request"))

    decision = decision_of(record, (*members_of(3), new(3, 0)))

    assert (decision.record, decision.put, decision.delete) == (record, (), ())
    assert decision.waits_for == "paused: paused on request"
    assert decision.rule == "paused"


def test_a_failure_does_not_roll_back_a_paused_rollout() -> None:
    decision = decision_of(rolling(phase=Phase.PAUSED), (*members_of(3), new(3, 0, UNHEALTHY)))

    assert after(decision).phase is Phase.PAUSED
    assert decision.events == ()


def test_scaling_works_while_a_rollout_is_paused() -> None:
    decision = decision_of(rolling(1, phase=Phase.PAUSED), members_of(2))

    assert decision.delete == ("web-1",)


def test_a_blocked_rollout_pauses_with_the_reason() -> None:
    started = at(-301)
    record = rolling(rollout=Rollout(Phase.ROLLING, started_at=started, progressed_at=started))
    members = (a_member(0), a_member(1), a_member(2, LOST))

    decision = decision_of(record, members, data=True)

    assert after(decision).phase is Phase.PAUSED
    assert after(decision).reason == (
        "nothing changed for 5m: only 2 of 3 members are healthy, 2 must remain"
    )
    assert decision.rule == "stalled"


def test_a_blocked_rollout_waits_for_the_deadline_first() -> None:
    members = (a_member(0), a_member(1), a_member(2, LOST))

    decision = decision_of(rolling(), members, data=True)

    assert after(decision).phase is Phase.ROLLING
    assert decision.wake_at == at(-60 + 300)


def test_a_waiting_member_is_not_a_blocked_rollout() -> None:
    record = rolling(rollout=Rollout(Phase.ROLLING, started_at=at(-900), progressed_at=at(-900)))

    decision = decision_of(record, (*members_of(3), new(3, 0, STARTING)))

    assert after(decision).phase is Phase.ROLLING
    assert decision.wake_at == at(-30 + 300)


def test_a_recent_change_of_an_updated_member_is_progress() -> None:
    record = rolling(rollout=Rollout(Phase.ROLLING, started_at=at(-900), progressed_at=at(-900)))

    old = (a_member(0), new(1, 1, since=-900), new(2, 2, since=-900))

    recent = decision_of(record, (*old, new(3, 0, LOST, since=-10)))
    stale = decision_of(record, (*old, new(3, 0, LOST, since=-310)))

    assert (after(recent).phase, after(stale).phase) == (Phase.ROLLING, Phase.PAUSED)


def test_a_change_by_the_rollout_is_progress() -> None:
    rollout = Rollout(Phase.ROLLING, started_at=at(-900), progressed_at=at(-10))
    members = (a_member(0), a_member(1), a_member(2, LOST))

    decision = decision_of(rolling(rollout=rollout), members, data=True)

    assert decision.wake_at == at(-10 + 300)


def test_progress_is_recorded() -> None:
    updated = decision_of(rolling(), members_of(3))
    passed = decision_of(rolling(), (*members_of(3), new(3, 0, since=-13)), data=True)

    assert after(updated).progressed_at == NOW
    assert after(passed).progressed_at == NOW  # the old member of the index is deleted


def test_progress_within_a_hundredth_of_the_deadline_is_not_recorded_again() -> None:
    rollout = Rollout(Phase.ROLLING, started_at=at(-900), progressed_at=at(-2))

    decision = decision_of(rolling(rollout=rollout), members_of(3))

    assert decision.put
    assert after(decision).progressed_at == at(-2)


def test_the_time_at_which_a_member_passed_is_recorded() -> None:
    members = (new(0, 0, since=-13), a_member(1), a_member(2, LOST))

    decision = decision_of(rolling(), members, data=True)

    assert decision.put == ()
    assert after(decision).progressed_at == at(-3)


def test_only_canary_members_are_updated_first() -> None:
    record = rolling(6, update=UpdatePolicy(canary=2, max_parallel=3))

    assert puts(decision_of(record, members_of(6))) == [(6, 0, 2), (7, 1, 2)]


def test_the_rollout_waits_for_a_promotion_when_the_canary_has_passed() -> None:
    record = rolling(update=UpdatePolicy(canary=1))

    decision = decision_of(record, (new(3, 0), a_member(1), a_member(2)))

    assert (after(decision).phase, after(decision).canary_since) == (Phase.CANARY, NOW)
    assert kinds(decision) == [EventKind.ROLLOUT_CANARY_READY]
    assert (decision.put, decision.wake_at) == ((), None)
    assert decision.waits_for == "promotion of revision 2"


def test_a_canary_that_was_healthy_for_long_enough_is_promoted() -> None:
    members = (new(3, 0), a_member(1), a_member(2))
    rollout = Rollout(Phase.CANARY, started_at=at(-99), canary_since=at(-59))

    early = decision_of(rolling(update=CANARY, rollout=rollout), members)
    due = decision_of(
        rolling(update=CANARY, rollout=replace(rollout, canary_since=at(-60))), members
    )

    assert (early.wake_at, early.waits_for) == (at(1), "promotion of revision 2, in 1s")
    assert (after(due).phase, after(due).promoted) == (Phase.ROLLING, True)
    assert puts(due) == [(0, 1, 2)]
    assert kinds(due) == [EventKind.ROLLOUT_PROMOTED]


def test_a_canary_that_is_not_healthy_now_is_not_promoted() -> None:
    rollout = Rollout(Phase.CANARY, started_at=at(-99), canary_since=at(-60))
    members = (new(3, 0, LOST), a_member(1), a_member(2))

    decision = decision_of(rolling(update=CANARY, rollout=rollout), members)

    assert after(decision).phase is Phase.CANARY
    assert decision.wake_at is None
    assert decision.waits_for == "promotion of revision 2, until its canary members are healthy"


def test_a_canary_that_fails_is_rolled_back() -> None:
    record = rolling(phase=Phase.CANARY, update=UpdatePolicy(canary=1))

    decision = decision_of(record, (new(3, 0, UNHEALTHY), a_member(1), a_member(2)))

    assert kinds(decision)[0] is EventKind.ROLLOUT_ROLLED_BACK


def test_a_canary_waits_for_a_user_without_limit() -> None:
    rollout = Rollout(Phase.CANARY, started_at=at(-9999), canary_since=at(-9999))
    record = rolling(update=UpdatePolicy(canary=1), rollout=rollout)

    decision = decision_of(record, (new(3, 0), a_member(1), a_member(2)))

    assert after(decision).phase is Phase.CANARY


def test_a_policy_without_canary_ends_the_wait() -> None:
    record = rolling(phase=Phase.CANARY)

    decision = decision_of(record, (new(3, 0), a_member(1), a_member(2)))

    assert after(decision).phase is Phase.ROLLING
    assert puts(decision) == [(0, 1, 2)]


def test_neither_a_first_deployment_nor_a_rollback_has_a_canary() -> None:
    first = a_set(2, phase=Phase.ROLLING, target=1, stable=0, update=UpdatePolicy(canary=1))
    back = a_set(2, phase=Phase.ROLLING_BACK, update=UpdatePolicy(canary=1, max_parallel=2))

    assert puts(decision_of(first)) == [(0, 0, 1), (1, 1, 1)]
    started = (a_member(0), a_member(1, STARTING, since=-5))
    assert after(decision_of(first, started)).phase is Phase.ROLLING
    assert puts(decision_of(back, (new(2, 0), new(3, 1)))) == [(0, 0, 1), (1, 1, 1)]


def test_lost_members_do_not_get_the_revision_of_a_canary() -> None:
    record = rolling(3, update=UpdatePolicy(canary=2))
    members = (new(0, 0), a_member(1, LOST), a_member(2))

    assert decision_of(record, members, data=True).put == ()


def test_a_deleted_member_with_the_target_revision_still_counts_as_being_updated() -> None:
    leaving = changed(new(3, 0, DELETING), changed_at=at(-10))

    decision = decision_of(rolling(2), (*members_of(2), leaving))

    assert decision.put == ()
    assert decision.waits_for == "web-3: is being deleted"


def test_a_deletion_that_takes_too_long_does_not_block_the_rollout() -> None:
    leaving = changed(new(3, 0, DELETING), changed_at=at(-300))

    assert puts(decision_of(rolling(2), (*members_of(2), leaving))) == [(2, 0, 2)]


def test_times_from_a_clock_that_was_ahead_are_replaced_by_now() -> None:
    ahead = at(3600)
    record = rolling(rollout=Rollout(Phase.ROLLING, started_at=ahead, progressed_at=ahead))

    decision = decision_of(record, (*members_of(3), new(3, 0, STARTING)))

    assert decision.rule == "clock"
    assert (after(decision).started_at, after(decision).progressed_at) == (NOW, NOW)
    assert decision.wake_at == at(300)


def test_a_member_whose_state_is_unknown_is_not_updated_while_too_few_others_are_healthy() -> None:
    """Its node cannot read its state: it may be one of the healthy ones."""
    record = rolling(update=UpdatePolicy(order=UpdateOrder.IN_PLACE))
    unknown = [a_member(number, MemberHealth.UNKNOWN) for number in (0, 1)]

    decision = decision_of(record, (*unknown, a_member(2)))

    assert decision.put == ()
    assert decision.waits_for == "only 1 of 3 members are healthy, 2 are required"


def test_a_member_whose_state_is_unknown_is_updated_before_healthy_ones() -> None:
    record = rolling(update=UpdatePolicy(order=UpdateOrder.IN_PLACE))

    decision = decision_of(record, (a_member(0), a_member(1), a_member(2, MemberHealth.UNKNOWN)))

    assert puts(decision) == [(2, 2, 2)]
