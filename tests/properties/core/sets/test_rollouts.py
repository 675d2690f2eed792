"""Sets at any interleaving of faults, commands of users and interrupted decisions.

The model of `set_model.py` checks each change: enough members stay healthy, an unproven revision does not
spread, ids are unique, and a second decision changes nothing.
"""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from examples import times
from persys.model.event import EventKind
from persys.model.sets import Phase
from set_model import Behaviour, Cluster

STEPS = 80
seeds = st.integers(0, 2**32)


@given(seed=seeds)
@settings(max_examples=times(2), deadline=None)
def test_no_interleaving_breaks_an_invariant_or_prevents_the_end_of_a_rollout(seed: int) -> None:
    cluster = Cluster(Random(seed))

    for _ in range(STEPS):
        cluster.step()
    cluster.calm()
    cluster.settle()

    rollout = cluster.record.rollout
    assert rollout.phase is not Phase.PAUSED or rollout.reason


@given(seed=seeds)
@settings(max_examples=times(1), deadline=None)
def test_losing_nodes_never_fails_a_good_revision(seed: int) -> None:
    cluster = Cluster(Random(seed), faults=False, behaviours=False)
    cluster.settle()

    cluster.apply_template(Behaviour.GOOD)
    for _ in range(STEPS):
        cluster.step()
        match cluster.random.randint(0, 5):
            case 0:
                cluster.lose_any()
            case 1:
                cluster.return_any()

    texts = [event.message for event in cluster.events if event.kind is EventKind.ROLLOUT_PAUSED]
    assert cluster.rollbacks == 0
    assert all(text.startswith("nothing changed") for text in texts)
