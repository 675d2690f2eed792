"""Compose stacks on the real Docker, with Compose v1 and v2."""

import socket
import stat
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.conftest import docker
from shells.agent.runtimes.compose.stacks import (
    BINARIES,
    V1_IF_FULL,
    WITHIN,
    runs,
    services,
    stack_agent,
    until,
)
from shells.agent.runtimes.compose.stacks import apply as apply_stack

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
STOPPED = agent_pb2.ACTUAL_STATE_STOPPED
FAILED = agent_pb2.ACTUAL_STATE_FAILED
STOP = agent_pb2.DESIRED_STATE_STOPPED
both = pytest.mark.parametrize("stacks", BINARIES, indirect=True)
# The calls to Docker are the same with both versions.
one_compose = pytest.mark.parametrize("stacks", ["v2"], indirect=True)

STACK = """
    services:
      web:
        image: persys-test
        command: ["sh", "-c", "sleep 3600"]
        init: true
        environment: {COLOUR: "${COLOUR:-none}"}
        volumes: ["data:/data"]
        depends_on: [db]
      db:
        image: persys-test
        command: ["sleep", "3600"]
        init: true
        restart: unless-stopped
        mem_limit: 64m
      migrate:
        image: persys-test
        command: ["sh", "-c", "echo ran >> /data/migrated"]
        volumes: ["data:/data"]
    volumes: {data: }
    """


@pytest.fixture(scope="module", params=V1_IF_FULL)
def stacks(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    agent_in: Callable[..., "Agent"],
    demo_image: str,
) -> Iterator["Agent"]:
    """An agent with Compose v1 or v2."""
    with stack_agent(
        agent_in,
        tmp_path_factory.mktemp(f"compose-{request.param}"),
        BINARIES[request.param],
        PERSYS_CREDENTIALS_DIR=str(tmp_path_factory.mktemp("credentials")),
    ) as agent:
        yield agent


def apply(
    agent: "Agent", workload_id: str, text: str = STACK, **parts: Any
) -> agent_pb2.ApplyWorkloadResponse:
    return apply_stack(agent, workload_id, text, **parts)


def inside(agent: "Agent", workload_id: str, *command: str) -> str:
    return docker("exec", services(agent, workload_id)["web"]["Id"], *command)


def leftovers(agent: "Agent", workload_id: str, kind: str) -> list[str]:
    filters = (f"label=persys.node_id={agent.node_id}", f"label=persys.workload_id={workload_id}")
    return docker(kind, "ls", "-q", "--filter", filters[0], "--filter", filters[1]).split()


def settled(agent: "Agent", workload_id: str, words: str) -> agent_pb2.WorkloadStatus:
    """Wait until the stack runs with these services."""
    deadline = time.monotonic() + WITHIN
    while (status := agent.status(workload_id)).metadata["compose.services"] != words or (
        status.actual_state != RUNNING
    ):
        assert time.monotonic() < deadline, f"not within {WITHIN} s: {status}"
        time.sleep(0.05)
    return status


WELL = "db=running,migrate=completed,web=running"


@both
def test_a_stack_from_its_first_order_to_its_deletion(stacks: "Agent", unique_id: str) -> None:
    assert apply(stacks, unique_id).applied
    status = settled(stacks, unique_id, WELL)
    created = services(stacks, unique_id)

    assert set(created) == {"web", "db", "migrate"}
    labels = created["db"]["Config"]["Labels"]
    assert labels["persys.managed"] == "true"
    assert labels["persys.revision_id"] == "r1"
    assert labels["persys.epoch"] == "0"
    assert created["db"]["HostConfig"]["Memory"] == 64 << 20
    assert status.metadata["compose.project"].startswith(f"persys-{unique_id}-")
    assert len(leftovers(stacks, unique_id, "volume")) == 1
    assert len(leftovers(stacks, unique_id, "network")) == 1
    assert apply(stacks, unique_id).skipped

    # Only changed services are replaced, and data is kept.
    before = runs(stacks, unique_id)
    apply(stacks, unique_id, revision="r2", env={"COLOUR": "green"})
    settled(stacks, unique_id, WELL)
    after = runs(stacks, unique_id)
    assert after["db"] == before["db"]
    assert after["web"][0] != before["web"][0]
    assert inside(stacks, unique_id, "sh", "-c", "echo $COLOUR") == "green"
    assert "ran" in inside(stacks, unique_id, "cat", "/data/migrated")
    assert services(stacks, unique_id)["web"]["Config"]["Labels"]["persys.revision_id"] == "r2"

    # Stop and start keep containers and data.
    apply(stacks, unique_id, revision="r2", env={"COLOUR": "green"}, desired=STOP)
    stacks.wait_for(unique_id, STOPPED, within=WITHIN)
    assert stacks.containers(unique_id, running=True) == []
    apply(stacks, unique_id, revision="r2", env={"COLOUR": "green"})
    settled(stacks, unique_id, WELL)
    assert {name: run[0] for name, run in runs(stacks, unique_id).items()} == {
        name: run[0] for name, run in after.items()
    }

    # Data outlives the workload by default.
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)
    assert stacks.containers(unique_id) == []
    assert leftovers(stacks, unique_id, "network") == []
    assert len(leftovers(stacks, unique_id, "volume")) == 1
    assert not (stacks.directory / "stacks" / unique_id).exists()


