"""The simulation with a node pool: real schedulers and agents, and a provider that fails."""

import pytest

from persys.sim.pool_world import POOL_ID
from persys.sim.run import run
from persys.sim.scenario.generate import POOL_SHAPE, draw

SEEDS = [6, *(pytest.param(seed, marks=pytest.mark.full) for seed in (1, 2, 3, 4, 5))]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_is_violated_with_a_node_pool(seed: int) -> None:
    outcome = run(draw(seed, POOL_SHAPE))

    assert outcome.violation is None, outcome.violation
    assert any(f"-{POOL_ID}-1" in str(line) for line in outcome.lines)
