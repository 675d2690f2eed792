"""Which node pools are refused, and with which text."""

import pytest

from nodepool_builders import SMALL, a_pool
from persys.core.nodepools.checks import check_pool
from persys.errors import InvalidError
from persys.model.nodepool import MachineSize, NodePool, PoolId, Software
from persys.model.placement import Resources


def test_a_valid_pool_is_accepted() -> None:
    check_pool(a_pool(), "home")


@pytest.mark.parametrize(
    ("pool", "field"),
    [
        (a_pool(pool_id=PoolId("Burst")), "pool_id"),
        (a_pool(pool_id=PoolId("a" * 40)), "pool_id"),
        (a_pool(provider=""), "provider"),
        (a_pool(sizes=()), "sizes"),
        (a_pool(sizes=(SMALL, SMALL)), "sizes"),
        (a_pool(sizes=(MachineSize("x", Resources(0, 1)),)), "sizes.resources"),
        (a_pool(sizes=(MachineSize("x", Resources(1, 1), -1.0),)), "sizes.hour_price"),
        (a_pool(min_machines=6), "min"),
        (a_pool(max_machines=1001), "max"),
        (a_pool(spend_per_hour_max=float("nan")), "spend_per_hour_max"),
        (a_pool(spend_per_hour_max=0.05), "spend_per_hour_max"),
        (a_pool(min_machines=3, spend_per_hour_max=0.25), "spend_per_hour_max"),
        (a_pool(idle_after_seconds=10), "idle_after"),
        (a_pool(provision_deadline_seconds=0), "provision_deadline"),
        (a_pool(tier=-1), "tier"),
        (a_pool(labels={"node.id": "x"}), "labels"),
        (a_pool(taints=frozenset({""})), "taints"),
        (a_pool(software=Software("ftp://x", "a" * 64)), "software.url"),
        (a_pool(software=Software("https://x", "abc")), "software.sha256"),
    ],
)
def test_an_invalid_pool_is_refused_with_its_field(pool: NodePool, field: str) -> None:
    with pytest.raises(InvalidError) as refused:
        check_pool(pool, "a-cluster-with-a-long-name")

    assert refused.value.field == field
