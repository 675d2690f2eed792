"""What users change in a set."""

import pytest
from msgspec.structs import replace

from builders import a_workload
from persys.core.sets import changes
from persys.core.sets.changes import SetChange, Unchanged
from persys.errors import InvalidError, NotFoundError, RefusedError
from persys.model.event import EventKind
from persys.model.sets import (
    Phase,
    Rollout,
    ScalePolicy,
    SetRevision,
    Template,
    UpdatePolicy,
    WorkloadSet,
)
from persys.model.spec import ComposeSpec, ContainerSpec
from persys.model.workload import Desired, Membership
from set_builders import NOW, VOLUME, WEB, a_set, a_template, an_apply, at, record_of

ONE = a_template("nginx:1")
TWO = a_template("nginx:2")
CPU = ScalePolicy(2, 5, cpu_percent=70)


def applied(
    old: WorkloadSet | None,
    template: Template = ONE,
    templates: dict[int, Template] | None = None,
    **request: object,
) -> SetChange | Unchanged:
    known = {1: ONE} if templates is None else templates
    return changes.apply(old, an_apply(template, **request), known, now=NOW, caller="user/ann")


def kinds_of(change: SetChange | Unchanged) -> list[EventKind]:
    assert isinstance(change, SetChange)
    return [event.kind for event in change.events]


def test_a_new_set_starts_its_first_rollout() -> None:
    change = applied(None, templates={}, replicas=3)

    assert isinstance(change, SetChange)
    record = change.record
    assert (record.replicas, record.target, record.stable, record.revisions) == (3, 1, 0, (1,))
    assert record.rollout == Rollout(Phase.ROLLING, started_at=NOW)
    assert change.revision == SetRevision(WEB, 1, ONE, NOW, "user/ann")
    assert kinds_of(change) == [EventKind.SET_CREATED]


def test_a_new_set_has_one_replica_by_default() -> None:
    assert record_of(applied(None)).replicas == 1
    assert record_of(applied(None, every_node=True)).replicas == 0
    assert record_of(applied(None, scale=CPU)).replicas == 2


def test_a_set_that_is_created_stopped_has_no_rollout() -> None:
    record = record_of(applied(None, desired=Desired.STOPPED))

    assert (record.desired, record.rollout.phase) == (Desired.STOPPED, Phase.STEADY)


def test_an_invalid_set_is_refused() -> None:
    with pytest.raises(InvalidError, match="max_parallel"):
        applied(None, update=UpdatePolicy(max_parallel=0))


def test_a_new_set_replaces_the_workload_with_its_id() -> None:
    change = changes.apply(None, an_apply(), {}, now=NOW, existing=a_workload())

    assert record_of(change).replaces == "web"


def test_a_workload_that_is_being_deleted_is_not_replaced() -> None:
    gone = a_workload(desired=Desired.DELETED)

    assert record_of(changes.apply(None, an_apply(), {}, now=NOW, existing=gone)).replaces == ""


def test_a_workload_with_data_is_not_replaced() -> None:
    existing = a_workload(spec=ContainerSpec("db", managed_volumes=(VOLUME,)))

    with pytest.raises(RefusedError, match="web has data"):
        changes.apply(None, an_apply(), {}, now=NOW, existing=existing)


def test_a_member_of_another_set_is_not_replaced() -> None:
    existing = replace(a_workload(), membership=Membership("we", index=0, number=0))

    with pytest.raises(RefusedError, match="web is a member of we"):
        changes.apply(None, an_apply(), {}, now=NOW, existing=existing)


def test_members_that_a_lost_set_has_left_do_not_have_the_first_revision() -> None:
    change = changes.apply(None, an_apply(), {}, now=NOW, members_revision=7)

    record = record_of(change)
    assert (record.target, record.revisions) == (8, (8,))


def test_deleting_by_apply_needs_a_set() -> None:
    with pytest.raises(NotFoundError):
        applied(None, desired=Desired.DELETED)
    assert record_of(applied(a_set(), desired=Desired.DELETED)).desired is Desired.DELETED


