"""The lifecycle of a workload through the API."""

import pytest

from persys.wire.gen.agent.v1 import agent_pb2
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, eventually


async def test_an_applied_workload_runs(cluster: Cluster) -> None:
    node = await cluster.join()
    response = await cluster.control.apply("web")
    assert response.success, response.error_message

    view = await cluster.control.until("web", "Running")
    assert view.assigned_node_id == "n1"
    assert view.revision_id == response.revision_id
    assert (view.type, view.desired_state) == ("container", "Running")
    assert view.spec.container.image == "nginx"
    assert node.agent.running() == {"web"}


async def test_a_status_without_a_revision_is_accepted(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.echoes_revision = False
    await cluster.control.apply("web")

    await cluster.control.until("web", "Running")


async def test_the_same_spec_again_is_the_same_revision_and_is_not_sent_again(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    first = await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    second = await cluster.control.apply("web")

    assert second.success
    assert second.revision_id == first.revision_id
    assert len(node.agent.applies) == 1


async def test_another_spec_is_another_revision_and_replaces_the_first(cluster: Cluster) -> None:
    node = await cluster.join()
    first = await cluster.control.apply("web", image="nginx:1")
    await cluster.control.until("web", "Running")
    second = await cluster.control.apply("web", image="nginx:2")
    assert second.revision_id != first.revision_id

    view = await cluster.control.until("web", "Running")
    assert view.revision_id == second.revision_id
    assert view.epoch == 1
    assert [sent.spec.container.image for sent in node.agent.applies] == ["nginx:1", "nginx:2"]
    assert node.agent.applies[1].revision_id == second.revision_id


async def test_a_given_revision_is_used(cluster: Cluster) -> None:
    node = await cluster.join()
    response = await cluster.control.apply("web", revision="v1")
    await cluster.control.until("web", "Running")

    assert response.revision_id == "v1"
    assert node.agent.applies[0].revision_id == "v1"


async def test_a_workload_that_is_deployed_again_is_sent_under_a_new_revision(
    cluster: Cluster,
) -> None:
    node = await cluster.join()
    first = await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    again = await cluster.control.redeploy("web")
    assert again.accepted, again.reason
    assert again.revision_id == f"{first.revision_id}+2"

    view = await cluster.control.until("web", "Running")
    assert view.revision_id == node.agent.applies[1].revision_id == again.revision_id
    assert (await cluster.control.apply("web")).revision_id == again.revision_id
    assert len(node.agent.applies) == 2


async def test_a_workload_stops_and_starts_again_at_its_revision(cluster: Cluster) -> None:
    node = await cluster.join()
    applied = await cluster.control.apply("web")
    await cluster.control.until("web", "Running")

    stopped = await cluster.control.want("web", "Stopped")
    assert stopped.revision_id == applied.revision_id
    view = await cluster.control.until("web", "Stopped")
    assert view.desired_state == "Stopped"
    assert node.agent.running() == set()

    await cluster.control.want("web", "Running")
    await cluster.control.until("web", "Running")
    assert node.agent.running() == {"web"}
    assert {sent.revision_id for sent in node.agent.applies} == {applied.revision_id}
    assert [sent.desired_state for sent in node.agent.applies] == [
        agent_pb2.DESIRED_STATE_RUNNING,
        agent_pb2.DESIRED_STATE_STOPPED,
        agent_pb2.DESIRED_STATE_RUNNING,
    ]


@pytest.mark.parametrize("word", ["stop", "STOPPED", "Stopped", "sToP"])
async def test_desired_states_are_taken_in_any_case_and_short(cluster: Cluster, word: str) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    response = await cluster.control.want("web", word)

    assert response.success, response.error_message
    assert (await cluster.control.workload("web")).desired_state == "Stopped"


@pytest.mark.parametrize("word", ["delete", "Deleted"])
async def test_the_desired_state_deleted_deletes(cluster: Cluster, word: str) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    assert (await cluster.control.want("web", word)).success

    await cluster.control.until_gone("web")


async def test_a_workload_created_stopped_gets_a_node_when_it_is_started(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web", desired="Stopped")
    view = await cluster.control.until("web", "Stopped")
    assert view.assigned_node_id == ""
    assert node.agent.applies == []

    await cluster.control.want("web", "Running")
    await cluster.control.until("web", "Running")


@pytest.mark.parametrize("reports_deletes", [True, False], ids=["says FAILED", "says not found"])
async def test_a_deleted_workload_is_there_until_its_node_has_removed_it(
    cluster: Cluster, reports_deletes: bool
) -> None:
    node = await cluster.join()
    node.agent.behaviour.reports_deletes = reports_deletes
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    node.agent.behaviour.work_seconds = 0.3
    assert (await cluster.control.delete("web")).success
    assert (await cluster.control.workload("web")).status == "Deleting"
    assert (await cluster.control.delete("web")).success

    await cluster.control.until_gone("web")
    assert node.agent.running() == set()
    assert (await cluster.control.node("n1")).available_cpu_cores == 4
    assert (await cluster.control.summary()).total_workloads == 0


async def test_a_workload_that_is_being_deleted_accepts_no_new_spec(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    node.agent.behaviour.work_seconds = 1.0
    await cluster.control.delete("web")
    response = await cluster.control.apply("web", image="caddy")

    assert not response.success
    assert "being deleted" in response.error_message


async def test_an_id_can_be_reused_after_its_workload_is_deleted(cluster: Cluster) -> None:
    node = await cluster.join()
    for image in ("nginx:1", "nginx:2"):
        await cluster.control.apply("web", image=image)
        await cluster.control.until("web", "Running")
        await cluster.control.delete("web")
        await cluster.control.until_gone("web")

    assert [sent.spec.container.image for sent in node.agent.applies] == ["nginx:1", "nginx:2"]


async def test_a_workload_that_fits_nowhere_is_deleted_at_once(cluster: Cluster) -> None:
    await cluster.control.apply("web")
    assert (await cluster.control.delete("web")).success

    await cluster.control.until_gone("web")


async def test_a_workload_that_vanished_from_its_node_is_sent_again(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    del node.agent.copies["web"]

    async def back() -> bool:
        return node.agent.running() == {"web"}

    await eventually(back, lambda: f"the agent to have it again: {node.agent.copies}")
    await cluster.control.until("web", "Running")


async def test_the_summary_counts_nodes_and_workloads(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.failures["bad"] = ("INVALID_SPECIFICATION", "no")
    for name in ("web", "bad"):
        await cluster.control.apply(name)
    await cluster.control.apply("huge", cpu=100_000)
    await cluster.control.until("web", "Running")
    await cluster.control.until("bad", "Failed")
    summary = await cluster.control.summary()

    assert (summary.total_nodes, summary.ready_nodes, summary.not_ready_nodes) == (1, 1, 0)
    assert summary.total_workloads == 3
    assert (summary.running_workloads, summary.failed_workloads) == (1, 1)
    assert summary.pending_workloads == 1
    assert summary.HasField("generated_at")


async def test_list_filters_are_case_insensitive(cluster: Cluster) -> None:
    await cluster.join("n1")
    await cluster.join("n2", cpu=8000)
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    await cluster.control.apply("big", cpu=5000)
    await cluster.control.until("big", "Running")
    await cluster.control.apply("huge", cpu=100_000)
    nodes = await cluster.control.stub.ListNodes(pb.ListNodesRequest(status="rEADY"), timeout=10)
    others = await cluster.control.stub.ListNodes(
        pb.ListNodesRequest(status="notready"), timeout=10
    )

    assert [view.node_id for view in nodes.nodes] == ["n1", "n2"]
    assert list(others.nodes) == []
    assert await cluster.control.names() == ["big", "huge", "web"]
    assert await cluster.control.names(status="RUNNING") == ["big", "web"]
    assert await cluster.control.names(status="pending") == ["huge"]
    assert await cluster.control.names(node_id="n2") == ["big"]
    assert await cluster.control.names(node_id="n2", status="Pending") == []
