"""Pools on one file system share its capacity."""

from hypothesis import given
from hypothesis import strategies as st

from persys.core.agent.storage import LocalPool, as_pools

LOCAL = LocalPool("local", "local", 100, device=1)


def test_a_pool_on_the_same_file_system_is_not_counted_twice() -> None:
    local, disks, lvm = as_pools(
        [
            LOCAL,
            LocalPool("disks", "local", 100, device=1, for_disks=True),
            LocalPool("lvm", "local", 40),
        ]
    )

    assert (local.total_gb, disks.total_gb, lvm.total_gb) == (100, 0, 40)
    assert (local.shares_with, disks.shares_with, lvm.shares_with) == ("", "local", "")
    assert disks.for_disks


def test_of_two_pools_with_one_name_the_first_counts() -> None:
    assert [pool.total_gb for pool in as_pools([LOCAL, LocalPool("local", "nfs", 7)])] == [100]


placer = st.lists(
    st.builds(
        LocalPool,
        name=st.sampled_from("abcdef"),
        type=st.just("local"),
        total_gb=st.integers(1, 9),
        device=st.none() | st.integers(1, 3),
    )
)


@given(placer)
def test_every_pool_has_capacity_or_shares_that_of_an_earlier_pool(found: list[LocalPool]) -> None:
    owners: set[str] = set()
    for pool in as_pools(found):
        assert bool(pool.total_gb) != bool(pool.shares_with)
        assert not pool.shares_with or pool.shares_with in owners
        if pool.total_gb:
            owners.add(pool.name)
