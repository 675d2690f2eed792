"""A store that fails, loses replies, or gets another leader."""

import asyncio
from contextlib import AsyncExitStack

import aiohttp
import grpc
import pytest

from persys.errors import FencedError, StoreUnavailableError
from persys.infra.clock import SystemClock
from persys.scheduler.auth.tls import leader_connector
from persys.scheduler.ha.forwarding import LeaderRouter
from persys.scheduler.server import SchedulerServer
from shells.scheduler.harness import Cluster, a_cluster, eventually, fast_settings
from shells.scheduler.stores import FaultyStore


async def health(cluster: Cluster) -> str:
    url = f"http://127.0.0.1:{cluster.settings.metrics_port}/health"
    timeout = aiohttp.ClientTimeout(total=10)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
        return str((await response.json())["status"])


async def until_normal(cluster: Cluster) -> None:
    async def well() -> bool:
        return await health(cluster) == "ok"

    await eventually(well, lambda: "the scheduler to be well again")


async def test_a_failed_commit_is_refused_with_the_reason(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("old")
    await cluster.control.until("old", "Running")
    cluster.store.down = True

    applied = await cluster.control.apply("web")
    assert not applied.success
    assert "the disk is full" in applied.error_message
    stopped = await cluster.control.want("old", "Stopped")
    assert not stopped.success
    deleted = await cluster.control.delete("old")
    assert not deleted.success
    assert "the disk is full" in deleted.error_message
    retried = await cluster.control.retry("old")
    assert not retried.accepted
    late = await cluster.prepare("n2")
    registered = await late.register()
    assert not registered.accepted
    assert "the disk is full" in registered.reason

    # Nothing is half done: it is not shown, not sent and not reserved.
    assert await cluster.control.names() == ["old"]
    assert (await cluster.control.workload("old")).desired_state == "Running"
    assert (await cluster.control.node("n1")).available_cpu_cores == 3.9
    assert [sent.id for sent in node.agent.applies] == ["old"]
    assert node.agent.deletes == []


async def test_reads_and_heartbeats_work_while_the_store_is_down(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    cluster.store.down = True
    await cluster.control.apply("other")

    assert (await cluster.control.workload("web")).status == "Running"
    response = await node.heartbeat()
    assert response.acknowledged
    assert response.drain_node
    assert await health(cluster) == "degraded"
    assert node.agent.running() == {"web"}


async def test_everything_resumes_when_the_store_is_back(cluster: Cluster) -> None:
    node = await cluster.join()
    cluster.store.down = True
    await cluster.control.apply("web")
    cluster.store.down = False
    await until_normal(cluster)
    response = await cluster.control.apply("web")

    assert response.success, response.error_message
    await cluster.control.until("web", "Running")
    assert not (await node.heartbeat()).drain_node


async def test_the_end_of_an_outage_is_detected_without_a_request(cluster: Cluster) -> None:
    node = await cluster.join()
    cluster.store.down = True
    await cluster.control.apply("web")
    assert await health(cluster) == "degraded"
    cluster.store.down = False

    await until_normal(cluster)
    assert not (await node.heartbeat()).drain_node


async def test_observations_of_an_outage_are_written_after_it(cluster: Cluster) -> None:
    node = await cluster.join()
    node.agent.behaviour.work_seconds = 0.3
    await cluster.control.apply("web")
    cluster.store.down = True

    async def running() -> bool:
        return node.agent.running() == {"web"}

    await eventually(running, lambda: "the agent to run it")
    assert (await cluster.control.workload("web")).status == "Pending"
    cluster.store.down = False
    await cluster.control.until("web", "Running")


async def test_a_commit_with_a_lost_reply_is_read_again(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply(
        "first", cpu=1000
    )  # reserves a block of epochs, in a commit of its own
    cluster.store.loses_answers = True
    response = await cluster.control.apply("web", cpu=1000)
    assert not response.success
    assert "the answer was lost" in response.error_message
    cluster.store.loses_answers = False

    # Nothing is written: the scheduler must probe the store on its own.
    async def known() -> bool:
        return await cluster.control.names() == ["first", "web"]

    await eventually(known, lambda: "the scheduler to see what is stored")
    await cluster.control.until("web", "Running")
    assert (await cluster.control.node("n1")).available_cpu_cores == 2
    assert node.agent.running() == {"first", "web"}


async def test_an_apply_after_a_lost_reply_is_decided_on_the_stored_records(
    cluster: Cluster,
) -> None:
    await cluster.join("n1", cpu=2000)
    await cluster.join("n2", cpu=64_000)
    await cluster.control.apply("other", cpu=6400)  # fits only on n2, which is fuller then
    cluster.store.loses_answers = True
    await cluster.control.apply("web", cpu=1500)  # stored on n1
    cluster.store.loses_answers = False
    await until_normal(cluster)
    response = await cluster.control.apply("web", cpu=3000)

    assert response.success, response.error_message
    view = await cluster.control.until("web", "Running")
    assert view.assigned_node_id == "n2"
    assert view.epoch > 2, "other has 1, and web was stored with 2"

    async def free_again() -> bool:
        return (await cluster.control.node("n1")).available_cpu_cores == 2

    await eventually(free_again, lambda: "the room on the first node")
    assert (await cluster.control.node("n2")).available_cpu_cores == 64 - 6.4 - 3


async def test_a_deletion_with_a_lost_reply_is_completed(cluster: Cluster) -> None:
    node = await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    cluster.store.loses_answers = True
    response = await cluster.control.delete("web")
    assert not response.success
    cluster.store.loses_answers = False

    await cluster.control.until_gone("web")
    assert node.agent.running() == set()


async def test_a_registration_with_a_lost_reply_is_completed(cluster: Cluster) -> None:
    node = await cluster.prepare("n1")
    cluster.store.loses_answers = True
    assert not (await node.register()).accepted
    cluster.store.loses_answers = False
    await until_normal(cluster)

    assert (await node.register()).accepted
    await cluster.control.until_node("n1", "Ready")


async def test_no_node_is_overcommitted_while_the_store_fails_intermittently(
    cluster: Cluster,
) -> None:
    node = await cluster.join(cpu=1000)
    cluster.store.commit_seconds = 0.02

    async def toggle_store() -> None:
        for _ in range(6):
            await asyncio.sleep(0.05)
            cluster.store.down = not cluster.store.down
            await asyncio.sleep(0.02)
            cluster.store.loses_answers = not cluster.store.loses_answers

    async def retry_on_conflict(name: str) -> None:
        async def taken() -> bool:
            return (await cluster.control.apply(name, cpu=90)).success

        await eventually(taken, lambda: f"{name} to be taken", within=30)

    names = [f"w{number:02}" for number in range(40)]
    async with asyncio.TaskGroup() as group:
        group.create_task(toggle_store())
        for name in names:
            group.create_task(retry_on_conflict(name))
            await asyncio.sleep(0.005)
    cluster.store.down = cluster.store.loses_answers = False

    async def settled() -> bool:
        return len(await cluster.control.names(status="Running")) == 11

    await eventually(settled, lambda: "eleven to run")
    assert sorted(await cluster.control.names()) == names
    assert len(node.agent.copies) == 11
    assert round((await cluster.control.node("n1")).available_cpu_cores * 1000) == 10


async def test_a_second_scheduler_takes_over_and_the_first_ends(cluster: Cluster) -> None:
    await cluster.join()
    await cluster.control.apply("web")
    await cluster.control.until("web", "Running")
    second = FaultyStore(cluster.store.store)
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(a_cluster(second, fast_settings()))
        assert (await other.control.workload("web")).status == "Running"

        # The first one detects it with its next write, which is not stored.
        with pytest.raises(grpc.aio.AioRpcError):
            await cluster.control.apply("late")
        ended = await cluster.ended()
        assert isinstance(ended, ExceptionGroup)
        fenced, others = ended.split(FencedError)
        assert fenced is not None
        assert others is None
        assert await other.control.names() == ["web"]
        assert (await other.control.apply("next")).success


async def test_a_store_that_is_down_at_the_start_ends_the_scheduler(cluster: Cluster) -> None:
    store = FaultyStore(cluster.store.store)
    store.down = True
    scheduler = SchedulerServer(
        fast_settings(), store, SystemClock(), tls=None, router=LeaderRouter(leader_connector(None))
    )

    with pytest.raises(ExceptionGroup) as error:
        await scheduler.run(asyncio.Event())

    assert error.group_contains(StoreUnavailableError, match="the disk is full")


async def test_a_write_that_arrives_after_the_store_was_read_again_is_refused(
    cluster: Cluster,
) -> None:
    await cluster.join()
    cluster.store.holds_back = True

    assert not (await cluster.control.apply("late")).success
    await until_normal(cluster)

    assert await cluster.control.names() == []
    assert (await cluster.store.store.get("/workloads/late")) is None
    assert (await cluster.control.apply("late")).success
    await cluster.control.until("late", "Running")