def test_the_same_set_is_unchanged() -> None:
    old = a_set()

    assert applied(old) == Unchanged(old)
    assert applied(old, replicas=3) == Unchanged(old)


def test_a_new_template_starts_a_rollout() -> None:
    change = applied(a_set(), TWO)

    assert isinstance(change, SetChange)
    record = change.record
    assert (record.target, record.stable, record.revisions) == (2, 1, (1, 2))
    assert record.rollout == Rollout(Phase.ROLLING, started_at=NOW)
    assert change.revision == SetRevision(WEB, 2, TWO, NOW, "user/ann")
    assert kinds_of(change) == [EventKind.SET_UPDATED, EventKind.ROLLOUT_STARTED]


def test_a_new_template_during_a_rollout_supersedes_it_and_stable_stays() -> None:
    rolling = a_set(phase=Phase.CANARY, target=2, stable=1)

    record = record_of(applied(rolling, a_template("nginx:3"), {1: ONE, 2: TWO}))

    assert (record.target, record.stable) == (3, 1)
    assert record.rollout == Rollout(Phase.ROLLING, started_at=NOW)


def test_a_new_template_ends_a_pause() -> None:
    paused = a_set(phase=Phase.PAUSED, target=2, stable=1)

    record = record_of(applied(paused, a_template("nginx:3"), {1: ONE, 2: TWO}))

    assert record.rollout.phase is Phase.ROLLING


def test_a_stored_template_gets_its_number_again() -> None:
    change = applied(a_set(target=2, stable=2), ONE, {1: ONE, 2: TWO})

    assert isinstance(change, SetChange)
    assert (change.record.target, change.record.revisions) == (1, (1, 2))
    assert change.revision is None


def test_the_same_template_does_not_end_a_pause() -> None:
    paused = a_set(phase=Phase.PAUSED, target=2, stable=1)

    assert applied(paused, TWO, {1: ONE, 2: TWO}) == Unchanged(paused)


def test_a_changed_policy_continues_the_rollout() -> None:
    rolling = a_set(phase=Phase.ROLLING, target=2, stable=1)

    change = applied(rolling, TWO, {1: ONE, 2: TWO}, update=UpdatePolicy(max_parallel=2))

    assert record_of(change).rollout == rolling.rollout
    assert kinds_of(change) == [EventKind.SET_UPDATED]


def test_a_new_template_of_a_stopped_set_starts_no_rollout() -> None:
    record = record_of(applied(a_set(desired=Desired.STOPPED), TWO))

    assert (record.target, record.rollout.phase) == (2, Phase.STEADY)


def test_only_ten_revisions_are_kept_and_the_stable_one_is_one_of_them() -> None:
    templates = {number: a_template(f"nginx:{number}") for number in range(1, 11)}
    old = replace(a_set(target=10, stable=1), revisions=tuple(range(1, 11)))

    change = applied(old, a_template("nginx:11"), templates)

    assert isinstance(change, SetChange)
    assert change.dropped == (2,)
    assert change.record.revisions == (1, *range(3, 12))


def test_the_type_of_a_set_does_not_change() -> None:
    with pytest.raises(InvalidError, match="from container to compose"):
        applied(a_set(), a_template(spec=ComposeSpec()))


def test_a_set_with_replicas_does_not_become_one_per_node() -> None:
    with pytest.raises(InvalidError, match="every"):
        applied(a_set(), every_node=True)


def test_a_file_does_not_reset_the_replicas_of_an_automatically_scaled_set() -> None:
    old = a_set(5, scale=CPU)

    assert applied(old, replicas=2, scale=CPU) == Unchanged(old)


def test_new_limits_of_automatic_scaling_apply_at_once() -> None:
    assert record_of(applied(a_set(9), scale=CPU)).replicas == 5
    assert record_of(applied(a_set(1), scale=CPU)).replicas == 2
    assert record_of(applied(a_set(3), scale=CPU, replicas=4)).replicas == 4


