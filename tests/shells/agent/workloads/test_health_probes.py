"""Health checks of every kind on the real Docker."""

from collections.abc import Callable, Iterator

import pytest

from persys.agent.workloads import failpoints
from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.conftest import RUNNING, Agent, docker, eventually

HTTPD = "mkdir -p /www && echo fine > /www/ready && exec httpd -f -p 8000 -h /www"
HTTP = agent_pb2.HealthCheck(
    type="http", port=8000, path="/ready", interval_seconds=1, timeout_seconds=1, retries=2
)


@pytest.fixture
def server(demo_image: str) -> agent_pb2.ContainerSpec:
    """Serves /ready on port 8000, which is not published."""
    return agent_pb2.ContainerSpec(image=demo_image, command=["sh", "-c", HTTPD], init=True)


@pytest.fixture
def checked(
    agent: Agent, server: agent_pb2.ContainerSpec, unique_id: str
) -> Iterator[Callable[[agent_pb2.HealthCheck], str]]:
    """Runs the server with a health check. Returns its id."""

    def run(check: agent_pb2.HealthCheck) -> str:
        server.health_check.CopyFrom(check)
        agent.apply(unique_id, server)
        return unique_id

    yield run
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)


def until_health(agent: Agent, workload_id: str, wanted: str) -> agent_pb2.WorkloadStatus:
    found = agent_pb2.WorkloadStatus()

    def holds_now() -> bool:
        nonlocal found
        found = agent.status(workload_id)
        return found.metadata.get("container.health") == wanted

    eventually(holds_now, f"{workload_id} is {wanted}")
    return found


@pytest.mark.parametrize(
    "check",
    [
        HTTP,
        agent_pb2.HealthCheck(type="tcp", port=8000, interval_seconds=1, retries=2),
        agent_pb2.HealthCheck(
            type="exec", command=["cat", "/www/ready"], interval_seconds=1, retries=2
        ),
    ],
    ids=["http", "tcp", "exec"],
)
def test_a_workload_that_passes_its_check_is_healthy(
    agent: Agent, checked: Callable[[agent_pb2.HealthCheck], str], check: agent_pb2.HealthCheck
) -> None:
    status = until_health(agent, checked(check), "healthy")

    assert status.actual_state == RUNNING


def test_a_workload_that_fails_its_check_is_unhealthy_until_it_passes(
    agent: Agent, checked: Callable[[agent_pb2.HealthCheck], str]
) -> None:
    workload_id = checked(HTTP)
    until_health(agent, workload_id, "healthy")
    (container,) = agent.containers(workload_id)

    agent.inside(workload_id, "rm", "/www/ready")
    status = until_health(agent, workload_id, "unhealthy")

    assert status.actual_state == RUNNING
    assert status.message == "unhealthy: GET /ready on port 8000: status 404"
    assert status.metadata["reason_code"] == "Unhealthy"

    agent.inside(workload_id, "touch", "/www/ready")
    status = until_health(agent, workload_id, "healthy")

    assert status.message == ""
    assert agent.containers(workload_id, running=True) == [container]


def test_failures_before_the_first_success_are_counted(
    agent: Agent, checked: Callable[[agent_pb2.HealthCheck], str]
) -> None:
    workload_id = checked(
        agent_pb2.HealthCheck(type="tcp", port=9, interval_seconds=1, retries=1000)
    )

    def failures() -> int:
        found = agent.status(workload_id).metadata.get("container.health_failures", "0 of 1000")
        return int(found.removesuffix(" of 1000"))

    eventually(lambda: failures() >= 2, "two failures are reported")
    assert agent.status(workload_id).metadata["container.health"] == "starting"


def test_an_unhealthy_workload_is_restarted_if_its_check_requires_it(
    agent: Agent, checked: Callable[[agent_pb2.HealthCheck], str]
) -> None:
    check = agent_pb2.HealthCheck()
    check.CopyFrom(HTTP)
    check.restart_unhealthy = True
    workload_id = checked(check)
    before = until_health(agent, workload_id, "healthy").metadata["container.started_at"]

    agent.inside(workload_id, "rm", "/www/ready")  # the command creates it again
    until_health(agent, workload_id, "unhealthy")
    status = until_health(agent, workload_id, "healthy")

    assert status.metadata["container.started_at"] > before
    assert status.actual_state == RUNNING


def test_a_command_check_reports_the_output_of_the_command(
    agent: Agent, checked: Callable[[agent_pb2.HealthCheck], str]
) -> None:
    check = agent_pb2.HealthCheck(
        command=["sh", "-c", "echo out of ink; false"], interval_seconds=1, retries=1
    )

    assert until_health(agent, checked(check), "unhealthy").message == "unhealthy: out of ink"


def test_health_survives_a_restart_of_the_agent(
    new_agent: Callable[..., Agent], server: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    agent = new_agent()
    agent.start()
    server.health_check.CopyFrom(HTTP)
    server.health_check.interval_seconds = 3600
    server.health_check.retries = 1
    server.command[:] = ["sh", "-c", f"sleep 1; {HTTPD}"]
    server.health_check.start_period_seconds = 60
    agent.apply(unique_id, server)
    before = until_health(agent, unique_id, "healthy")
    agent.kill()
    agent.start()
    status = agent.status(unique_id)

    assert status.metadata["container.health"] == "healthy"
    assert status.metadata["container.id"] == before.metadata["container.id"]
    until_health(agent, unique_id, "healthy")


def test_a_crash_during_a_health_restart_restarts_once(
    new_agent: Callable[..., Agent], server: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    agent = new_agent()
    agent.start(failpoint=failpoints.RESTARTED)
    server.health_check.CopyFrom(HTTP)
    server.health_check.restart_unhealthy = True
    agent.apply(unique_id, server)
    before = until_health(agent, unique_id, "healthy").metadata
    agent.inside(unique_id, "rm", "/www/ready")
    agent.wait_until_dead()
    (container,) = agent.containers(unique_id, running=True)
    started_at = docker("inspect", "-f", "{{.State.StartedAt}}", container)
    agent.start()
    until_health(agent, unique_id, "healthy")

    assert container == before["container.id"]
    assert docker("inspect", "-f", "{{.State.StartedAt}}", container) == started_at
    assert agent.containers(unique_id, running=True) == [container]


def test_a_workload_without_a_check_has_no_health(
    agent: Agent, checked: Callable[[agent_pb2.HealthCheck], str]
) -> None:
    workload_id = checked(agent_pb2.HealthCheck(type="none"))

    status = agent.wait_for(workload_id, RUNNING)
    assert "container.health" not in status.metadata