@one_compose
def test_a_stack_with_delete_volumes_deletes_its_volumes(stacks: "Agent", unique_id: str) -> None:
    apply(stacks, unique_id, delete_volumes=True)
    settled(stacks, unique_id, WELL)

    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)

    assert leftovers(stacks, unique_id, "volume") == []


def test_promise_6_a_killed_agent_finds_its_stack_again(stacks: "Agent", unique_id: str) -> None:
    apply(stacks, unique_id)
    settled(stacks, unique_id, WELL)
    before = runs(stacks, unique_id)

    stacks.kill()
    stacks.start()

    settled(stacks, unique_id, WELL)
    assert runs(stacks, unique_id) == before
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


@one_compose
def test_a_crash_looping_service_fails_the_stack(stacks: "Agent", unique_id: str) -> None:
    text = """
        services:
          good: {image: persys-test, command: ["sleep", "3600"], init: true}
          bad: {image: persys-test, command: ["sh", "-c", "echo oh no >&2; exit 3"], restart: always}
        """
    apply(stacks, unique_id, text)

    status = stacks.wait_for(unique_id, FAILED, within=WITHIN)

    assert "bad" in status.message
    assert "crash loop" in status.message
    assert "oh no" in status.metadata["container.stderr"]
    assert "good=running" in status.metadata["compose.services"]
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


@one_compose
def test_a_service_that_exits_with_an_error_fails_the_stack(
    stacks: "Agent", unique_id: str
) -> None:
    text = """
        services:
          good: {image: persys-test, command: ["sleep", "3600"], init: true}
          job: {image: persys-test, command: ["sh", "-c", "echo broken >&2; exit 4"]}
        """
    apply(stacks, unique_id, text)

    status = stacks.wait_for(unique_id, FAILED, within=WITHIN)

    assert status.message == "job: exited with code 4"
    assert status.metadata["container.stderr"] == "broken"
    assert status.metadata["compose.services"] == "good=running,job=exited(4)"
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)
    assert stacks.containers(unique_id) == []


@one_compose
def test_a_stack_whose_services_all_exit_with_0_is_completed(
    stacks: "Agent", unique_id: str
) -> None:
    apply(stacks, unique_id, "services: {job: {image: persys-test, command: ['true']}}")

    status = stacks.wait_for(unique_id, STOPPED, within=WITHIN)

    assert status.metadata["compose.services"] == "job=completed"
    assert status.metadata["container.exit_code"] == "0"


@both
def test_env_values_reach_the_container_unchanged(stacks: "Agent", unique_id: str) -> None:
    env = {
        "QUOTES": 'it\'s "quoted" \\',
        "DOLLAR": "$HOME ${PATH} $$ ${X:-y} \\$Z",
        "LINES": "one\ntwo # no comment\r\n",
        "SPACES": "  # between  ",
        "PLAIN": "a=b",
    }
    text = """
        services:
          web:
            image: persys-test
            command: ["sleep", "3600"]
            init: true
            environment: [%s]
        """
    names = ", ".join(f'"{name}=${{{name}}}"' for name in env)
    apply(stacks, unique_id, text % names, env=env)
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)

    found = services(stacks, unique_id)["web"]["Config"]["Env"]

    assert {f"{name}={value}" for name, value in env.items()} <= set(found)
    place = stacks.directory / "stacks" / unique_id
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    kept = [path.read_text() for path in place.rglob("*") if path.is_file()]
    assert not any("no comment" in text for text in kept), "resolved values are in no file"
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


@one_compose
def test_only_the_manually_stopped_service_is_started_again(
    stacks: "Agent", unique_id: str
) -> None:
    apply(stacks, unique_id)
    settled(stacks, unique_id, WELL)
    before = runs(stacks, unique_id)

    docker("stop", "-t", "1", before["db"][0])
    until(lambda: runs(stacks, unique_id)["db"] != before["db"])
    settled(stacks, unique_id, WELL)

    after = runs(stacks, unique_id)
    assert after["db"][0] == before["db"][0]
    assert after["web"] == before["web"]
    assert after["migrate"] == before["migrate"]
    docker("rm", "-f", after["web"][0])
    settled(stacks, unique_id, WELL)
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


