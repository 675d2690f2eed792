"""Containers that exit: completed, failed, in a crash loop, or stopped manually."""

import time
from typing import TYPE_CHECKING

from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.conftest import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
STOPPED = agent_pb2.ACTUAL_STATE_STOPPED
FAILED = agent_pb2.ACTUAL_STATE_FAILED


def test_a_completed_container_is_not_restarted(
    agent: "Agent",
    unique_id: str,
    shell: "Callable[..., agent_pb2.ContainerSpec]",
    run_docker: "Callable[..., str]",
) -> None:
    job = shell("exit 0", restart="on-failure")
    agent.apply(unique_id, job)
    done = agent.wait_for(unique_id, STOPPED)

    assert done.metadata["reason_code"] == "Completed"
    assert agent.apply(unique_id, job).skipped
    run_docker("rm", *agent.containers(unique_id))
    time.sleep(0.5)  # enough time to restart it, if it were restarted
    assert agent.status(unique_id).metadata["reason_code"] == "Completed"
    assert agent.containers(unique_id) == []


def test_a_completed_container_runs_again_for_a_new_revision(
    agent: "Agent", unique_id: str, shell: "Callable[..., agent_pb2.ContainerSpec]"
) -> None:
    job = shell("exit 0")
    agent.apply(unique_id, job)
    first = agent.wait_for(unique_id, STOPPED)
    agent.apply(unique_id, job, desired=agent_pb2.DESIRED_STATE_STOPPED)
    agent.wait_for(unique_id, STOPPED)

    agent.apply(unique_id, job)
    again = agent.wait_for(unique_id, STOPPED)

    assert again.metadata["reason_code"] == "Completed"
    assert again.metadata["container.started_at"] > first.metadata["container.started_at"]


def test_a_failed_container_reports_exit_code_and_log_tail(
    agent: "Agent", unique_id: str, shell: "Callable[..., agent_pb2.ContainerSpec]"
) -> None:
    agent.apply(unique_id, shell("echo the database is gone >&2; exit 3"))

    status = agent.wait_for(unique_id, FAILED)

    assert status.message == "exited with code 3"
    assert status.metadata["failure_reason"] == "RUNTIME_ERROR"
    assert status.metadata["retry_terminal"] == "true"
    assert status.metadata["container.exit_code"] == "3"
    assert status.metadata["container.stderr"] == "the database is gone"


def test_the_log_tail_is_bounded(
    agent: "Agent", unique_id: str, shell: "Callable[..., agent_pb2.ContainerSpec]"
) -> None:
    agent.apply(unique_id, shell("seq 1 20000 >&2; echo last words >&2; exit 1"))

    tail = agent.wait_for(unique_id, FAILED).metadata["container.stderr"]

    assert tail.endswith("last words")
    assert len(tail.encode()) <= 4096


def test_a_failed_container_is_retried_by_a_repeated_order(
    agent: "Agent", unique_id: str, shell: "Callable[..., agent_pb2.ContainerSpec]"
) -> None:
    job = shell("exit 1")
    agent.apply(unique_id, job)
    first = agent.wait_for(unique_id, FAILED)

    response = agent.apply(unique_id, job)

    assert response.applied
    assert not response.skipped
    again = agent.wait_for(unique_id, FAILED)
    assert again.metadata["container.started_at"] > first.metadata["container.started_at"]


def test_a_container_that_exceeds_its_retries_stays_failed(
    agent: "Agent", unique_id: str, shell: "Callable[..., agent_pb2.ContainerSpec]"
) -> None:
    agent.apply(unique_id, shell("exit 4", restart="on-failure", retries_max=2))

    status = agent.wait_for(unique_id, FAILED)

    assert status.metadata["container.restart_count"] == "2"
    assert status.metadata["reason_code"] == "Exited"


def test_a_crash_loop_is_reported_and_cleared_once_the_container_stays_up(
    agent: "Agent", unique_id: str, shell: "Callable[..., agent_pb2.ContainerSpec]", free_port: int
) -> None:
    flaky = shell(
        "n=$(cat /data/n 2>/dev/null || echo 0); echo $((n+1)) > /data/n;"
        "[ $n -ge 4 ] && exec sleep 3600; echo crash >&2; exit 1",
        restart="always",
    )
    flaky.managed_volumes.add(name="data", mount_path="/data")
    flaky.stop_grace_seconds = 1
    agent.apply(unique_id, flaky)

    status = agent.wait_for(unique_id, FAILED)
    assert status.metadata["reason_code"] == "CrashLoop"
    assert status.metadata["retry_terminal"] == "true"
    assert "crash" in status.metadata["container.stderr"]
    agent.wait_for(unique_id, RUNNING, within=25)


def test_restarts_are_counted_also_after_a_manual_one_and_a_restart_of_the_agent(
    new_agent: "Callable[..., Agent]",
    unique_id: str,
    shell: "Callable[..., agent_pb2.ContainerSpec]",
    run_docker: "Callable[..., str]",
) -> None:
    agent = new_agent(PERSYS_RECONCILE_INTERVAL="1h")
    agent.start()
    # It exits once; later it runs until it is killed.
    agent.apply(
        unique_id,
        shell("[ -e /ran ] && exec sleep 3600; touch /ran; exit 1", restart="always"),
    )

    def count() -> int:
        return int(agent.status(unique_id).metadata.get("container.restart_count", "-1"))

    eventually(lambda: count() == 1, "the automatic restart is counted")
    container = agent.wait_for(unique_id, RUNNING).metadata["container.id"]

    run_docker("restart", "-t", "0", container)  # Docker counts from 0 again

    eventually(lambda: count() == 2, "the manual restart is counted")
    agent.kill()
    run_docker("restart", "-t", "0", container)
    agent.start()
    eventually(lambda: count() == 3, "the restart without the agent is counted")


def test_a_manually_removed_container_is_recreated_within_two_seconds(
    agent: "Agent",
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
    run_docker: "Callable[..., str]",
) -> None:
    agent.apply(unique_id, sleeper)
    old = agent.wait_for(unique_id, RUNNING).metadata["container.id"]

    run_docker("rm", "-f", old)

    removed_at = time.monotonic()
    while agent.containers(unique_id, running=True) in ([], [old]):
        assert time.monotonic() - removed_at < 2
    agent.wait_for(unique_id, RUNNING)


def test_a_manually_stopped_container_is_restarted(
    agent: "Agent",
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
    run_docker: "Callable[..., str]",
) -> None:
    agent.apply(unique_id, sleeper)
    container = agent.wait_for(unique_id, RUNNING).metadata["container.id"]

    run_docker("stop", "-t", "1", container)

    stopped_at = time.monotonic()
    while not agent.containers(unique_id, running=True):
        assert time.monotonic() - stopped_at < 2
    assert agent.wait_for(unique_id, RUNNING).metadata["container.id"] == container


def test_a_manually_paused_container_is_unpaused(
    agent: "Agent",
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
    run_docker: "Callable[..., str]",
) -> None:
    agent.apply(unique_id, sleeper)
    container = agent.wait_for(unique_id, RUNNING).metadata["container.id"]

    run_docker("pause", container)

    deadline = time.monotonic() + 2
    while run_docker("inspect", "-f", "{{.State.Status}}", container) != "running":
        assert time.monotonic() < deadline
