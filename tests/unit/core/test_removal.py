"""For how long a removed node's certificates are refused, and which."""

from datetime import UTC, datetime, timedelta

from persys.core.removal import REMEMBERED, is_void, outdated
from persys.model.ids import NodeId
from persys.model.removal import Removal

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SECOND = timedelta(seconds=1)
GONE = Removal(NodeId("n1"), NOW)


def test_who_was_let_in_until_the_removal_is_out_and_who_came_later_is_in() -> None:
    assert is_void(GONE, NOW - SECOND)
    assert is_void(GONE, NOW)
    assert not is_void(GONE, NOW + SECOND)
    assert not is_void(None, NOW)


def test_a_removal_is_remembered_until_no_certificate_from_before_can_be_valid() -> None:
    assert outdated([GONE], NOW + REMEMBERED) == []
    assert outdated([GONE], NOW + REMEMBERED + SECOND) == [GONE]
    assert timedelta(days=90) < REMEMBERED
