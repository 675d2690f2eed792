"""Events, actions and suggestions in the control contract."""

from datetime import UTC, datetime

import pytest

from persys.errors import InvalidError
from persys.model.action import Action, ActionKind, ActionState, HistoryEntry
from persys.model.event import Event, EventKind, NumberedEvent
from persys.model.ids import ActionId, NodeId, WorkloadId
from persys.model.workload import SuggestedAction, Suggestion, SuggestionDecision
from persys.wire.control.messages import sighting_message
from persys.wire.control.views import (
    ID_LENGTH_MAX,
    TEXT_LENGTH_MAX,
    decision_message,
    event_kinds,
    event_message,
    suggestion,
)
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.stored import records
from persys.wire.times import EPOCH

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_an_event_is_shown_with_all_its_fields() -> None:
    event = Event(NOON, EventKind.WORKLOAD_PLACED, "most room", "web", "n1", "r1", 3)

    view = event_message(NumberedEvent(7, event))

    assert (view.sequence, view.kind, view.message) == (7, "WorkloadPlaced", "most room")
    assert (view.workload_id, view.node_id, view.revision_id, view.epoch) == ("web", "n1", "r1", 3)
    assert view.at.ToDatetime(tzinfo=UTC) == NOON


def test_kinds_are_read_in_any_case() -> None:
    assert event_kinds(["nodeREADY"]) == {EventKind.NODE_READY}


def test_an_unknown_kind_is_refused_with_the_known_kinds() -> None:
    with pytest.raises(InvalidError, match="WorkloadPlaced"):
        event_kinds(["Nonsense"])


@pytest.mark.parametrize("kind", EventKind)
def test_an_event_kind_is_stored_as_its_name(kind: EventKind) -> None:
    stored = records.encode(Event(NOON, kind))

    assert f'"{kind.value}"'.encode() in stored
    assert records.decode(stored, Event).kind is kind


def test_unset_times_are_not_shown() -> None:
    action = Action(
        ActionId("a"), WorkloadId("web"), ActionKind.APPLY, ActionState.RUNNING, EPOCH, None, NOON
    )

    view = sighting_message(HistoryEntry(NodeId("n1"), NOON, action))

    assert not view.HasField("created_at")
    assert not view.HasField("started_at")
    assert view.ended_at.ToDatetime(tzinfo=UTC) == NOON


def test_a_suggestion_is_truncated_to_the_limits_of_a_record() -> None:
    message = pb.AutomationSuggestion(
        suggestion_id="s1",
        target_workload="web",
        action_type=pb.AUTOMATION_ACTION_RETRY_WORKLOAD,
        reason="r" * 10_000,
    )

    found = suggestion(message)

    assert (found.id, found.target_workload) == ("s1", "web")
    assert found.action is SuggestedAction.RETRY_WORKLOAD
    assert len(found.reason) == TEXT_LENGTH_MAX


@pytest.mark.parametrize("name", ["", "s" * (ID_LENGTH_MAX + 1)], ids=["empty", "too long"])
def test_a_suggestion_needs_an_id_of_some_length(name: str) -> None:
    with pytest.raises(InvalidError) as refused:
        suggestion(pb.AutomationSuggestion(suggestion_id=name))

    assert refused.value.field == "suggestion_id"


def test_an_unknown_action_of_a_newer_client_is_none() -> None:
    message = pb.AutomationSuggestion(suggestion_id="s1")
    message.action_type = 99  # type: ignore[assignment]

    assert suggestion(message).action is None


def test_a_ruling_is_encoded_as_a_response_of_the_contract() -> None:
    response = decision_message(
        SuggestionDecision(Suggestion("s1"), accepted=False, decided_at=NOON, reason="no")
    )

    assert (response.accepted, response.decision, response.reason) == (False, "rejected", "no")
    assert response.decided_at.ToDatetime(tzinfo=UTC) == NOON
