"""PERSYS_RECONCILE_ENABLED=false on real containers: nothing is repaired without an order."""

import time
from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.agent.v1 import agent_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
STOPPED = agent_pb2.ACTUAL_STATE_STOPPED
FAILED = agent_pb2.ACTUAL_STATE_FAILED
LONG_ENOUGH_SECONDS = 1.5  # several reconcile passes


@pytest.fixture(scope="module")
def observer(
    tmp_path_factory: pytest.TempPathFactory, agent_in: "Callable[..., Agent]"
) -> "Iterator[Agent]":
    directory: Path = tmp_path_factory.mktemp("observer")
    agent = agent_in(directory, PERSYS_RECONCILE_ENABLED="no", PERSYS_RECONCILE_INTERVAL="200ms")
    agent.start()
    yield agent
    agent.close()


def test_a_removed_container_is_only_reported_until_a_new_order(
    observer: "Agent",
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
    run_docker: "Callable[..., str]",
) -> None:
    observer.apply(unique_id, sleeper)
    observer.wait_for(unique_id, RUNNING)
    run_docker("rm", "-f", *observer.containers(unique_id))

    status = observer.wait_for(unique_id, FAILED)
    time.sleep(LONG_ENOUGH_SECONDS)

    assert status.metadata["reason_code"] == "NotReconciled"
    assert status.metadata["retry_terminal"] == "true"
    assert observer.containers(unique_id) == []
    observer.apply(unique_id, sleeper)
    observer.wait_for(unique_id, RUNNING)


def test_a_manually_stopped_container_is_reported_until_it_is_started_manually(
    observer: "Agent",
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
    run_docker: "Callable[..., str]",
) -> None:
    observer.apply(unique_id, sleeper)
    observer.wait_for(unique_id, RUNNING)
    run_docker("stop", "-t", "1", *observer.containers(unique_id))

    status = observer.wait_for(unique_id, FAILED)
    time.sleep(LONG_ENOUGH_SECONDS)

    assert status.metadata["container.state"] == "exited"
    assert observer.containers(unique_id, running=True) == []
    run_docker("start", *observer.containers(unique_id))
    observer.wait_for(unique_id, RUNNING)


def test_update_stop_and_delete_orders_are_performed(
    observer: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    observer.apply(unique_id, sleeper)
    observer.wait_for(unique_id, RUNNING)
    sleeper.env["NEW"] = "revision"

    observer.apply(unique_id, sleeper, revision="r2")
    observer.wait_for(unique_id, RUNNING)
    assert observer.inside(unique_id, "sh", "-c", "echo $NEW") == "revision"
    observer.apply(unique_id, sleeper, revision="r2", desired=agent_pb2.DESIRED_STATE_STOPPED)
    observer.wait_for(unique_id, STOPPED)
    observer.delete(unique_id)
    observer.wait_until_gone(unique_id)
