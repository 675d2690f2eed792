"""Whether a node is believed alive."""

import pytest

from persys.core.liveness import Phase, phase_of


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
