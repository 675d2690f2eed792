"""Members keep their membership in snapshots and rebuilds, and when a copy of one is adopted."""

import pytest

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.recovery.test_mode import our_node
from shells.scheduler.recovery.test_recovery import lose_the_store, rebuild, restore, save
from shells.scheduler.sets.calls_of_sets import SetCalls, a_set, ids


async def membership(cluster: Cluster, name: str) -> tuple[str, int, int]:
    found = (await cluster.control.workload(name)).membership
    return found.owner, found.index, found.revision


@pytest.mark.parametrize("and_memory", [False, True])
async def test_a_rebuild_keeps_the_members_and_restarts_nothing(
    cluster: Cluster, sets: SetCalls, and_memory: bool
) -> None:
    node = await our_node(cluster)
    await sets.applied(a_set(replicas=2))
    await sets.until_steady(members=2)
    starts = list(node.agent.starts)
    await lose_the_store(cluster, and_memory=and_memory)

    assert (await rebuild(cluster)).accepted

    for name in ("web-0", "web-1"):
        await cluster.control.until(name, "Running")
    assert [await membership(cluster, name) for name in ("web-0", "web-1")] == [
        ("web", 0, 1),
        ("web", 1, 1),
    ]
    assert (node.agent.starts, node.agent.deletes) == (starts, [])
    if and_memory:
        # Without the record of the set, its former members are left alone until it is applied again.
        assert cluster.app.cluster.sets == {}
        await sets.applied(a_set(replicas=2, order="in-place"))
    view = await sets.until_steady(members=2)
    assert ids(view) == ["web-0", "web-1"]
    assert node.agent.deletes == []


async def test_a_snapshot_contains_the_set_with_its_revisions_and_members(
    cluster: Cluster, sets: SetCalls
) -> None:
    await our_node(cluster)
    await sets.applied(a_set(replicas=2, order="in-place"))
    await sets.until_steady(members=2)
    await sets.applied(a_set(image="web:2", replicas=2, order="in-place"))
    await sets.until_steady(members=2, revision=2)
    chunks = await save(cluster)
    await lose_the_store(cluster, and_memory=True)

    assert (await restore(cluster, chunks)).accepted

    view = await sets.until_steady(members=2, revision=2)
    assert [one.number for one in view.revisions] == [2, 1]
    assert (await sets.undo()).accepted
    await sets.until_steady(members=2, revision=1)


async def test_an_orphan_is_adopted_only_if_its_set_keeps_it(
    cluster: Cluster, sets: SetCalls
) -> None:
    """The store is lost and accepted as empty; the copies of the members are orphans."""
    await our_node(cluster)
    await sets.applied(a_set(replicas=2))
    await sets.until_steady(members=2)
    await lose_the_store(cluster, and_memory=True)
    await cluster.control.stub.AcceptEmpty(pb.AcceptEmptyRequest(), timeout=30)
    request = pb.OrphanRequest(node_id="n1", workload_id="web-1")
    adopt = cluster.control.stub.AdoptOrphan

    async def is_adopted() -> bool:
        return bool((await adopt(request, timeout=10)).accepted)

    await eventually(is_adopted, lambda: "web-1 to be adopted")
    assert await membership(cluster, "web-1") == ("web", 1, 1)

    other = pb.OrphanRequest(node_id="n1", workload_id="web-0")
    await sets.applied(a_set(replicas=0))
    refused = await adopt(other, timeout=10)
    assert not refused.accepted
    assert "which has 0 replicas" in refused.reason
