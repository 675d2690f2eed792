"""ApplyWorkloads: many workloads in one request, each stored or refused alone."""

import asyncio

import pytest

from persys.model.event import EventKind
from persys.model.ids import WorkloadId
from persys.store import keys
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster


def an_apply(name: str, *, image: str = "nginx", cpu: int = 1) -> pb.ApplyWorkloadRequest:
    spec = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=cpu, memory_mb=1),
        container=pb.ContainerSpec(image=image),
    )
    return pb.ApplyWorkloadRequest(workload_id=name, spec=spec)


async def apply_all(
    cluster: Cluster, *requests: pb.ApplyWorkloadRequest
) -> pb.ApplyWorkloadsResponse:
    batch = pb.ApplyWorkloadsRequest(workloads=requests)
    response: pb.ApplyWorkloadsResponse = await cluster.control.stub.ApplyWorkloads(
        batch, timeout=30
    )
    return response


async def test_many_workloads_are_placed_and_share_transactions(cluster: Cluster) -> None:
    await cluster.join("n1")
    before = cluster.store.transactions
    names = [f"web-{number}" for number in range(300)]

    response = await apply_all(cluster, *map(an_apply, names))

    assert response.accepted
    assert [result.workload_id for result in response.results] == names
    workloads = cluster.app.cluster.workloads
    for result in response.results:
        assert result.success, result.error_message
        entry = workloads[WorkloadId(result.workload_id)]
        assert entry.assignment is not None
        assert entry.workload.revision == result.revision_id
    assert cluster.store.transactions - before < 30


async def test_workloads_of_one_request_run(cluster: Cluster) -> None:
    await cluster.join("n1")

    await apply_all(cluster, an_apply("a"), an_apply("b"))

    await cluster.control.until("a", "Running")
    await cluster.control.until("b", "Running")


async def test_a_refused_workload_is_named_and_affects_no_other(cluster: Cluster) -> None:
    await cluster.join("n1")
    requests = [
        an_apply("first"),
        an_apply("Not A Name"),
        an_apply("long", image="x" * 2000),
        an_apply("twice"),
        an_apply("twice", image="other"),
        pb.ApplyWorkloadRequest(workload_id="empty"),
        pb.ApplyWorkloadRequest(),
        an_apply("last"),
    ]

    response = await apply_all(cluster, *requests)

    results = list(response.results)
    assert response.accepted
    assert [result.success for result in results] == [
        *(True, False, False, True, False, False, False, True)
    ]
    assert [result.workload_id for result in results] == [one.workload_id for one in requests]
    assert "invalid workload id" in results[1].error_message
    assert "spec.container.image" in results[2].error_message
    assert "repeated" in results[4].error_message
    assert "spec" in results[5].error_message
    assert "workload_id" in results[6].error_message
    assert {result.failure_reason for result in results if not result.success} == {pb.INVALID_SPEC}
    assert set(cluster.app.cluster.workloads) == {"first", "twice", "last"}


async def test_a_repeated_request_changes_nothing(cluster: Cluster) -> None:
    await cluster.join("n1")
    first = await apply_all(cluster, an_apply("a"), an_apply("b"))
    await cluster.control.until("a", "Running")
    await cluster.control.until("b", "Running")
    events = cluster.app.events.last_sequence

    again = await apply_all(cluster, an_apply("a"), an_apply("b"))

    assert again == first
    assert cluster.app.events.last_sequence == events


async def test_each_created_workload_has_an_event(cluster: Cluster) -> None:
    await cluster.join("n1")

    await apply_all(cluster, an_apply("a"), an_apply("b"))

    created = [
        one.event.workload_id
        for one in cluster.app.events
        if one.event.kind is EventKind.WORKLOAD_CREATED
    ]
    assert created == ["a", "b"]


async def test_requests_with_the_same_workloads_do_not_block_each_other(cluster: Cluster) -> None:
    await cluster.join("n1")
    names = [f"web-{number}" for number in range(80)]
    forwards = [an_apply(name, image="one") for name in names]
    backwards = [an_apply(name, image="two") for name in reversed(names)]

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(apply_all(cluster, *batch))
            for batch in (forwards, backwards, forwards, backwards)
        ]

    for task in tasks:
        assert all(result.success for result in task.result().results)


async def test_more_workloads_than_the_limit_are_refused_as_a_whole(cluster: Cluster) -> None:
    response = await apply_all(cluster, *(an_apply(f"w{number}") for number in range(1001)))

    assert not response.accepted
    assert response.reason == "workloads: has 1001 entries; expected at most 1000"
    assert not cluster.app.cluster.workloads


async def test_a_member_of_a_set_is_refused_with_the_name_of_the_set(cluster: Cluster) -> None:
    await cluster.join("n1")
    spec = pb.SetSpec(set_id="web", replicas=1, template=an_apply("x").spec)
    await cluster.control.stub.ApplySet(pb.ApplySetRequest(set=spec), timeout=30)
    await cluster.control.until("web-0", "Running")

    response = await apply_all(cluster, an_apply("web-0", image="mine"), an_apply("own"))

    member, own = response.results
    assert own.success
    assert not member.success
    assert "web" in member.error_message


@pytest.mark.parametrize("commits", [0, 1])
async def test_a_batch_that_is_cut_by_the_store_leaves_each_workload_whole(
    cluster: Cluster, commits: int
) -> None:
    """What was answered with success is stored with its assignment; the rest says why it is not."""
    await cluster.join("n1")
    await apply_all(cluster, an_apply("before"))
    cluster.store.commit_seconds = 0.02  # later workloads are decided meanwhile
    cluster.store.commits_left = commits

    response = await apply_all(cluster, *(an_apply(f"w{number}") for number in range(400)))

    cluster.store.down, cluster.store.commits_left = False, None
    stored = await cluster.store.read("/")
    found = {record.key for record in stored.records}
    assert commits or not any(result.success for result in response.results)
    for result in response.results:
        assert result.success or "the disk is full" in result.error_message
        assert (keys.workload_key(WorkloadId(result.workload_id)) in found) == result.success
        assert (keys.assignment_key(WorkloadId(result.workload_id)) in found) == result.success
