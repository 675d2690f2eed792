"""Containers and stacks that are changed manually while they run, on the real Docker."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from pages import local_page
from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.conftest import docker, eventually
from shells.agent.runtimes.compose.stacks import (
    BINARIES,
    V1_IF_FULL,
    WITHIN,
    apply,
    services,
    stack_agent,
)

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
STOPPED = agent_pb2.ACTUAL_STATE_STOPPED
STOP = agent_pb2.DESIRED_STATE_STOPPED


@pytest.fixture(scope="module")
def looking(
    tmp_path_factory: pytest.TempPathFactory, agent_in: Callable[..., "Agent"], demo_image: str
) -> Iterator["Agent"]:
    """An agent with a short inspection interval: Docker sends no event for a disconnected network."""
    agent = agent_in(tmp_path_factory.mktemp("deviations"), PERSYS_RECONCILE_INTERVAL="0.5s")
    agent.start()
    with closing(agent):
        yield agent


@pytest.fixture(scope="module", params=V1_IF_FULL)
def stacks(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    agent_in: Callable[..., "Agent"],
    demo_image: str,
) -> Iterator["Agent"]:
    directory = tmp_path_factory.mktemp(f"deviations-{request.param}")
    binary = BINARIES[request.param]
    with stack_agent(agent_in, directory, binary, reconcile_interval="0.5s") as agent:
        yield agent


@pytest.fixture
def server(
    shell: Callable[..., agent_pb2.ContainerSpec], free_port: int
) -> agent_pb2.ContainerSpec:
    spec = shell("echo served > /tmp/index.html; exec httpd -f -p 80 -h /tmp", restart="always")
    spec.ports.add(host_port=free_port, container_port=80)
    spec.resources.memory_bytes = 64 << 20
    spec.init = True
    return spec


def is_served(port: int) -> bool:
    return "served" in local_page(port)


def only(agent: "Agent", workload_id: str) -> dict[str, Any]:
    (found,) = json.loads(docker("inspect", *agent.containers(workload_id)))
    return dict(found)


def drift(agent: "Agent", workload_id: str) -> str:
    return agent.status(workload_id).metadata["container.drift"]


def is_healthy(agent: "Agent", workload_id: str) -> bool:
    status = agent.status(workload_id)
    return status.actual_state == RUNNING and not status.metadata["container.drift"]


def test_a_container_that_lost_its_network_is_reattached_without_a_restart(
    looking: "Agent", unique_id: str, server: agent_pb2.ContainerSpec, free_port: int
) -> None:
    looking.apply(unique_id, server)
    eventually(lambda: is_served(free_port), "it serves")
    before = only(looking, unique_id)

    docker("network", "disconnect", "bridge", before["Id"])
    eventually(
        lambda: "network bridge is not attached" in drift(looking, unique_id),
        "the deviation is reported",
    )
    eventually(lambda: is_served(free_port), "it is reachable again")

    after = only(looking, unique_id)
    assert after["Id"] == before["Id"]
    assert after["State"]["StartedAt"] == before["State"]["StartedAt"]
    eventually(lambda: is_healthy(looking, unique_id), "nothing differs")
    assert looking.status(unique_id).metadata["container.ports"] == f"{free_port}->80/tcp"
    looking.delete(unique_id)


def test_limits_restart_policy_and_name_are_repaired_in_place(
    looking: "Agent", unique_id: str, server: agent_pb2.ContainerSpec
) -> None:
    looking.apply(unique_id, server)
    looking.wait_for(unique_id, RUNNING)
    before = only(looking, unique_id)

    limits = ("--memory", "128m", "--memory-swap", "128m", "--restart", "no")
    docker("update", *limits, before["Id"])
    docker("rename", before["Id"], f"{unique_id}-renamed")

    def is_as_created() -> bool:
        now = only(looking, unique_id)
        of_interest = ("Memory", "MemorySwap", "RestartPolicy")
        same = all(now["HostConfig"][name] == before["HostConfig"][name] for name in of_interest)
        return same and now["Name"] == before["Name"]

    eventually(is_as_created, "it is repaired")
    assert only(looking, unique_id)["State"]["StartedAt"] == before["State"]["StartedAt"]
    eventually(lambda: is_healthy(looking, unique_id), "nothing differs")
    looking.delete(unique_id)


def test_a_limit_that_cannot_be_removed_is_reported_until_a_redeploy(
    looking: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    looking.apply(unique_id, sleeper)
    looking.wait_for(unique_id, RUNNING)
    docker("update", "--cpus", "0.5", only(looking, unique_id)["Id"])

    eventually(
        lambda: "NanoCpus is 500000000" in drift(looking, unique_id), "the deviation is reported"
    )
    status = looking.status(unique_id)
    assert (status.actual_state, status.metadata["reason_code"]) == (RUNNING, "Drifted")

    looking.apply(unique_id, sleeper, revision="r2")
    eventually(lambda: is_healthy(looking, unique_id), "it is replaced")
    assert only(looking, unique_id)["HostConfig"]["NanoCpus"] == 0
    looking.delete(unique_id)


def test_a_manually_paused_container_is_resumed(
    looking: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    looking.apply(unique_id, sleeper)
    looking.wait_for(unique_id, RUNNING)
    (container,) = looking.containers(unique_id)

    docker("pause", container)
    eventually(lambda: not only(looking, unique_id)["State"]["Paused"], "it is resumed")

    looking.wait_for(unique_id, RUNNING)
    looking.delete(unique_id)


def test_a_job_that_ends_after_a_repair_is_not_run_twice(
    looking: "Agent", unique_id: str, shell: Callable[..., agent_pb2.ContainerSpec]
) -> None:
    job = shell("trap 'exit 0' TERM; while :; do sleep 0.1; done")
    looking.apply(unique_id, job)
    looking.wait_for(unique_id, RUNNING)
    before = only(looking, unique_id)
    docker("network", "disconnect", "bridge", before["Id"])
    eventually(
        lambda: bool(only(looking, unique_id)["NetworkSettings"]["Networks"]), "it is attached"
    )
    eventually(lambda: is_healthy(looking, unique_id), "nothing differs")

    docker("kill", "--signal", "TERM", before["Id"])

    status = looking.wait_for(unique_id, STOPPED)
    assert status.metadata["container.exit_code"] == "0"
    assert only(looking, unique_id)["State"]["StartedAt"] == before["State"]["StartedAt"]


STACK = """
services:
  web:
    image: persys-test
    command: ["sh", "-c", "echo served > /data/index.html; exec httpd -f -p 80 -h /data"]
    init: true
    ports: ["{port}:80"]
    networks: [default, back]
    volumes: ["/data"]
  db:
    image: persys-test
    command: ["sleep", "3600"]
    init: true
    mem_limit: 64m
  migrate: {{image: persys-test, command: ["true"]}}
