"""Selection of recorded actions."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from persys.core.agent.report import select_actions
from persys.model.action import Action, ActionKind, ActionState
from persys.model.ids import ActionId, WorkloadId

AT = datetime(2030, 1, 1, tzinfo=UTC)

histories = st.lists(
    st.builds(
        Action,
        id=st.uuids().map(lambda number: ActionId(str(number))),
        workload_id=st.sampled_from([WorkloadId("a"), WorkloadId("b")]),
        kind=st.sampled_from(ActionKind),
        state=st.sampled_from(ActionState),
        created_at=st.just(AT),
    ),
    max_size=20,
)


@given(histories, st.integers(0, 25), st.booleans())
def test_a_limit_keeps_the_newest(history: list[Action], limit: int, newest_first: bool) -> None:
    found = select_actions(history, limit=limit, newest_first=newest_first)

    newest = history[-limit:] if limit else history
    assert found == (newest[::-1] if newest_first else newest)


@given(histories)
def test_every_filter_returns_only_matching_actions(history: list[Action]) -> None:
    found = select_actions(history, workload_id="a", kind="DELETE_WORKLOAD", state="Failed")

    assert all(
        (action.workload_id, action.kind, action.state)
        == ("a", ActionKind.DELETE, ActionState.FAILED)
        for action in found
    )
    assert select_actions(history) == history
