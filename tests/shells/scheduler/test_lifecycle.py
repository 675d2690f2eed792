"""The life of a workload, as a user sees it."""

from shells.scheduler.harness import Cluster


async def test_what_is_applied_runs(cluster: Cluster) -> None:
    node = await cluster.join()
    answer = await cluster.control.apply("web")
    assert answer.success, answer.error_message

    view = await cluster.control.until("web", "Running")
    assert view.assigned_node_id == "n1"
    assert view.revision_id == answer.revision_id
    assert node.agent.running() == {"web"}


async def test_deleting_what_is_not_there_is_refused(cluster: Cluster) -> None:
    answer = await cluster.control.delete("nothing")

    assert not answer.success
    assert "workload not found: nothing" in answer.error_message
    assert (await cluster.control.summary()).total_workloads == 0
