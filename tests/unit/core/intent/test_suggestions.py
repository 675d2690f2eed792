"""How a suggestion of an automation policy changes a workload."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from builders import NOON, a_workload, after
from persys.core.intent.apply import Accepted, Unchanged
from persys.core.intent.suggestions import (
    applied,
    applied_to_set,
    evaluate,
    evaluate_set,
    reason_for_set,
)
from persys.core.sets import changes
from persys.errors import InvalidError, RefusedError
from persys.model.event import EventKind
from persys.model.sets import ScalePolicy, SetId, WorkloadSet
from persys.model.workload import Desired, SuggestedAction, Suggestion

LATER = after(60)


def a_suggestion(
    action: SuggestedAction | None = SuggestedAction.SET_DESIRED_STATE, *, target: str = "web"
) -> Suggestion:
    return Suggestion("s1", target, action)


def test_a_desired_state_is_set_as_a_user_would() -> None:
    suggestion = a_suggestion()

    outcome = evaluate(suggestion, Desired.STOPPED, a_workload(), now=LATER)

    assert isinstance(outcome, Accepted)
    assert outcome.workload.desired is Desired.STOPPED
    assert applied(suggestion, outcome) == "set_desired_state=stopped"


def test_a_suggestion_that_is_already_met_changes_nothing() -> None:
    suggestion = a_suggestion()

    outcome = evaluate(suggestion, Desired.RUNNING, a_workload(), now=LATER)

    assert isinstance(outcome, Unchanged)
    assert applied(suggestion, outcome) == "none"


def test_a_delete_is_carried_out() -> None:
    suggestion = a_suggestion(SuggestedAction.DELETE_WORKLOAD)

    outcome = evaluate(suggestion, None, a_workload(), now=LATER)

    assert outcome.workload.desired is Desired.DELETED
    assert applied(suggestion, outcome) == "delete_workload"


def test_a_retry_keeps_the_intent_as_it_is() -> None:
    workload = a_workload()

    outcome = evaluate(a_suggestion(SuggestedAction.RETRY_WORKLOAD), None, workload, now=LATER)

    assert outcome == Accepted(workload, EventKind.WORKLOAD_RETRY_ASKED)


def test_a_workload_that_is_being_deleted_cannot_be_retried() -> None:
    to_delete = a_workload(desired=Desired.DELETED)

    with pytest.raises(RefusedError, match="is being deleted"):
        evaluate(a_suggestion(SuggestedAction.RETRY_WORKLOAD), None, to_delete, now=NOON)


def test_a_scale_suggestion_is_refused_with_an_alternative() -> None:
    with pytest.raises(InvalidError, match="apply a set with its id") as refused:
        evaluate(a_suggestion(SuggestedAction.SCALE_REPLICAS), None, a_workload(), now=NOON)

    assert refused.value.field == "action_type"


def a_set(replicas: int = 3, scale: ScalePolicy | None = None) -> WorkloadSet:
    return WorkloadSet(SetId("web"), replicas, 1, NOON, NOON, scale=scale)


@pytest.mark.parametrize(
    ("change", "replicas"), [({"desired_replicas": 5}, 5), ({"replica_delta": -3}, 0)]
)
def test_a_set_is_scaled_to_a_number_or_by_a_difference(
    change: dict[str, int], replicas: int
) -> None:
    suggestion = replace(a_suggestion(SuggestedAction.SCALE_REPLICAS), **change)

    outcome = evaluate_set(suggestion, a_set(), now=LATER)

    assert isinstance(outcome, changes.SetChange)
    assert outcome.record.replicas == replicas
    assert applied_to_set(outcome) == f"scale_replicas={replicas}"


def test_a_set_with_these_replicas_is_unchanged() -> None:
    suggestion = replace(a_suggestion(SuggestedAction.SCALE_REPLICAS), desired_replicas=3)

    assert applied_to_set(evaluate_set(suggestion, a_set(), now=LATER)) == "none"


@pytest.mark.parametrize(
    ("change", "replicas", "reason"),
    [
        ({"desired_replicas": 9}, 5, "replicas 9 is above max: limited to 5"),
        ({"replica_delta": -9}, 2, "replicas -6 is below min: limited to 2"),
        ({"desired_replicas": 4}, 4, ""),
        ({"desired_replicas": 3}, 3, "replicas is already 3"),
    ],
)
def test_a_suggestion_is_limited_by_the_automatic_scaling_of_the_set(
    change: dict[str, int], replicas: int, reason: str
) -> None:
    suggestion = replace(a_suggestion(SuggestedAction.SCALE_REPLICAS), **change)
    target = a_set(scale=ScalePolicy(2, 5))

    outcome = evaluate_set(suggestion, target, now=LATER)

    assert outcome.record.replicas == replicas
    assert reason_for_set(suggestion, target, outcome) == reason


def test_a_set_without_automatic_scaling_has_no_negative_replicas() -> None:
    suggestion = replace(a_suggestion(SuggestedAction.SCALE_REPLICAS), replica_delta=-9)

    with pytest.raises(InvalidError) as refused:
        evaluate_set(suggestion, a_set(), now=NOON)

    assert refused.value.field == "replicas"


@pytest.mark.parametrize(
    ("suggestion", "field"),
    [
        (a_suggestion(SuggestedAction.SCALE_REPLICAS), "desired_replicas"),
        (
            replace(
                a_suggestion(SuggestedAction.SCALE_REPLICAS), desired_replicas=4, replica_delta=1
            ),
            "desired_replicas",
        ),
        (a_suggestion(SuggestedAction.DELETE_WORKLOAD), "action_type"),
    ],
)
def test_a_set_is_only_scaled(suggestion: Suggestion, field: str) -> None:
    with pytest.raises(InvalidError) as refused:
        evaluate_set(suggestion, a_set(scale=ScalePolicy(1, 5)), now=NOON)

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("suggestion", "field"),
    [
        (a_suggestion(target=""), "target_workload"),
        (a_suggestion(None), "action_type"),
        (a_suggestion(), "desired_state"),
    ],
)
def test_an_invalid_suggestion_is_refused_with_its_field(
    suggestion: Suggestion, field: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        evaluate(suggestion, None, a_workload(), now=NOON)

    assert refused.value.field == field


def test_an_unknown_workload_is_refused_by_its_field() -> None:
    with pytest.raises(InvalidError, match="target_workload: workload not found: web"):
        evaluate(a_suggestion(SuggestedAction.DELETE_WORKLOAD), None, None, now=NOON)


def test_a_reason_does_not_make_a_suggestion_different() -> None:
    first = Suggestion("s1", "web", SuggestedAction.SET_DESIRED_STATE, "Stopped", reason="night")
    again = Suggestion("s1", "web", SuggestedAction.SET_DESIRED_STATE, "stopped", reason="late")
    other = Suggestion("s1", "web", SuggestedAction.SET_DESIRED_STATE, "running", reason="night")

    assert again.is_same_request_as(first)
    assert not other.is_same_request_as(first)


@given(
    st.none() | st.sampled_from(SuggestedAction),
    st.none() | st.sampled_from(Desired),
    st.sampled_from(Desired),
)
def test_a_suggestion_changes_only_the_desired_state(
    action: SuggestedAction | None, desired: Desired | None, now_desired: Desired
) -> None:
    before = a_workload(desired=now_desired)
    try:
        outcome = evaluate(a_suggestion(action), desired, before, now=LATER)
    except RefusedError:
        return  # which changes nothing

    assert (outcome.workload.id, outcome.workload.revision) == (before.id, before.revision)
    assert outcome.workload.spec == before.spec
    assert applied(a_suggestion(action), outcome)