def test_replicas_in_a_file_are_within_the_limits_of_automatic_scaling() -> None:
    with pytest.raises(InvalidError, match="expected 2 to 5"):
        applied(a_set(3), scale=CPU, replicas=6)


def test_without_automatic_scaling_its_last_reason_is_dropped() -> None:
    old = a_set(scale=CPU, scaled_at=at(-60), scale_reason="cpu 90%")

    record = record_of(applied(old))

    assert (record.scale, record.scaled_at, record.scale_reason) == (None, None, "")


def test_a_set_that_is_being_deleted_is_not_changed() -> None:
    gone = a_set(desired=Desired.DELETED)

    with pytest.raises(RefusedError, match="being deleted"):
        applied(gone, TWO)
    with pytest.raises(RefusedError, match="being deleted"):
        changes.scale(gone, WEB, 5, now=NOW)


def test_scaling_changes_only_the_replicas() -> None:
    old = a_set(phase=Phase.PAUSED, target=2)

    change = changes.scale(old, WEB, 5, now=NOW)

    assert record_of(change) == replace(old, replicas=5, updated_at=NOW)
    assert kinds_of(change) == [EventKind.SET_SCALED]


def test_scaling_to_the_same_number_changes_nothing() -> None:
    assert changes.scale(a_set(), WEB, 3, now=NOW) == Unchanged(a_set())


def test_scaling_needs_a_set_with_replicas() -> None:
    with pytest.raises(NotFoundError, match="set not found: web"):
        changes.scale(None, WEB, 3, now=NOW)
    with pytest.raises(RefusedError, match="one member per node"):
        changes.scale(a_set(0, every_node=True), WEB, 3, now=NOW)


def test_scaling_by_hand_stays_within_the_limits_of_automatic_scaling() -> None:
    assert record_of(changes.scale(a_set(scale=CPU), WEB, 5, now=NOW)).replicas == 5
    with pytest.raises(InvalidError, match="expected 2 to 5"):
        changes.scale(a_set(scale=CPU), WEB, 6, now=NOW)


def test_automatic_scaling_records_when_and_why() -> None:
    record = record_of(changes.autoscaled(a_set(scale=CPU), 5, "cpu 90%", now=NOW))

    assert (record.replicas, record.scaled_at, record.scale_reason) == (5, NOW, "cpu 90%")


def test_automatic_scaling_does_not_change_a_stopped_set() -> None:
    stopped = a_set(scale=CPU, desired=Desired.STOPPED)

    assert changes.autoscaled(stopped, 5, "cpu 90%", now=NOW) == Unchanged(stopped)


@pytest.mark.parametrize("phase", [Phase.ROLLING, Phase.CANARY, Phase.ROLLING_BACK])
def test_a_paused_rollout_resumes_with_its_phase(phase: Phase) -> None:
    paused = record_of(changes.pause(a_set(phase=phase, target=2), WEB, now=at(-10)))
    resumed = record_of(changes.resume(paused, WEB, now=NOW))

    assert (paused.rollout.phase, paused.rollout.reason) == (Phase.PAUSED, "paused on request")
    assert (resumed.rollout.phase, resumed.rollout.resumes_as) == (phase, Phase.STEADY)
    assert (resumed.rollout.resumed_at, resumed.rollout.reason) == (NOW, "")


def test_a_resumed_canary_is_observed_for_the_whole_time_again() -> None:
    rollout = Rollout(Phase.PAUSED, canary_since=at(-999), resumes_as=Phase.CANARY)

    resumed = record_of(changes.resume(a_set(rollout=rollout), WEB, now=NOW))

    assert resumed.rollout.canary_since == NOW


def test_pausing_twice_and_resuming_twice_change_nothing() -> None:
    paused, rolling = a_set(phase=Phase.PAUSED), a_set(phase=Phase.ROLLING)

    assert changes.pause(paused, WEB, now=NOW) == Unchanged(paused)
    assert changes.resume(rolling, WEB, now=NOW) == Unchanged(rolling)


