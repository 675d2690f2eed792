"""The life of a workload on a federated node, through the API of the home cluster."""

import asyncio
from datetime import timedelta
from pathlib import Path

from persys.model.status import Failure, FailureReason
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.federation.two_clusters import NODE, TwoClusters, a_spec, holds, two_clusters
from shells.scheduler.harness import eventually

IDLE_SECONDS = 1.5
SLOW_SECONDS = 10.0


async def test_the_node_shows_what_it_stands_for(both: TwoClusters) -> None:
    node = await both.home.control.node(NODE)

    assert node.remote == f"default 127.0.0.1:{both.remote.settings.grpc_port}"
    assert node.supported_workload_types == ["container"]
    assert node.total_cpu_cores > 0


async def test_apply_update_stop_start_redeploy_and_delete(both: TwoClusters) -> None:
    home, remote = both.home.control, both.remote.control
    view = await both.run("web")
    assert view.metadata["remote_workload"] == "home--web"
    assert view.metadata["remote_node"] == "machine"
    first = (await remote.workload("home--web")).revision_id

    await both.apply("web", image="nginx:2")
    updated = (await home.workload("web")).revision_id

    async def is_updated() -> bool:
        found = await remote.workload("home--web")
        return (
            found.spec.container.image == "nginx:2"
            and found.spec.metadata["persys.home_revision"] == updated
            and found.status == "Running"
        )

    await eventually(is_updated, lambda: "the update to run")
    await home.until("web", "Running")
    assert (await remote.workload("home--web")).revision_id != first

    await home.want("web", "Stopped")
    await home.until("web", "Stopped")
    await remote.until("home--web", "Stopped")
    await home.want("web", "Running")
    await home.until("web", "Running")

    before = (await remote.workload("home--web")).revision_id
    assert (await home.redeploy("web")).accepted

    async def is_redeployed() -> bool:
        found = await remote.workload("home--web")
        return found.revision_id != before and found.status == "Running"

    await eventually(is_redeployed, lambda: "the copy to be redeployed")
    await home.until("web", "Running")

    await home.delete("web")
    await home.until_gone("web")
    assert await remote.names() == []
    assert not holds(both.machine, "web")


async def test_a_failure_there_is_shown_and_retried_from_here(both: TwoClusters) -> None:
    home = both.home.control
    both.machine.runtime.pull_failure = Failure(
        FailureReason.IMAGE_PULL_FAILED, "no such image", retryable=False
    )
    await both.apply("web")
    view = await home.until("web", "Failed")
    assert view.failure_reason == "IMAGE_PULL_FAILED"
    assert "no such image" in view.reason.message

    both.machine.runtime.pull_failure = None
    assert (await home.retry("web")).accepted
    await home.until("web", "Running")


async def test_a_workload_that_may_not_be_offloaded_stays(both: TwoClusters) -> None:
    await both.apply("web", offload="never")

    async def waits() -> bool:
        return (await both.home.control.workload("web")).reason.code == "Unplaceable"

    await eventually(waits, lambda: "it to wait")
    assert await both.remote.control.names() == []


async def test_a_drained_node_gives_its_workloads_up(both: TwoClusters) -> None:
    await both.run("web")
    local = await both.home.join("local")

    answer = await both.home.control.stub.DrainNode(pb.DrainNodeRequest(node_id=NODE), timeout=10)
    assert answer.accepted, answer.reason

    async def has_moved() -> bool:
        view = await both.home.control.workload("web")
        return (view.assigned_node_id, view.status) == (local.id, "Running")

    await eventually(has_moved, lambda: "web to move")
    await both.until_remote_is()


async def test_secrets_are_references_in_the_remote_cluster(both: TwoClusters) -> None:
    home, remote = both.home.control.stub, both.remote.control.stub
    put = await home.PutSecret(pb.PutSecretRequest(name="db", value=b"hunter2-x"), timeout=10)
    assert put.accepted, put.reason
    await both.run("web", env={"PASSWORD": "secret://db"})

    text = str((await both.remote.control.workload("home--web")).spec)
    assert "hunter2-x" not in text
    assert "secret://home--web." in text

    await both.home.control.delete("web")
    await both.home.control.until_gone("web")
    assert not (await remote.ListSecrets(pb.ListSecretsRequest(), timeout=10)).secrets


async def test_an_id_that_is_too_long_there_is_refused_with_the_limit(both: TwoClusters) -> None:
    name = "w" * 60
    await both.apply(name)

    view = await both.home.control.until(name, "Failed")
    assert view.failure_reason == "INVALID_SPEC"
    assert "1 to 63" in view.reason.message


async def test_metrics(both: TwoClusters) -> None:
    await both.run("web")

    assert both.link.metric("persys_federation_workloads", type="container") == 1
    assert both.link.metric("persys_federation_remote_up") == 1


async def test_an_idle_federation_writes_nothing(both: TwoClusters) -> None:
    await both.run("web")
    await both.run("worker")
    stores = [both.home.store, both.remote.store]

    async def is_quiet() -> bool:
        before = [store.transactions for store in stores]
        await asyncio.sleep(0.5)
        return before == [store.transactions for store in stores]

    await eventually(is_quiet, lambda: "the last change to be written")
    before = [store.transactions for store in stores]
    await asyncio.sleep(IDLE_SECONDS)  # time must pass to see that nothing happens

    assert [store.transactions for store in stores] == before


async def test_the_same_spec_again_changes_nothing_there(both: TwoClusters) -> None:
    await both.run("web")
    before = await both.remote.control.workload("home--web")

    answer = await both.home.control.send(pb.ApplyWorkloadRequest(workload_id="web", spec=a_spec()))
    assert answer.success

    after = await both.remote.control.workload("home--web")
    assert (after.revision_id, after.epoch) == (before.revision_id, before.epoch)


async def test_a_slow_start_there_is_pending_here(tmp_path: Path) -> None:
    """It takes longer than the home cluster waits for a node without progress."""
    home, remote = timedelta(seconds=SLOW_SECONDS / 2), timedelta(minutes=1)
    async with two_clusters(
        tmp_path, home={"agent_apply_timeout": home}, remote={"agent_apply_timeout": remote}
    ) as both:
        await both.remote.control.stub.CordonNode(pb.NodeRequest(node_id="machine"), timeout=10)
        slow = await both.remote.join("slow")
        slow.agent.behaviour.work_seconds = SLOW_SECONDS
        seen = set[str]()
        await both.apply("web")

        async def runs() -> bool:
            view = await both.home.control.workload("web")
            seen.add(f"{view.status} {view.reason.code}")
            return view.status == "Running"

        await eventually(runs, lambda: f"web to run: {seen}")
        assert not [status for status in seen if status.startswith("Failed")], seen
        assert len(slow.agent.applies) == 1
