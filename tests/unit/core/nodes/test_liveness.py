"""Whether a node is alive, suspect or lost."""

import pytest

from persys.core.nodes import LEASE_LONGEST_SECONDS, Phase, lease_seconds, phase_of


@pytest.mark.parametrize(
    ("now", "phase"),
    [
        (0.0, Phase.ALIVE),
        (9.999, Phase.ALIVE),
        (10.0, Phase.SUSPECT),
        (14.999, Phase.SUSPECT),
        (15.0, Phase.LOST),
        (1e9, Phase.LOST),
    ],
)
def test_a_node_is_alive_for_its_lease_suspect_for_the_grace_then_lost(
    now: float, phase: Phase
) -> None:
    assert phase_of(lease_until=10, grace=5, now=now) is phase


def test_without_a_grace_a_node_is_lost_when_its_lease_ends() -> None:
    assert phase_of(lease_until=10, grace=0, now=10) is Phase.LOST


def test_a_lease_lasts_for_three_of_the_observed_intervals() -> None:
    assert lease_seconds(30, ()) == 30
    assert lease_seconds(30, (10,)) == 30
    assert lease_seconds(30, (60, 61, 60)) == 180
    assert lease_seconds(30, (10, 300, 10)) == 30
    assert lease_seconds(30, (0.1, 60)) == lease_seconds(30, (60, 0.1, 61)) == 180
    assert lease_seconds(30, (1000,)) == LEASE_LONGEST_SECONDS
