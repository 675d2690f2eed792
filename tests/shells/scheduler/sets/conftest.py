"""The sets of a cluster with one scheduler."""

import pytest

from shells.scheduler.harness import Cluster
from shells.scheduler.sets.calls_of_sets import SetCalls


@pytest.fixture
def sets(cluster: Cluster) -> SetCalls:
    return SetCalls(cluster)
