"""The services of a cluster with one scheduler."""

import pytest

from shells.scheduler.harness import Cluster
from shells.scheduler.services.calls_of_services import ServiceCalls


@pytest.fixture
def services(cluster: Cluster) -> ServiceCalls:
    return ServiceCalls(cluster)