networks: {{back: }}
"""


def apply_stack(agent: "Agent", workload_id: str, port: int, **parts: Any) -> None:
    response = apply(agent, workload_id, STACK.format(port=port), **parts)
    assert response.applied, response.message


def run_of(service: dict[str, Any]) -> tuple[str, str]:
    return service["Id"], service["State"]["StartedAt"]


def networks_of(service: dict[str, Any]) -> set[str]:
    return set(service["NetworkSettings"]["Networks"])


def test_a_stack_container_that_lost_a_network_is_repaired_with_port_and_data(
    stacks: "Agent", unique_id: str, free_port: int
) -> None:
    apply_stack(stacks, unique_id, free_port)
    eventually(lambda: is_served(free_port), "it serves", within=WITHIN)
    eventually(
        lambda: is_healthy(stacks, unique_id), "the stack runs without deviations", within=WITHIN
    )
    before = services(stacks, unique_id)
    (data,) = (mount["Name"] for mount in before["web"]["Mounts"])

    for network in networks_of(before["web"]):
        docker("network", "disconnect", network, before["web"]["Id"])
    assert not is_served(free_port)
    eventually(
        lambda: is_served(free_port) and is_healthy(stacks, unique_id), "repaired", within=WITHIN
    )

    after = services(stacks, unique_id)
    assert networks_of(after["web"]) == networks_of(before["web"])
    assert [mount["Name"] for mount in after["web"]["Mounts"]] == [data]
    for untouched in ("db", "migrate"):
        assert run_of(after[untouched]) == run_of(before[untouched])
    assert "web" in docker("exec", after["db"]["Id"], "ping", "-c1", "-W2", "web")

    # Another network only, then limits and a name.
    lost = next(name for name in networks_of(after["web"]) if name.endswith("back"))
    docker("network", "disconnect", lost, after["web"]["Id"])
    docker("update", "--memory", "128m", "--memory-swap", "256m", after["db"]["Id"])
    docker("rename", after["db"]["Id"], f"{unique_id}-renamed")

    def is_repaired() -> bool:
        now = services(stacks, unique_id)
        return (
            "web" in now
            and lost in networks_of(now["web"])
            and now["db"]["HostConfig"]["Memory"] == 64 << 20
            and now["db"]["Name"] == before["db"]["Name"]
        )

    eventually(is_repaired, "network, limit and name are repaired", within=WITHIN)
    assert run_of(services(stacks, unique_id)["db"]) == run_of(before["db"])
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


def test_a_stack_starts_after_its_network_was_removed_while_stopped(
    stacks: "Agent", unique_id: str, free_port: int
) -> None:
    apply_stack(stacks, unique_id, free_port)
    eventually(
        lambda: is_healthy(stacks, unique_id), "the stack runs without deviations", within=WITHIN
    )
    networks = networks_of(services(stacks, unique_id)["web"])
    apply_stack(stacks, unique_id, free_port, desired=STOP)
    stacks.wait_for(unique_id, STOPPED, within=WITHIN)

    docker("network", "rm", *networks)
    apply_stack(stacks, unique_id, free_port)

    eventually(lambda: is_served(free_port), "it serves", within=WITHIN)
    assert networks_of(services(stacks, unique_id)["web"]) == networks
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


@pytest.mark.parametrize("stacks", ["v2"], indirect=True)
def test_a_new_revision_recreates_deviating_containers(
    stacks: "Agent", unique_id: str, free_port: int
) -> None:
    apply_stack(stacks, unique_id, free_port)
    eventually(
        lambda: is_healthy(stacks, unique_id), "the stack runs without deviations", within=WITHIN
    )
    before = services(stacks, unique_id)
    docker("update", "--cpus", "0.5", before["web"]["Id"])
    eventually(lambda: "NanoCpus" in drift(stacks, unique_id), "the deviation is reported")

    apply_stack(stacks, unique_id, free_port, revision="r2")

    eventually(lambda: is_healthy(stacks, unique_id), "nothing differs", within=WITHIN)
    after = services(stacks, unique_id)
    assert after["web"]["HostConfig"]["NanoCpus"] == 0
    assert run_of(after["db"]) == run_of(before["db"])
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


JOINED = """
services:
  vpn: {image: persys-test, command: ["sleep", "3600"], init: true}
  app: {image: persys-test, command: ["sleep", "3600"], init: true, network_mode: "service:vpn"}
"""


@pytest.mark.parametrize("stacks", ["v2"], indirect=True)
def test_a_service_follows_the_network_of_a_restarted_service(
    stacks: "Agent", unique_id: str
) -> None:
    request = agent_pb2.ApplyWorkloadRequest(
        id=unique_id,
        type=agent_pb2.WORKLOAD_TYPE_COMPOSE,
        revision_id="r1",
        desired_state=agent_pb2.DESIRED_STATE_RUNNING,
        spec=agent_pb2.WorkloadSpec(compose=agent_pb2.ComposeSpec(compose_yaml=JOINED)),
    )
    stacks.stub.ApplyWorkload(request, timeout=10)
    eventually(
        lambda: is_healthy(stacks, unique_id), "the stack runs without deviations", within=WITHIN
    )

    docker("restart", "-t", "1", services(stacks, unique_id)["vpn"]["Id"])

    def has_a_route() -> bool:
        try:
            app = services(stacks, unique_id)["app"]["Id"]
            return "eth0" in docker("exec", app, "cat", "/proc/net/route")
        except (KeyError, subprocess.CalledProcessError):  # it is being replaced
            return False

    eventually(has_a_route, "it has the new network", within=WITHIN)
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)