def test_a_steady_set_is_neither_paused_nor_resumed() -> None:
    with pytest.raises(RefusedError, match="no rollout in progress"):
        changes.pause(a_set(), WEB, now=NOW)
    with pytest.raises(RefusedError, match="no paused rollout"):
        changes.resume(a_set(), WEB, now=NOW)


def test_a_promotion_continues_the_rollout() -> None:
    change = changes.promote(a_set(phase=Phase.CANARY, target=2), WEB, now=NOW)

    rollout = change.record.rollout
    assert (rollout.phase, rollout.promoted, rollout.progressed_at) == (Phase.ROLLING, True, NOW)
    assert kinds_of(change) == [EventKind.ROLLOUT_PROMOTED]


@pytest.mark.parametrize(
    ("phase", "text"), [(Phase.ROLLING, "its phase is Rolling"), (Phase.PAUSED, "resume it first")]
)
def test_only_a_waiting_canary_is_promoted(phase: Phase, text: str) -> None:
    with pytest.raises(RefusedError, match=text):
        changes.promote(a_set(phase=phase, target=2), WEB, now=NOW)


def undone(old: WorkloadSet, revision: int = 0) -> WorkloadSet:
    return changes.undo(old, WEB, revision, now=NOW).record


def test_undo_of_a_rollout_returns_to_the_stable_revision() -> None:
    record = undone(a_set(phase=Phase.ROLLING, target=3, stable=2))

    assert (record.target, record.stable) == (2, 2)
    assert record.rollout.phase is Phase.ROLLING


def test_undo_of_a_steady_set_returns_to_the_revision_before() -> None:
    assert undone(replace(a_set(target=4, stable=4), revisions=(1, 2, 4, 5))).target == 2


def test_undo_to_a_revision_does_not_wait_for_a_promotion() -> None:
    old = a_set(target=3, stable=3, update=UpdatePolicy(canary=1))

    record = undone(old, 1)

    assert (record.target, record.rollout.promoted) == (1, True)


def test_undo_to_an_unknown_revision_names_the_known_ones() -> None:
    with pytest.raises(NotFoundError, match="9 of set web, which has 1, 3"):
        undone(a_set(target=3), 9)


def test_undo_to_the_target_is_refused() -> None:
    with pytest.raises(RefusedError, match="is the target"):
        undone(a_set(target=3, stable=3), 3)


def test_undo_of_the_first_revision_is_refused() -> None:
    with pytest.raises(RefusedError, match="no revision before 1"):
        undone(a_set())


@pytest.mark.parametrize(
    "rollout", [Rollout(Phase.ROLLING_BACK), Rollout(Phase.PAUSED, resumes_as=Phase.ROLLING_BACK)]
)
def test_undo_of_a_rollback_needs_a_revision(rollout: Rollout) -> None:
    rolling_back = a_set(target=2, stable=2, rollout=rollout)

    with pytest.raises(RefusedError, match="name a revision"):
        undone(rolling_back)
    assert undone(rolling_back, 1).target == 1


def test_stop_and_start_change_the_desired_state() -> None:
    stopped = record_of(changes.set_desired(a_set(), WEB, Desired.STOPPED, now=NOW))

    assert stopped.desired is Desired.STOPPED
    assert changes.set_desired(stopped, WEB, Desired.STOPPED, now=NOW) == Unchanged(stopped)
    started = record_of(changes.set_desired(stopped, WEB, Desired.RUNNING, now=NOW))
    assert started.desired is Desired.RUNNING


def test_deleting_twice_changes_nothing() -> None:
    change = changes.set_desired(a_set(), WEB, Desired.DELETED, now=NOW)

    gone = record_of(change)
    assert kinds_of(change) == [EventKind.SET_DELETE_ASKED]
    assert changes.delete(gone, WEB, now=NOW) == Unchanged(gone)
    with pytest.raises(NotFoundError):
        changes.delete(None, WEB, now=NOW)
