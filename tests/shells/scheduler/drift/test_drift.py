"""Drift between nodes and records: detected, recorded once, repaired; orphans are left alone."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from builders import a_workload
from persys.model import feature
from persys.model.ids import WorkloadId
from persys.model.placement import Resources
from persys.model.spec import ContainerSpec
from persys.store import keys
from persys.store.port import Unit
from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.stored import records
from shells.scheduler.harness import Cluster, eventually
from shells.scheduler.recovery.test_mode import our_node, running, until_mode
from shells.scheduler.third_party_agent import Copy, Node

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING


async def drifts(cluster: Cluster, **filters: str) -> Sequence[pb.DriftView]:
    return (await list_drifts(cluster, **filters)).drifts


async def list_drifts(cluster: Cluster, **filters: str) -> pb.ListDriftsResponse:
    response: pb.ListDriftsResponse = await cluster.control.stub.ListDrifts(
        pb.ListDriftsRequest(**filters), timeout=10
    )
    return response


async def until_noted(cluster: Cluster, count: int = 1, **filters: str) -> Sequence[pb.DriftView]:
    found: Sequence[pb.DriftView] = ()

    async def noted() -> bool:
        nonlocal found
        found = await drifts(cluster, **filters)
        return len(found) == count

    await eventually(noted, lambda: f"{count} drifts: {found}")
    return found


async def events(cluster: Cluster, kind: str) -> list[str]:
    snapshot = await cluster.store.store.read(keys.EVENTS)
    return [text for record in snapshot.records if kind in (text := record.value.decode())]


def create_orphan(node: Node, name: str, *, epoch: int = 0) -> None:
    """Create a copy that the scheduler never ordered."""
    status = agent_pb2.WorkloadStatus(
        id=name,
        type=agent_pb2.WORKLOAD_TYPE_CONTAINER,
        revision_id="r1",
        actual_state=RUNNING,
        epoch=epoch,
    )
    node.agent.copies[name] = Copy(status)


async def call_orphan(
    cluster: Cluster, verb: str, name: str, node_id: str = "n1"
) -> pb.OrphanAnswer:
    method = getattr(cluster.control.stub, verb)
    response: pb.OrphanAnswer = await method(
        pb.OrphanRequest(node_id=node_id, workload_id=name), timeout=10
    )
    return response


async def test_a_missing_workload_is_recorded_once_and_created_again(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    del node.agent.copies["web"]

    async def is_resolved() -> bool:
        return bool(await events(cluster, "DriftResolved"))

    await eventually(is_resolved, lambda: "the drift to be resolved")
    await cluster.control.until("web", "Running")
    (detected,) = await events(cluster, "DriftDetected")
    assert "missing_on_agent" in detected
    assert node.agent.running() == {"web"}
    assert await drifts(cluster) == []


async def test_a_container_that_its_node_repairs_is_recorded_and_not_ordered_again(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    applied = node.agent.copies["web"].applied

    node.agent.copies["web"].status.metadata["container.drift"] = "network bridge is not attached"
    (recorded,) = await until_noted(cluster, type="state_mismatch")
    assert recorded.detail == "runs, but not as it was created: network bridge is not attached"
    view = await cluster.control.workload("web")
    assert (view.status, view.reason.code) == ("Running", "Drifted")
    assert view.reason.message == "network bridge is not attached"

    del node.agent.copies["web"].status.metadata["container.drift"]
    await until_noted(cluster, 0)

    view = await cluster.control.workload("web")
    assert (view.status, view.reason.code) == ("Running", "")
    assert node.agent.copies["web"].applied == applied
    assert len(await events(cluster, "DriftDetected")) == 1
    assert len(await events(cluster, "DriftResolved")) == 1
    assert len(await events(cluster, "WorkloadRunning")) == 1


async def test_an_external_stop_or_change_is_repaired(cluster: Cluster) -> None:
    node = await cluster.join()
    for name in ("stopped", "changed"):
        await cluster.control.apply(name)
        await cluster.control.until(name, "Running")
    revision = node.agent.copies["changed"].status.revision_id
    node.agent.copies["stopped"].status.actual_state = agent_pb2.ACTUAL_STATE_STOPPED
    node.agent.copies["changed"].status.revision_id = "somebody-elses"

    async def is_repaired() -> bool:
        return (
            node.agent.running() == {"stopped", "changed"}
            and node.agent.copies["changed"].status.revision_id == revision
            and len(await events(cluster, "DriftResolved")) == 2
        )

    await eventually(is_repaired, lambda: f"both to be put right: {node.agent.copies}")
    reported = "".join(await events(cluster, "DriftDetected"))
    assert "state_mismatch" in reported
    assert "revision_mismatch" in reported


@pytest.mark.parametrize(
    "cluster", [{"drift_detect_interval": timedelta(seconds=0.05)}], indirect=True
)
async def test_a_node_that_reports_by_itself_is_compared_with_its_list_too(
    cluster: Cluster,
) -> None:
    node = await cluster.prepare()
    node.features, node.sends_statuses = [feature.PUSHES_STATUS], True
    await node.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")

    del node.agent.copies["web"]  # and no heartbeat reports it

    async def is_back() -> bool:
        return "web" in node.agent.running()

    await eventually(is_back, lambda: "it to be started again")
    assert len(node.agent.applies) == 2


async def test_a_normal_lifecycle_records_no_drift(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.work_seconds = 0.5
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    await cluster.control.apply("web", image="nginx:2")
    await cluster.control.until("web", "Running")
    await cluster.control.want("web", "Stopped")
    await cluster.control.until("web", "Stopped")
    await cluster.control.delete("web")
    await cluster.control.until_gone("web")

    assert await events(cluster, "Drift") == []


async def test_an_orphan_is_recorded_and_neither_stopped_nor_deleted(cluster: Cluster) -> None:
    node = await cluster.join()
    create_orphan(node, "ghost", epoch=4)
    (orphan,) = await until_noted(cluster)
    written = cluster.store.transactions

    assert (orphan.node_id, orphan.workload_id) == ("n1", "ghost")
    assert (orphan.type, orphan.state, orphan.epoch) == ("orphan_on_agent", "Running", 4)
    assert not orphan.adoptable
    assert node.agent.running() == {"ghost"}
    assert node.agent.deletes == []
    assert await drifts(cluster, type="state_mismatch") == []
    assert await drifts(cluster, node_id="n2") == []
    assert cluster.store.transactions == written
    assert len(await events(cluster, "DriftDetected")) == 1


async def test_an_orphan_that_disappears_is_resolved(cluster: Cluster) -> None:
    node = await cluster.join()
    create_orphan(node, "ghost")
    await until_noted(cluster)
    del node.agent.copies["ghost"]

    await until_noted(cluster, 0)
    assert len(await events(cluster, "DriftResolved")) == 1


async def test_the_orphans_of_one_node_are_bounded(cluster: Cluster) -> None:
    node = await cluster.join()
    for number in range(1000):
        create_orphan(node, f"ghost-{number}")
    create_orphan(node, "not/a name")

    await until_noted(cluster, 200)
    assert (await list_drifts(cluster)).orphans_unrecorded == 800


async def test_an_operator_deletes_an_orphan(cluster: Cluster) -> None:
    node = await cluster.join()
    create_orphan(node, "ghost")
    await until_noted(cluster)

    assert (await call_orphan(cluster, "DeleteOrphan", "ghost")).accepted

    async def gone() -> bool:
        return node.agent.running() == set()

    await eventually(gone, lambda: "the orphan to be removed")
    assert await drifts(cluster) == []


async def test_a_copy_that_is_not_an_orphan_is_not_deleted(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    bound = await call_orphan(cluster, "DeleteOrphan", "web")
    unknown = await call_orphan(cluster, "DeleteOrphan", "unknown")
    missing = await call_orphan(cluster, "DeleteOrphan", "web", "n9")

    assert not any(response.accepted for response in (bound, unknown, missing))
    assert "web is not an orphan" in bound.reason
    assert "orphan not found" in unknown.reason
    assert "node not found" in missing.reason
    assert node.agent.running() == {"web"}


async def test_an_orphan_survives_a_restart_and_the_loss_of_its_node(cluster: Cluster) -> None:
    node = await cluster.join()
    create_orphan(node, "ghost")
    await until_noted(cluster)
    await node.die()
    await cluster.stop()
    await cluster.start()

    assert len(await drifts(cluster)) == 1


async def test_a_stale_copy_of_a_workload_assigned_to_another_node_is_an_orphan(
    cluster: Cluster,
) -> None:
    await cluster.join("n1")
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    other = await cluster.join("n2")
    create_orphan(other, "web")
    (orphan,) = await until_noted(cluster)
    adopted = await call_orphan(cluster, "AdoptOrphan", "web", "n2")

    assert orphan.node_id == "n2"
    assert "assigned to n1" in orphan.detail
    assert not adopted.accepted
    assert other.agent.running() == {"web"}


async def test_adopting_an_orphan_without_a_stored_intent_is_refused_with_the_next_step(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    create_orphan(node, "ghost")
    await until_noted(cluster)
    refused = await call_orphan(cluster, "AdoptOrphan", "ghost")

    assert not refused.accepted
    assert "apply its spec" in refused.reason
    assert node.agent.running() == {"ghost"}


async def forget(cluster: Cluster, name: str) -> None:
    """Delete all records of a workload while no scheduler runs."""
    await cluster.stop()
    lost = [keys.workload_key(WorkloadId(name)), keys.assignment_key(WorkloadId(name))]
    lost.append(keys.status_key(WorkloadId(name)))
    await cluster.store.store.commit([Unit(deletes=lost)])
    await cluster.start()


async def apply_with_data(cluster: Cluster, name: str, *, cpu: int = 100) -> pb.WorkloadView:
    volume = pb.VolumeMount(host_path="/srv/data", container_path="/data")
    spec = pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=cpu),
        container=pb.ContainerSpec(image="db", volumes=[volume]),
    )
    response = await cluster.control.send(pb.ApplyWorkloadRequest(workload_id=name, spec=spec))
    assert response.success, response.error_message
    return await cluster.control.workload(name)


async def copies_shown(cluster: Cluster, name: str) -> list[str]:
    request = pb.ExplainWorkloadRequest(workload_id=name)
    return list((await cluster.control.stub.ExplainWorkload(request, timeout=10)).copies)


async def test_an_apply_with_the_id_of_a_proven_orphan_adopts_the_copy(
    cluster: Cluster,
) -> None:
    node = await our_node(cluster, "n2")
    await running(cluster, "web")
    await forget(cluster, "web")
    await cluster.join("n1", cpu=9000)
    await until_noted(cluster)
    starts = list(node.agent.starts)
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    view = await cluster.control.workload("web")

    assert view.assigned_node_id == "n2"
    assert node.agent.starts == starts
    assert await drifts(cluster) == []


@pytest.mark.parametrize("restarted", [False, True])
async def test_promise_4_a_proven_orphan_with_the_data_keeps_a_second_copy_from_running(
    cluster: Cluster, restarted: bool
) -> None:
    node = await our_node(cluster, "n2")
    await apply_with_data(cluster, "db")
    await cluster.control.until("db", "Running")
    await forget(cluster, "db")
    other = await cluster.join("n1", cpu=9000)
    await until_noted(cluster)
    if restarted:
        await node.die()
        await cluster.stop()
        await cluster.start()
        await node.agent.start()
        node.start_heartbeats()

    view = await apply_with_data(cluster, "db", cpu=8000)
    assert view.assigned_node_id == ""
    assert "n2 has an orphan of it" in view.reason.message
    (line,) = await copies_shown(cluster, "db")
    assert line.startswith("n2: an orphan with epoch 1; ")
    assert "`persysctl orphans delete n2 db` removes it" in line

    assert (await call_orphan(cluster, "DeleteOrphan", "db", "n2")).accepted
    await cluster.control.until("db", "Running")
    assert node.agent.running() == set()
    assert other.agent.running() == {"db"}


async def test_a_copy_without_a_proof_neither_attracts_nor_holds_up_a_workload(
    cluster: Cluster,
) -> None:
    good = await cluster.join("n1", cpu=9000)
    false_reporter = await cluster.join("n2")
    for name in ("web", "db"):
        create_orphan(false_reporter, name, epoch=3)
    await until_noted(cluster, 2)

    await cluster.control.apply("web")
    await apply_with_data(cluster, "db", cpu=4200)
    for name in ("web", "db"):
        view = await cluster.control.until(name, "Running")
        assert view.assigned_node_id == "n1"
    assert good.agent.running() == {"web", "db"}
    assert len(await drifts(cluster, node_id="n2")) == 2
    (line,) = await copies_shown(cluster, "db")
    assert "n2: the node reports a copy with epoch 3 without proof of assignment" in line
    assert "`persysctl orphans get n2 db` shows it" in line


async def test_a_proof_of_another_node_or_epoch_proves_nothing(cluster: Cluster) -> None:
    node = await our_node(cluster, "n1")
    await apply_with_data(cluster, "db")
    await cluster.control.until("db", "Running")
    stolen = node.agent.copies["db"].status
    await forget(cluster, "db")
    del node.agent.copies["db"]
    false_reporter = await cluster.join("n2", cpu=3000)
    false_reporter.agent.copies["db"] = Copy(agent_pb2.WorkloadStatus())
    false_reporter.agent.copies["db"].status.CopyFrom(stolen)
    create_orphan(node, "other")
    node.agent.copies["other"].status.proof = stolen.proof
    await until_noted(cluster, 2)

    view = await apply_with_data(cluster, "db")
    assert view.assigned_node_id == "n1"


async def test_without_the_key_of_the_proofs_every_reported_copy_counts(cluster: Cluster) -> None:
    """After a loss of all records no copy can be verified: workloads with data wait for the operator."""
    node = await our_node(cluster, "n2")
    await apply_with_data(cluster, "db")
    await cluster.control.until("db", "Running")
    await cluster.stop()
    await cluster.store.wipe()
    await cluster.start()
    await until_mode(cluster.control, "recovery")
    response = await cluster.control.stub.AcceptEmpty(pb.AcceptEmptyRequest(), timeout=10)
    assert response.accepted
    await cluster.join("n1", cpu=9000)
    await until_noted(cluster)

    view = await apply_with_data(cluster, "db", cpu=8000)

    assert view.assigned_node_id == ""
    assert "n2 has an orphan of it" in view.reason.message
    assert node.agent.running() == {"db"}


def kept(name: str, *, cpu: int = 100) -> agent_pb2.IntentView:
    """What the node stores with the workload."""
    workload = a_workload(name, resources=Resources(cpu, 64))
    return agent_pb2.IntentView(id=name, epoch=4, intent=records.encode(workload))


async def until_adoptable(cluster: Cluster) -> None:
    async def adoptable() -> bool:
        return all(orphan.adoptable for orphan in await drifts(cluster))

    await eventually(adoptable, lambda: "the orphan to be adoptable")


async def test_an_adopted_orphan_is_a_workload_again_above_its_epoch(cluster: Cluster) -> None:
    node = await cluster.join()
    for name in ("a", "b", "c", "d"):  # each gets an epoch from the counter
        await cluster.control.apply(name)
    create_orphan(node, "ghost", epoch=4)
    node.agent.intents = [kept("ghost")]
    await until_noted(cluster)
    await until_adoptable(cluster)

    assert (await call_orphan(cluster, "AdoptOrphan", "ghost")).accepted
    view = await cluster.control.workload("ghost")
    assert (view.assigned_node_id, view.epoch, view.revision_id) == ("n1", 5, "r1")
    assert (await cluster.control.node("n1")).workload_count == 5
    assert await drifts(cluster) == []
    assert len(await events(cluster, "OrphanAdopted")) == 1


async def test_an_orphan_without_a_proof_is_adopted_where_it_is(cluster: Cluster) -> None:
    await cluster.join("n1", cpu=9000)
    node, false_reporter = await cluster.join("n2"), await cluster.join("n3")
    for one in (node, false_reporter):
        create_orphan(one, "ghost", epoch=4)
    node.agent.intents = [kept("ghost")]
    await until_noted(cluster, 2)

    assert (await call_orphan(cluster, "AdoptOrphan", "ghost", "n2")).accepted

    assert (await cluster.control.workload("ghost")).assigned_node_id == "n2"


async def test_an_orphan_with_secrets_is_shown_and_adopted_only_with_their_names(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    create_orphan(node, "ghost", epoch=4)
    spec = ContainerSpec("nginx", env={"PASSWORD": "secret://db-password", "BAD": "secret://NO"})
    workload = a_workload("ghost", spec=spec, resources=Resources(100, 64))
    intent = agent_pb2.IntentView(id="ghost", epoch=4, intent=records.encode(workload))
    node.agent.intents = [intent]
    await until_noted(cluster)

    stub, request = cluster.control.stub, pb.OrphanRequest(node_id="n1", workload_id="ghost")
    view = await stub.GetOrphan(request, timeout=10)
    assert view.spec.container.env["PASSWORD"] == "secret://db-password"
    assert list(view.secrets) == ["db-password", "secret://NO"]
    assert view.drift.workload_id == "ghost"

    refused = await call_orphan(cluster, "AdoptOrphan", "ghost")
    assert not refused.accepted
    assert "persysctl orphans get n1 ghost" in refused.reason
    assert "--allow-secrets db-password,secret://NO" in refused.reason
    assert await cluster.control.names() == []

    request.allow_secrets.extend(view.secrets)
    assert (await stub.AdoptOrphan(request, timeout=10)).accepted
    assert await cluster.control.names() == ["ghost"]


async def test_an_orphan_that_does_not_fit_is_not_adopted(cluster: Cluster) -> None:
    node = await cluster.join()
    create_orphan(node, "ghost")
    node.agent.intents = [kept("ghost", cpu=100_000)]
    await until_noted(cluster)
    refused = await call_orphan(cluster, "AdoptOrphan", "ghost")

    assert not refused.accepted
    assert "short of cpu" in refused.reason
    assert await cluster.control.names() == []


async def test_a_node_with_an_orphan_is_not_drained(cluster: Cluster) -> None:
    node = await cluster.join()
    create_orphan(node, "ghost")
    await until_noted(cluster)
    await cluster.control.stub.DrainNode(pb.DrainNodeRequest(node_id="n1"), timeout=10)
    view = await cluster.control.node("n1")
    assert (view.drain.state, view.drain.remaining) == ("draining", 1)
    assert "is an orphan" in view.drain.blocked[0].reason

    await call_orphan(cluster, "DeleteOrphan", "ghost")

    async def drained() -> bool:
        return (await cluster.control.node("n1")).drain.state == "drained"

    await eventually(drained, lambda: "n1 to be drained")
    assert node.agent.running() == set()


@pytest.mark.parametrize("cluster", [{"missing_grace_period": 3600}], indirect=True)
async def test_a_node_with_an_orphan_that_is_not_recorded_yet_is_not_drained(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    create_orphan(node, "ghost")
    await cluster.control.stub.DrainNode(pb.DrainNodeRequest(node_id="n1"), timeout=10)

    async def counted() -> bool:
        return (await cluster.control.node("n1")).drain.remaining == 1

    await eventually(counted, lambda: "the orphan to be counted")
    assert await drifts(cluster) == []
    assert (await cluster.control.node("n1")).drain.state == "draining"
