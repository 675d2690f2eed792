"""The health of workloads and the progress of long operations, as reported by nodes, are shown."""

from persys.store import keys
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.third_party_agent import Node


async def events(cluster: Cluster, kind: str) -> list[str]:
    snapshot = await cluster.store.store.read(keys.EVENTS)
    return [text for record in snapshot.records if kind in (text := record.value.decode())]


async def send_status(
    cluster: Cluster, node: Node, state: str, message: str, **metadata: str
) -> None:
    """A heartbeat with a status of `web`, as Persys agents send it."""
    view = await cluster.control.workload("web")
    status = pb.WorkloadStatus(
        workload_id="web",
        state=state,
        message=message,
        revision_id=view.revision_id,
        epoch=view.epoch,
        metadata={key.replace("__", "."): word for key, word in metadata.items()},
    )
    if "web" in node.agent.copies:
        node.agent.copies["web"].status.metadata.update(status.metadata)
        node.agent.copies["web"].status.message = message
    request = pb.HeartbeatRequest(node_id=node.id, workload_statuses=[status])
    await cluster.control.stub.Heartbeat(request, timeout=10)


async def test_an_unhealthy_workload_shows_its_reason_and_each_change_is_one_event(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")

    for _ in range(2):
        await send_status(cluster, node, "Running", "unhealthy: no", container__health="unhealthy")

    async def is_shown() -> bool:
        return (await cluster.control.workload("web")).reason.code == "Unhealthy"

    await eventually(is_shown, lambda: "it to be unhealthy")
    view = await cluster.control.workload("web")
    assert (view.status, view.reason.message) == ("Running", "unhealthy: no")
    assert view.metadata["container.health"] == "unhealthy"
    (reported,) = await events(cluster, "WorkloadUnhealthy")
    assert "unhealthy: no" in reported

    await send_status(cluster, node, "Running", "", container__health="healthy")

    async def is_well() -> bool:
        return bool(await events(cluster, "WorkloadHealthy"))

    await eventually(is_well, lambda: "it to be healthy")
    view = await cluster.control.workload("web")
    assert (view.status, view.reason.code) == ("Running", "")
    assert len(await events(cluster, "WorkloadRunning")) == 1


async def test_how_far_a_pull_is_shows_and_is_not_written(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.work_seconds = 3600
    await cluster.control.apply("web")

    async def is_sent() -> bool:
        return bool(node.agent.applies)

    await eventually(is_sent, lambda: "the order to be sent")
    before = await cluster.store.store.read(keys.STATUSES)
    await send_status(
        cluster, node, "Pending", "pulling web:1: 1 of 3 layers", reason_code="Pulling"
    )

    view = await cluster.control.workload("web")
    assert (view.status, view.reason.code) == ("Pending", "Pulling")
    assert view.reason.message == "pulling web:1: 1 of 3 layers"
    after = await cluster.store.store.read(keys.STATUSES)
    assert [b"pulling" in record.value for record in after.records] == [False]
    assert len(before.records) == len(after.records)
