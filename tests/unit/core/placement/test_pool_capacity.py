"""Capacity of several pools of one node; the pool without enough space is named."""

import pytest

from builders import a_workload, add_node
from persys.core.placement.capacity import capacity_of
from persys.core.placement.explain import explain
from persys.core.placement.filters import reject
from persys.core.placement.index.node_index import NodeIndex
from persys.core.placement.index.node_slot import Accounts, accounts_of
from persys.core.placement.pending_queue import PendingEntry, PendingQueue
from persys.core.placement.requirements import Requirements, requirements_of
from persys.core.placement.select import Placed, Unplaceable, place
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities, StoragePool
from persys.model.placement import Resources
from persys.model.spec import Disk, ManagedVolume, VMSpec

LOCAL, SHARED = StoragePool("local", "local", 100), StoragePool("disks", "local", 0, "local", True)
FAST = StoragePool("fast", "local", 40)
N1 = NodeId("n1")


def accounts(*pools: StoragePool) -> Accounts | None:
    return accounts_of(Capabilities(4000, 8192, pools=pools))


def a_need(*, fast: int = 0, disks: int = 0, rest: int = 0) -> Requirements:
    pools = tuple((name, gb) for name, gb in (("", disks), ("fast", fast)) if gb)
    return Requirements(Resources(100, 128, fast + disks + rest), pools=pools)


@pytest.fixture
def node_index() -> NodeIndex:
    created = NodeIndex()
    created.put_node(
        N1,
        allocatable=Resources(4000, 8192, 140),
        traits=frozenset(),
        accounts=accounts(LOCAL, SHARED, FAST),
    )
    return created


def hold(node_index: NodeIndex, name: str, needs: Requirements) -> None:
    node_index.hold(WorkloadId(name), N1, needs.resources, needs.host_ports, pools=needs.pools)


def free_gb(node_index: NodeIndex) -> dict[str, int]:
    pools = node_index.slots[N1].pools
    return pools.free_gb if pools is not None else {}


def test_a_node_with_one_file_system_has_no_pool_accounts() -> None:
    assert accounts(LOCAL, SHARED) is None
    assert accounts() is None


def test_a_full_pool_is_named_with_the_missing_capacity(node_index: NodeIndex) -> None:
    hold(node_index, "db", a_need(fast=30))

    unplaceable = place(a_need(fast=15, rest=5), node_index)

    assert isinstance(unplaceable, Unplaceable)
    expected = "1 node short of disk in pool fast (needs 15 GB, n1 lacks 5 GB)"
    assert unplaceable.explain() == expected
    assert isinstance(place(a_need(fast=10, rest=100), node_index), Placed)
    assert isinstance(place(a_need(rest=100), node_index), Placed)


def test_disks_that_name_no_pool_are_where_the_node_keeps_them(node_index: NodeIndex) -> None:
    hold(node_index, "db", a_need(disks=60))

    rejection = reject(node_index.slots[N1], a_need(rest=50))

    assert rejection is not None
    assert (rejection.pool, rejection.missing) == ("local", 10)


def test_released_pool_capacity_is_available_again(node_index: NodeIndex) -> None:
    hold(node_index, "db", a_need(fast=40))
    hold(node_index, "db", a_need(fast=10))
    assert reject(node_index.slots[N1], a_need(fast=30)) is None

    node_index.give_back(WorkloadId("db"), N1)

    assert free_gb(node_index) == {"local": 100, "fast": 40}


def test_a_node_that_reports_another_pool_keeps_its_reservations(node_index: NodeIndex) -> None:
    hold(node_index, "db", a_need(fast=30))
    larger = StoragePool("fast", "local", 80)

    node_index.put_node(
        N1,
        allocatable=Resources(4000, 8192, 180),
        traits=frozenset(),
        accounts=accounts(LOCAL, larger),
    )

    assert free_gb(node_index) == {"local": 100, "fast": 50}


def test_a_pool_reservation_in_a_copy_does_not_change_the_original(node_index: NodeIndex) -> None:
    clone = node_index.copy()

    hold(clone, "db", a_need(fast=40))

    assert reject(clone.slots[N1], a_need(fast=1)) is not None
    assert reject(node_index.slots[N1], a_need(fast=40)) is None


def test_the_array_search_considers_pools(node_index: NodeIndex) -> None:
    for number in range(40):
        add_node(node_index, f"x{number:02}", cpu=50, traits=())
    hold(node_index, "db", a_need(fast=30))

    assert isinstance(place(a_need(fast=11), node_index), Unplaceable)
    assert isinstance(place(a_need(fast=10), node_index), Placed)


def test_an_explanation_counts_and_cures_a_full_pool(node_index: NodeIndex) -> None:
    hold(node_index, "db", a_need(fast=30))

    found = explain(a_need(fast=15), node_index, limit=5)
    unplaceable = explain(a_need(fast=50), node_index, limit=5)

    assert found.refusals() == "1 node short of disk in pool fast"
    assert found.changes() == ("free 5 GB disk in pool fast on n1",)
    assert unplaceable.changes() == ("a node with 50 GB disk in pool fast",)


def test_capacity_ends_where_the_pool_does(node_index: NodeIndex) -> None:
    room = capacity_of(node_index.slots[N1], a_need(fast=15))

    assert (room.fits, room.limited_by) == (2, "short of disk in pool fast")


def test_only_as_many_workloads_are_woken_as_the_pool_can_take(node_index: NodeIndex) -> None:
    waiting = PendingQueue()
    for name in ("a", "b", "c"):
        waiting.add(WorkloadId(name), PendingEntry(a_need(fast=20)))

    assert waiting.candidates_for(node_index.slots[N1]) == ["a", "b"]


def test_vm_disks_use_their_pools_and_other_disk_space_the_first_pool() -> None:
    disks = (Disk(pool_name="fast", size_gb=10), Disk(size_gb=5), Disk(path="/disk", size_gb=3))
    volumes = (ManagedVolume("data", size_gb=2), ManagedVolume("far", driver="nfs", size_gb=50))
    machine = VMSpec(vcpus=1, memory_mb=64, disks=disks, managed_volumes=volumes)

    needs = requirements_of(a_workload(spec=machine))

    assert needs.resources.disk_gb == 20
    assert needs.pools == (("", 5), ("fast", 10))
