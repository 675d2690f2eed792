"""Our agent with a scheduler that knows only the contract."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster import Cluster
from e2e.third_party_scheduler import ThirdPartyScheduler
from registry import Registry
from third_party.contract import agent

PENDING = agent.ACTUAL_STATE_PENDING
RUNNING = agent.ACTUAL_STATE_RUNNING
STOPPED = agent.ACTUAL_STATE_STOPPED
FAILED = agent.ACTUAL_STATE_FAILED


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[ThirdPartyScheduler]:
    scheduler = ThirdPartyScheduler(tmp_path / "scheduler")
    scheduler.start()
    yield scheduler
    scheduler.close()


@pytest.fixture
async def node(scheduler: ThirdPartyScheduler, new_cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster of which only the agent runs; it has joined the third-party scheduler."""
    cluster = new_cluster(agent={"PERSYS_SCHEDULER_ADDR": scheduler.address})
    cluster.agent.launch()
    await scheduler.until(lambda: bool(scheduler.heartbeats))
    return cluster


@pytest.fixture
def sleeping(demo_image: str) -> Any:
    return agent.ContainerSpec(
        image=demo_image, command=["sh", "-c", "trap exit TERM; while :; do sleep 0.1; done"]
    )


@pytest.fixture
def empty_registry(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "registry"
    folder.mkdir()
    registry = Registry(folder, private=False)
    yield registry.address
    registry.close()


async def test_a_registration_has_the_fields_of_the_contract(
    scheduler: ThirdPartyScheduler, node: Cluster
) -> None:
    (joined,) = scheduler.registrations

    assert joined.node_id == node.node_id
    assert joined.grpc_endpoint == f"127.0.0.1:{node.agent_port}"
    assert joined.capabilities.cpu_total_millicores > 0
    assert joined.capabilities.memory_total_mb > 0
    assert "container" in joined.capabilities.supported_workload_types
    assert "local" in joined.capabilities.supported_storage_drivers
    assert joined.agent_version


async def test_a_workload_is_applied_updated_and_deleted(
    scheduler: ThirdPartyScheduler, node: Cluster, unique_id: str, sleeping: Any
) -> None:
    response = await scheduler.apply(unique_id, sleeping, revision="r1")
    assert response.applied
    assert response.status.actual_state == PENDING
    assert response.status.metadata["task_id"]
    running = await scheduler.poll_until(unique_id, RUNNING)
    first = node.container(unique_id)
    assert running.metadata["container.id"] == first.id

    again = await scheduler.apply(unique_id, sleeping, revision="r1")
    assert again.skipped
    assert node.container(unique_id) == first

    await scheduler.apply(unique_id, sleeping, revision="r1", desired=agent.DESIRED_STATE_STOPPED)
    await scheduler.poll_until(unique_id, STOPPED)
    assert not node.container(unique_id).running
    await scheduler.apply(unique_id, sleeping, revision="r1")
    await scheduler.poll_until(unique_id, RUNNING)

    sleeping.env["GREETING"] = "hello"
    await scheduler.apply(unique_id, sleeping, revision="r2")
    await scheduler.poll_until(unique_id, RUNNING)
    assert (await scheduler.listed())[unique_id].revision_id == "r2"
    assert node.container(unique_id).id != first.id

    gone = await scheduler.delete(unique_id)
    assert gone.success
    await scheduler.poll_until_not_found(unique_id)
    assert unique_id not in await scheduler.listed()
    assert node.containers() == []


async def test_heartbeats_contain_the_states_of_the_contract(
    scheduler: ThirdPartyScheduler, node: Cluster, unique_id: str, sleeping: Any
) -> None:
    await scheduler.apply(unique_id, sleeping, revision="r1")
    await scheduler.until(lambda: "Running" in scheduler.reported_states(unique_id))
    await scheduler.apply(unique_id, sleeping, revision="r1", desired=agent.DESIRED_STATE_STOPPED)
    await scheduler.until(lambda: "Stopped" in scheduler.reported_states(unique_id))

    assert set(scheduler.reported_states(unique_id)) <= {"Pending", "Running", "Stopped"}
    assert {heartbeat.node_id for heartbeat in scheduler.heartbeats} == {node.node_id}
    assert all(
        heartbeat.HasField("usage") and heartbeat.HasField("timestamp")
        for heartbeat in scheduler.heartbeats
    )


async def test_a_failure_reason_is_in_status_and_heartbeats(
    scheduler: ThirdPartyScheduler,
    node: Cluster,
    unique_id: str,
    sleeping: Any,
    empty_registry: str,
) -> None:
    sleeping.image = f"{empty_registry}/persys-absent:latest"
    await scheduler.apply(unique_id, sleeping, revision="r1")

    failed = await scheduler.poll_until(unique_id, FAILED)
    await scheduler.until(lambda: "Failed" in scheduler.reported_states(unique_id))

    # Each of the two prevents a third-party scheduler from applying it for ever.
    assert failed.metadata["retry_terminal"] == "true"
    assert failed.metadata["failure_reason"] == "IMAGE_NOT_FOUND"
    assert "persys-absent" in failed.metadata["last_error"]


async def test_promise_5_with_a_frozen_scheduler_workloads_continue_and_new_ones_are_refused(
    scheduler: ThirdPartyScheduler, node: Cluster, unique_id: str, sleeping: Any
) -> None:
    await scheduler.apply(unique_id, sleeping, revision="r1")
    await scheduler.poll_until(unique_id, RUNNING)
    before = node.containers()

    scheduler.set_behaviour(frozen=True)
    count = len(scheduler.heartbeats)
    await scheduler.until(lambda: len(scheduler.heartbeats) > count + 1)
    refused = await scheduler.apply(f"{unique_id}-late", sleeping, revision="r1")

    assert not refused.applied
    assert "draining" in refused.message
    assert node.containers() == before

    scheduler.set_behaviour(frozen=False)
    count = len(scheduler.heartbeats)
    await scheduler.until(lambda: len(scheduler.heartbeats) > count + 1)
    await scheduler.apply(f"{unique_id}-late", sleeping, revision="r1")
    await scheduler.poll_until(f"{unique_id}-late", RUNNING)


async def test_an_agent_registers_again_after_a_heartbeat_error(
    scheduler: ThirdPartyScheduler, node: Cluster, unique_id: str, sleeping: Any
) -> None:
    await scheduler.apply(unique_id, sleeping, revision="r1")
    await scheduler.poll_until(unique_id, RUNNING)
    before = node.containers()

    scheduler.set_behaviour(losses=1)
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    count = len(scheduler.heartbeats)
    await scheduler.until(lambda: len(scheduler.heartbeats) > count + 1)

    assert len(scheduler.registrations) == 2
    assert unique_id in {
        status.workload_id for status in scheduler.heartbeats[-1].workload_statuses
    }
    assert node.containers() == before
