"""Orders without a response."""

import pytest

from builders import NOON, a_dispatch, after
from persys.core.reconcile.dispatch import Dispatch, answered, unanswered


def test_an_unresponsive_node_is_retried_with_back_off_and_never_given_up() -> None:
    dispatch, delays = a_dispatch(answered=False), []
    for _ in range(200):
        dispatch = unanswered(dispatch, "no route to host", now=NOON)
        assert dispatch.resend_at is not None
        delays.append((dispatch.resend_at - NOON).total_seconds())

    assert delays[:5] == [1, 2, 4, 8, 15]
    assert set(delays[5:]) == {15}


@pytest.mark.parametrize(
    ("dispatch", "in_flight"),
    [
        (a_dispatch(answered=False), True),
        (a_dispatch(answered=True), False),
        (a_dispatch(resend_at=after(1)), False),
    ],
    ids=["no answer yet", "answered", "got no answer"],
)
def test_a_dispatch_is_in_flight_until_a_response_or_a_definite_failure(
    dispatch: Dispatch, in_flight: bool
) -> None:
    assert dispatch.in_flight is in_flight


def test_an_answer_ends_the_trouble() -> None:
    silent = unanswered(a_dispatch(answered=False), "no route to host", now=NOON)
    received = answered(silent, now=after(3))

    assert (received.answered_at, received.sent_at) == (after(3), NOON)
    assert (received.unanswered_count, received.resend_at, received.problem) == (0, None, "")
