"""Workloads that run once on the real Docker: no failure makes them run a second time."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc
import pytest

from persys.agent.workloads import failpoints
from persys.core.agent.progress import Step
from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.conftest import docker

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING, STOPPED, FAILED = (
    agent_pb2.ACTUAL_STATE_RUNNING,
    agent_pb2.ACTUAL_STATE_STOPPED,
    agent_pb2.ACTUAL_STATE_FAILED,
)
Shell = Callable[..., agent_pb2.ContainerSpec]


def a_job(shell: Shell, line: str) -> agent_pb2.ContainerSpec:
    """Writes a line to a volume for each of its starts. Its restart policy does not matter."""
    spec = shell(f"echo started >> /data/starts; {line}", restart="always")
    spec.managed_volumes.add(name="data", mount_path="/data")
    spec.stop_grace_seconds = 1
    return spec


def starts(agent: "Agent", workload_id: str) -> int:
    path = agent.volumes / workload_id / "data" / "starts"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_job_has_its_exit_code_and_is_not_started_again_by_its_order(
    agent: "Agent", unique_id: str, shell: Shell
) -> None:
    job = a_job(shell, "exit 0")
    agent.apply(unique_id, job, run_once=True)
    status = agent.wait_for(unique_id, STOPPED)
    assert status.metadata["reason_code"] == "Completed"
    assert status.metadata["container.exit_code"] == "0"
    assert "run.started_at" in status.metadata
    failing = a_job(shell, "exit 3")
    agent.apply(f"{unique_id}-2", failing, run_once=True)
    agent.wait_for(f"{unique_id}-2", FAILED)

    assert agent.apply(unique_id, job, run_once=True).skipped
    assert agent.apply(f"{unique_id}-2", failing, run_once=True).applied

    status = agent.wait_for(f"{unique_id}-2", FAILED)
    assert status.metadata["container.exit_code"] == "3"
    assert status.metadata["retry_terminal"] == "true"
    assert starts(agent, unique_id) == starts(agent, f"{unique_id}-2") == 1


@pytest.mark.parametrize(
    ("loss", "code"),
    [(("kill",), "Exited"), (("rm", "-f"), "Interrupted")],
    ids=["killed", "removed"],
)
def test_a_job_whose_agent_and_container_are_killed_is_not_started_again(
    new_agent: "Callable[..., Agent]",
    unique_id: str,
    shell: Shell,
    loss: tuple[str, ...],
    code: str,
) -> None:
    agent = new_agent()
    agent.start()
    job = a_job(shell, "exec sleep 3600")
    agent.apply(unique_id, job, run_once=True)
    container = agent.wait_for(unique_id, RUNNING).metadata["container.id"]
    agent.kill()
    docker(*loss, container)

    agent.start()

    status = agent.wait_for(unique_id, FAILED)
    assert status.metadata["reason_code"] == code
    assert status.metadata["retry_terminal"] == "true"
    agent.apply(unique_id, job, run_once=True)  # a repeated order
    assert agent.wait_for(unique_id, FAILED).metadata["reason_code"] == code
    assert starts(agent, unique_id) == 1


@pytest.mark.parametrize(
    "point",
    [
        failpoints.ACCEPTED,
        failpoints.AFTER_STEP[Step.CREATE],
        failpoints.LAUNCHING,
        failpoints.AFTER_STEP[Step.START],
        failpoints.SETTLED,
    ],
)
def test_an_agent_that_dies_around_the_start_of_a_job_never_starts_it_twice(
    new_agent: "Callable[..., Agent]", unique_id: str, shell: Shell, point: str
) -> None:
    agent = new_agent()
    agent.start(failpoint=point)
    job = a_job(shell, "exit 0")
    with suppress(grpc.RpcError):
        agent.apply(unique_id, job, run_once=True)
    agent.wait_until_dead()

    agent.start()

    agent.apply(unique_id, job, run_once=True)
    interrupted = point == failpoints.LAUNCHING
    status = agent.wait_for(unique_id, FAILED if interrupted else STOPPED)
    assert status.metadata["reason_code"] == ("Interrupted" if interrupted else "Completed")
    assert starts(agent, unique_id) == (0 if interrupted else 1)


def test_a_job_is_stopped_at_its_deadline_also_after_a_restart_of_the_agent(
    new_agent: "Callable[..., Agent]", unique_id: str, shell: Shell
) -> None:
    agent = new_agent(PERSYS_RECONCILE_INTERVAL="1h")
    agent.start()
    agent.apply(unique_id, a_job(shell, "exec sleep 3600"), run_once=True, run_deadline=2)
    later = f"{unique_id}-2"
    traps = "trap 'exit 0' TERM; while true; do sleep 0.1; done"
    agent.apply(later, a_job(shell, traps), run_once=True, run_deadline=15)

    status = agent.wait_for(unique_id, FAILED)
    assert status.metadata["reason_code"] == "DeadlineExceeded"
    assert status.metadata["retry_terminal"] == "true"
    agent.wait_for(later, RUNNING)
    agent.kill()
    agent.start()

    assert agent.wait_for(later, FAILED).metadata["reason_code"] == "DeadlineExceeded"
    assert agent.status(unique_id).metadata["reason_code"] == "DeadlineExceeded"
    assert agent.containers(running=True) == []
    assert starts(agent, unique_id) == starts(agent, later) == 1
