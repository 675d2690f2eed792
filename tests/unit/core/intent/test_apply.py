"""How a user's request changes a workload."""

from dataclasses import replace

import pytest

from builders import NOON, WEB, a_workload, after
from persys.core.intent.apply import (
    Accepted,
    ApplyRequest,
    Unchanged,
    apply,
    change_desired,
    redeploy,
)
from persys.errors import InvalidError, NotFoundError, RefusedError
from persys.model.ids import Revision
from persys.model.placement import Resources, Rules
from persys.model.spec import ComposeSpec, ContainerSpec
from persys.model.workload import Desired

LATER = after(60)


def an_apply_request(
    *,
    desired: Desired | None = None,
    image: str = "nginx",
    revision: str = "r1",
    given: bool = False,
) -> ApplyRequest:
    return ApplyRequest(
        WEB, desired, ContainerSpec(image), Resources(100, 128), {}, Revision(revision), given
    )


def test_a_new_workload_is_running_by_default() -> None:
    created = apply(None, an_apply_request(), now=NOON)

    assert isinstance(created, Accepted)
    assert created.event == "WorkloadCreated"
    assert created.workload == a_workload()


def test_a_workload_can_be_created_stopped() -> None:
    created = apply(None, an_apply_request(desired=Desired.STOPPED), now=NOON)

    assert created.workload.desired is Desired.STOPPED


def test_the_same_spec_again_changes_nothing() -> None:
    old = a_workload()
    again = apply(old, an_apply_request(), now=LATER)

    assert isinstance(again, Unchanged)
    assert again.workload is old


def test_the_same_content_without_a_revision_keeps_the_revision_that_was_given() -> None:
    old = a_workload(revision="v7")
    again = apply(old, an_apply_request(revision="hash-of-it"), now=LATER)

    assert isinstance(again, Unchanged)
    assert again.workload.revision == "v7"


def test_the_same_content_under_a_new_given_revision_is_a_new_revision() -> None:
    changed = apply(
        a_workload(revision="v7"), an_apply_request(revision="v8", given=True), now=LATER
    )

    assert isinstance(changed, Accepted)
    assert changed.workload.revision == "v8"


def test_another_spec_is_an_update_that_keeps_when_it_was_created() -> None:
    changed = apply(a_workload(), an_apply_request(image="caddy", revision="r2"), now=LATER)

    assert isinstance(changed, Accepted)
    assert changed.event == "WorkloadUpdated"
    assert changed.workload.spec == ContainerSpec("caddy")
    assert (changed.workload.created_at, changed.workload.updated_at) == (NOON, LATER)


def test_a_given_revision_cannot_name_two_specs() -> None:
    with pytest.raises(
        InvalidError, match="'r1' is already used for another spec of web"
    ) as refusal:
        apply(a_workload(), an_apply_request(image="caddy", given=True), now=LATER)

    assert refusal.value.field == "revision_id"


def test_a_workload_cannot_change_its_type() -> None:
    request = replace(an_apply_request(revision="r2"), spec=ComposeSpec(yaml="services: {}"))
    with pytest.raises(
        InvalidError, match="the type of web cannot change from container to compose"
    ) as no:
        apply(a_workload(), request, now=LATER)

    assert no.value.field == "spec.type"


@pytest.mark.parametrize("desired", [None, Desired.RUNNING, Desired.STOPPED])
def test_a_workload_that_is_being_deleted_accepts_no_new_spec(desired: Desired | None) -> None:
    with pytest.raises(RefusedError, match="being deleted; try again when it is deleted"):
        apply(a_workload(desired=Desired.DELETED), an_apply_request(desired=desired), now=LATER)


def test_an_apply_without_a_desired_state_keeps_it() -> None:
    stopped = a_workload(desired=Desired.STOPPED)
    changed = apply(stopped, an_apply_request(image="caddy", revision="r2"), now=LATER)

    assert changed.workload.desired is Desired.STOPPED


def test_the_same_spec_with_another_desired_state_is_a_change() -> None:
    changed = apply(a_workload(), an_apply_request(desired=Desired.STOPPED), now=LATER)

    assert isinstance(changed, Accepted)
    assert changed.workload.desired is Desired.STOPPED
    assert changed.workload.revision == "r1"


def test_an_apply_with_desired_state_deleted_deletes_the_workload() -> None:
    gone = apply(
        a_workload(),
        an_apply_request(desired=Desired.DELETED, image="caddy", revision="r2"),
        now=LATER,
    )

    assert isinstance(gone, Accepted)
    assert gone.event == "WorkloadDeleteAsked"
    assert gone.workload.spec == ContainerSpec("nginx")


