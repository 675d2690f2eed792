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
def field(tmp_path: Path) -> Iterator[ThirdPartyScheduler]:
    scheduler = ThirdPartyScheduler(tmp_path / "scheduler")
    scheduler.start()
    yield scheduler
    scheduler.close()


@pytest.fixture
async def node(field: ThirdPartyScheduler, new_cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster of which only the agent runs; it has joined the third-party scheduler."""
    cluster = new_cluster(agent={"PERSYS_SCHEDULER_ADDR": field.address})
    cluster.agent.launch()
    await field.until(lambda: bool(field.heartbeats))
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
    field: ThirdPartyScheduler, node: Cluster
) -> None:
    (joined,) = field.registrations

    assert joined.node_id == node.node_id
    assert joined.grpc_endpoint == f"127.0.0.1:{node.agent_port}"
    assert joined.capabilities.cpu_total_millicores > 0
    assert joined.capabilities.memory_total_mb > 0
    assert "container" in joined.capabilities.supported_workload_types
    assert "local" in joined.capabilities.supported_storage_drivers
    assert joined.agent_version


async def test_a_workload_is_applied_updated_and_deleted(
    field: ThirdPartyScheduler, node: Cluster, unique_id: str, sleeping: Any
) -> None:
    answer = await field.apply(unique_id, sleeping, revision="r1")
    assert answer.applied
    assert answer.status.actual_state == PENDING
    assert answer.status.metadata["task_id"]
    running = await field.poll_until(unique_id, RUNNING)
    first = node.container(unique_id)
    assert running.metadata["container.id"] == first.id

    again = await field.apply(unique_id, sleeping, revision="r1")
    assert again.skipped
    assert node.container(unique_id) == first

    await field.apply(unique_id, sleeping, revision="r1", desired=agent.DESIRED_STATE_STOPPED)
    await field.poll_until(unique_id, STOPPED)
    assert not node.container(unique_id).running
    await field.apply(unique_id, sleeping, revision="r1")
    await field.poll_until(unique_id, RUNNING)

    sleeping.env["GREETING"] = "hello"
    await field.apply(unique_id, sleeping, revision="r2")
    await field.poll_until(unique_id, RUNNING)
    assert (await field.listed())[unique_id].revision_id == "r2"
    assert node.container(unique_id).id != first.id

    gone = await field.delete(unique_id)
    assert gone.success
    await field.poll_until_not_found(unique_id)
    assert unique_id not in await field.listed()
    assert node.containers() == []


async def test_heartbeats_contain_the_states_of_the_contract(
    field: ThirdPartyScheduler, node: Cluster, unique_id: str, sleeping: Any
) -> None:
    await field.apply(unique_id, sleeping, revision="r1")
    await field.until(lambda: "Running" in field.reported_states(unique_id))
    await field.apply(unique_id, sleeping, revision="r1", desired=agent.DESIRED_STATE_STOPPED)
    await field.until(lambda: "Stopped" in field.reported_states(unique_id))

    assert set(field.reported_states(unique_id)) <= {"Pending", "Running", "Stopped"}
    assert {beat.node_id for beat in field.heartbeats} == {node.node_id}
    assert all(beat.HasField("usage") and beat.HasField("timestamp") for beat in field.heartbeats)


async def test_a_failure_reason_is_in_status_and_heartbeats(
    field: ThirdPartyScheduler, node: Cluster, unique_id: str, sleeping: Any, empty_registry: str
) -> None:
    sleeping.image = f"{empty_registry}/persys-absent:latest"
    await field.apply(unique_id, sleeping, revision="r1")

    failed = await field.poll_until(unique_id, FAILED)
    await field.until(lambda: "Failed" in field.reported_states(unique_id))

    # Each of the two prevents a third-party scheduler from applying it for ever.
    assert failed.metadata["retry_terminal"] == "true"
    assert failed.metadata["failure_reason"] == "IMAGE_NOT_FOUND"
    assert "persys-absent" in failed.metadata["last_error"]


async def test_promise_5_with_a_frozen_scheduler_workloads_continue_and_new_ones_are_refused(
    field: ThirdPartyScheduler, node: Cluster, unique_id: str, sleeping: Any
) -> None:
    await field.apply(unique_id, sleeping, revision="r1")
    await field.poll_until(unique_id, RUNNING)
    before = node.containers()

    field.habit(frozen=True)
    count = len(field.heartbeats)
    await field.until(lambda: len(field.heartbeats) > count + 1)
    refused = await field.apply(f"{unique_id}-late", sleeping, revision="r1")

    assert not refused.applied
    assert "draining" in refused.message
    assert node.containers() == before

    field.habit(frozen=False)
    count = len(field.heartbeats)
    await field.until(lambda: len(field.heartbeats) > count + 1)
    await field.apply(f"{unique_id}-late", sleeping, revision="r1")
    await field.poll_until(f"{unique_id}-late", RUNNING)


async def test_an_agent_registers_again_after_a_heartbeat_error(
    field: ThirdPartyScheduler, node: Cluster, unique_id: str, sleeping: Any
) -> None:
    await field.apply(unique_id, sleeping, revision="r1")
    await field.poll_until(unique_id, RUNNING)
    before = node.containers()

    field.habit(losses=1)
    await field.until(lambda: len(field.registrations) == 2)
    count = len(field.heartbeats)
    await field.until(lambda: len(field.heartbeats) > count + 1)

    assert len(field.registrations) == 2
    assert unique_id in {status.workload_id for status in field.heartbeats[-1].workload_statuses}
    assert node.containers() == before