def test_a_stack_keeps_running_when_an_image_of_its_new_revision_is_missing(
    stacks: "Agent", unique_id: str
) -> None:
    good = "services: {web: {image: persys-test, command: [sleep, '3600'], init: true}}"
    apply(stacks, unique_id, good)
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)
    before = runs(stacks, unique_id)

    changed = good.replace("'3600'", "'3601'")
    other = "new: {image: 'persys-test:no-such-tag', pull_policy: never}"
    apply(stacks, unique_id, changed.replace("{web:", f"{{{other}, web:"), revision="r2")

    status = stacks.wait_for(unique_id, FAILED, within=WITHIN)
    assert status.revision_id == "r2"
    assert status.metadata["failure_reason"] == "IMAGE_NOT_FOUND"
    assert runs(stacks, unique_id) == before
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


def test_a_stack_that_runs_once_has_ended_when_all_its_services_have_exited(
    stacks: "Agent", unique_id: str
) -> None:
    text = """
        services:
          first: {image: persys-test, command: ["true"], restart: always}
          second: {image: persys-test, command: [sleep, "2"], init: true, restart: always}
        """
    apply(stacks, unique_id, text, run_once=True)

    status = stacks.wait_for(unique_id, STOPPED, within=WITHIN)

    assert status.metadata["reason_code"] == "Completed"
    assert status.metadata["compose.services"] == "first=completed,second=completed"
    ended = runs(stacks, unique_id)
    docker("rm", "-f", ended["first"][0])
    stacks.kill()
    stacks.start()
    status = stacks.wait_for(unique_id, STOPPED, within=WITHIN)
    assert status.metadata["reason_code"] == "Completed"
    assert runs(stacks, unique_id) == {"second": ended["second"]}
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


def test_a_stack_keeps_running_when_its_new_revision_fails(stacks: "Agent", unique_id: str) -> None:
    good = "services: {web: {image: persys-test, command: [sleep, '3600'], init: true}}"
    apply(stacks, unique_id, good)
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)
    before = runs(stacks, unique_id)

    wrong = good.replace("init: true", "bogus: true")
    apply(stacks, unique_id, wrong, revision="r2")
    status = stacks.wait_for(unique_id, FAILED, within=WITHIN)
    assert "bogus" in status.message
    apply(stacks, unique_id, good, revision="r1")
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)

    assert runs(stacks, unique_id) == before
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


def test_a_stack_with_stop_after_is_restarted_by_the_agent_only(
    stacks: "Agent", unique_id: str
) -> None:
    text = """
        services:
          web:
            image: persys-test
            command: ["sleep", "3600"]
            init: true
            restart: always
            deploy: {restart_policy: {condition: any}}
        """
    apply(stacks, unique_id, text, stop_after=3600)
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)
    before = services(stacks, unique_id)["web"]
    assert before["HostConfig"]["RestartPolicy"]["Name"] in ("", "no")

    docker("kill", before["Id"])
    until(lambda: runs(stacks, unique_id)["web"][1] != before["State"]["StartedAt"])
    stacks.wait_for(unique_id, RUNNING, within=WITHIN)

    assert runs(stacks, unique_id)["web"][0] == before["Id"]
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


@one_compose
def test_a_host_port_in_use_is_named(stacks: "Agent", unique_id: str, free_port: int) -> None:
    text = f"services: {{web: {{image: persys-test, command: [sleep, '9'], ports: ['{free_port}:80']}}}}"
    with socket.create_server(("0.0.0.0", free_port)):
        apply(stacks, unique_id, text)
        status = stacks.wait_for(unique_id, FAILED, within=WITHIN)

    assert status.message == f"host port {free_port}/tcp is already in use on this node"
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


@one_compose
def test_a_stack_counts_in_the_allocated_resources(
    stacks: "Agent", unique_id: str, sleeper: agent_pb2.ContainerSpec
) -> None:
    text = "services: {web: {image: persys-test, command: [sleep, '9'], init: true, cpus: 0.3}}"
    reserved, large = f"{unique_id}-reserved", f"{unique_id}-large"
    wanted = agent_pb2.ContainerSpec()
    wanted.CopyFrom(sleeper)
    wanted.resources.cpu_millicores = 1_000_000

    apply(stacks, unique_id, text)
    by_its_limits = stacks.apply(large, wanted)
    apply(stacks, reserved, text, cpu_millicores=500)
    by_what_is_reserved = stacks.apply(large, wanted)

    assert "cpu: 300 of" in by_its_limits.message
    assert "cpu: 800 of" in by_what_is_reserved.message
    for workload_id in (unique_id, reserved):
        stacks.delete(workload_id)
        stacks.wait_until_gone(workload_id)


def test_a_newer_order_does_not_wait_for_a_hanging_service(stacks: "Agent", unique_id: str) -> None:
    text = """
        services:
          web:
            image: persys-test
            command: ["sleep", "3600"]
            depends_on: {migrate: {condition: service_completed_successfully}}
          migrate: {image: persys-test, command: ["sleep", "3600"], init: true}
        """
    apply(stacks, unique_id, text)
    until(lambda: bool(stacks.containers(unique_id, running=True)))

    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)

    assert stacks.containers(unique_id) == []