def test_nothing_is_created_to_be_deleted() -> None:
    with pytest.raises(NotFoundError):
        apply(None, an_apply_request(desired=Desired.DELETED), now=NOON)


@pytest.mark.parametrize("desired", list(Desired))
def test_a_workload_that_is_not_there_has_no_desired_state(desired: Desired) -> None:
    with pytest.raises(NotFoundError, match="workload not found: web"):
        change_desired(None, WEB, desired, now=NOON)


@pytest.mark.parametrize("desired", list(Desired))
def test_the_present_desired_state_changes_nothing(desired: Desired) -> None:
    assert isinstance(
        change_desired(a_workload(desired=desired), WEB, desired, now=LATER), Unchanged
    )


@pytest.mark.parametrize("desired", [Desired.RUNNING, Desired.STOPPED])
def test_a_delete_cannot_be_reverted(desired: Desired) -> None:
    with pytest.raises(RefusedError, match="being deleted"):
        change_desired(a_workload(desired=Desired.DELETED), WEB, desired, now=LATER)


@pytest.mark.parametrize(
    ("old", "new", "event"),
    [
        (Desired.RUNNING, Desired.STOPPED, "WorkloadStopAsked"),
        (Desired.STOPPED, Desired.RUNNING, "WorkloadStartAsked"),
        (Desired.RUNNING, Desired.DELETED, "WorkloadDeleteAsked"),
        (Desired.STOPPED, Desired.DELETED, "WorkloadDeleteAsked"),
    ],
)
def test_a_change_of_the_desired_state_keeps_the_spec_and_names_its_event(
    old: Desired, new: Desired, event: str
) -> None:
    changed = change_desired(a_workload(desired=old), WEB, new, now=LATER)

    assert isinstance(changed, Accepted)
    assert changed.event == event
    assert (changed.workload.desired, changed.workload.revision) == (new, "r1")


def test_new_rules_are_an_update_that_keeps_the_revision() -> None:
    old = a_workload(revision="v7")
    request = replace(an_apply_request(revision="hash-of-it"), rules=Rules(priority=90))
    changed = apply(old, request, now=LATER)

    assert isinstance(changed, Accepted)
    assert changed.workload.rules == Rules(priority=90)
    assert changed.workload.revision == "v7"
    assert isinstance(apply(changed.workload, request, now=LATER), Unchanged)


def test_rules_may_change_under_a_revision_that_was_given() -> None:
    request = replace(an_apply_request(given=True), rules=Rules(priority=90))

    assert apply(a_workload(), request, now=LATER).workload.revision == "r1"


def test_another_time_alone_is_another_content() -> None:
    request = replace(an_apply_request(revision="r2"), stop_after_seconds=60)
    changed = apply(a_workload(), request, now=LATER)

    assert (changed.workload.revision, changed.workload.stop_after_seconds) == ("r2", 60)
    with pytest.raises(InvalidError, match="is already used for another spec"):
        apply(a_workload(), replace(an_apply_request(given=True), stop_after_seconds=60), now=LATER)


@pytest.mark.parametrize(
    ("before", "after_"),
    [
        ("r1", "r1+2"),
        ("r1+2", "r1+3"),
        ("r1+9", "r1+10"),
        ("+2", "+2+2"),
        ("a+b", "a+b+2"),
        ("x" * 128, "x" * 100 + "+2"),
    ],
)
def test_a_workload_is_deployed_again_under_a_revision_that_counts(
    before: str, after_: str
) -> None:
    stopped = a_workload(revision=before, desired=Desired.STOPPED)

    again = redeploy(stopped, WEB, now=LATER)

    assert again.event == "WorkloadRedeployAsked"
    assert again.workload.revision == after_
    assert again.workload.spec == stopped.spec
    assert (again.workload.desired, again.workload.updated_at) == (Desired.RUNNING, LATER)


def test_applying_the_file_after_a_redeploy_changes_nothing() -> None:
    again = redeploy(a_workload(), WEB, now=LATER).workload

    assert apply(again, an_apply_request(), now=LATER) == Unchanged(again)


def test_a_missing_or_deleted_workload_is_not_redeployed() -> None:
    with pytest.raises(NotFoundError):
        redeploy(None, WEB, now=LATER)
    with pytest.raises(RefusedError, match="being deleted"):
        redeploy(a_workload(desired=Desired.DELETED), WEB, now=LATER)
