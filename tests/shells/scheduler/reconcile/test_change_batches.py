"""Many members are changed in one pass: they share transactions, and one that fails affects no other."""

from functools import partial

from msgspec.structs import replace

from builders import a_workload
from persys.core.intent.apply import Accepted, Unchanged
from persys.errors import DefectError, RefusedError
from persys.model.event import EventKind
from persys.model.ids import WorkloadId
from persys.model.placement import Resources
from persys.model.workload import Membership, Workload
from persys.scheduler.reconcile.change_batches import WorkloadChange
from shells.scheduler.harness import Cluster


def a_member(number: int, *, cpu: int = 1) -> Workload:
    workload = a_workload(f"web-{number}", resources=Resources(cpu, 1))
    return replace(workload, membership=Membership("web", number, number))


def created(member: Workload, old: Workload | None) -> Accepted | Unchanged:
    return Accepted(member, EventKind.WORKLOAD_CREATED) if old is None else Unchanged(old)


def a_change(number: int, *, cpu: int = 1) -> WorkloadChange:
    member = a_member(number, cpu=cpu)
    return WorkloadChange(member.id, partial(created, member))


def refused(_old: Workload | None) -> Accepted | Unchanged:
    raise RefusedError("not this one")


def broken(_old: Workload | None) -> Accepted | Unchanged:
    raise KeyError("a defect")


def assigned(cluster: Cluster) -> set[str]:
    return {
        name
        for name, entry in cluster.app.cluster.workloads.items()
        if entry.assignment is not None
    }


async def test_many_members_share_transactions_and_are_placed(cluster: Cluster) -> None:
    await cluster.join("n1")
    await cluster.join("n2")
    before = cluster.store.transactions

    failed = await cluster.app.reconciler.submit_members([a_change(n) for n in range(600)])

    assert failed == {}
    assert len(assigned(cluster)) == 600
    assert cluster.store.transactions - before < 60


async def test_members_of_a_batch_see_the_capacity_of_each_other(cluster: Cluster) -> None:
    await cluster.join("n1", cpu=3000)

    failed = await cluster.app.reconciler.submit_members(
        [a_change(number, cpu=1000) for number in range(5)]
    )

    assert failed == {}
    assert len(assigned(cluster)) == 3
    assert len(cluster.app.cluster.workloads) == 5


async def test_a_member_that_fails_affects_no_other(cluster: Cluster) -> None:
    await cluster.join("n1")
    changes = [a_change(number) for number in range(4)]
    changes[1] = WorkloadChange(WorkloadId("web-1"), refused)
    changes[2] = WorkloadChange(WorkloadId("web-2"), broken)

    failed = await cluster.app.reconciler.submit_members(changes)

    assert {name: type(err) for name, err in failed.items()} == {
        "web-1": RefusedError,
        "web-2": DefectError,
    }
    assert assigned(cluster) == {"web-0", "web-3"}


async def test_a_commit_that_fails_releases_the_capacity_and_the_locks(cluster: Cluster) -> None:
    await cluster.join("n1", cpu=2000)
    cluster.store.down = True

    failed = await cluster.app.reconciler.submit_members(
        [a_change(number, cpu=1000) for number in range(2)]
    )

    assert failed.keys() == {"web-0", "web-1"}
    cluster.store.down = False
    assert cluster.app.cluster.node_index.slots
    await cluster.control.until_node("n1", "Ready")
    while cluster.app.modes.is_frozen:
        await cluster.control.summary()
    again = await cluster.app.reconciler.submit_members(
        [a_change(number, cpu=1000) for number in range(2)]
    )
    assert again == {}
    assert assigned(cluster) == {"web-0", "web-1"}


async def test_an_unchanged_member_writes_nothing(cluster: Cluster) -> None:
    await cluster.join("n1")
    await cluster.app.reconciler.submit_members([a_change(0)])
    await cluster.control.until("web-0", "Running")
    before = cluster.store.transactions

    assert await cluster.app.reconciler.submit_members([a_change(0)]) == {}

    assert cluster.store.transactions == before
