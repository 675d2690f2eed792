"""The node policy, with the real Docker, Compose and git."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

import compose_binaries
from git_servers import Repository
from persys.wire.gen.agent.v1 import agent_pb2

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
FAILED = agent_pb2.ACTUAL_STATE_FAILED
WITHIN = 60.0
SLEEPER = "image: persys-test, command: [sleep, '3600'], init: true"


@pytest.fixture(scope="module")
def stacks(
    tmp_path_factory: pytest.TempPathFactory, agent_in: Callable[..., "Agent"], demo_image: str
) -> Iterator["Agent"]:
    agent = agent_in(
        tmp_path_factory.mktemp("policy"),
        PERSYS_RECONCILE_INTERVAL="1h",
        PERSYS_COMPOSE_ENABLED="true",
        PERSYS_COMPOSE_BINARY=compose_binaries.V2,
        PERSYS_PIDS_MAX="77",
    )
    agent.start()
    yield agent
    agent.close()


@pytest.fixture
def stack_id(stacks: "Agent", unique_id: str) -> Iterator[str]:
    yield unique_id
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def apply(agent: "Agent", workload_id: str, *, revision: str = "r1", **parts: Any) -> None:
    request = agent_pb2.ApplyWorkloadRequest(
        id=workload_id,
        type=agent_pb2.WORKLOAD_TYPE_COMPOSE,
        revision_id=revision,
        desired_state=agent_pb2.DESIRED_STATE_RUNNING,
        spec=agent_pb2.WorkloadSpec(compose=agent_pb2.ComposeSpec(**parts)),
    )
    response = agent.stub.ApplyWorkload(request, timeout=10)
    assert response.applied, response


def deploy(
    agent: "Agent", workload_id: str, repository: Repository, *, revision: str = "r1"
) -> None:
    apply(agent, workload_id, revision=revision, git_repo=f"file://{repository.path}")


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN
    while not holds():
        assert time.monotonic() < deadline, f"not within {WITHIN} s: {what}"
        time.sleep(0.1)


def web(rest: str = "", top: str = "") -> str:
    return f"services:\n  web: {{{SLEEPER}{', ' + rest if rest else ''}}}\n{dedent(top)}"


def described(agent: "Agent", run_docker: Callable[..., str], workload_id: str) -> dict[str, Any]:
    (container,) = agent.containers(workload_id)
    found: dict[str, Any] = json.loads(run_docker("inspect", container))[0]
    return found


def test_git_ignores_what_a_container_writes_into_its_checkout(
    stacks: "Agent",
    stack_id: str,
    repository: Repository,
    tmp_path: Path,
    run_docker: Callable[..., str],
) -> None:
    """The container plants a repository whose configuration runs a program, and another Compose file."""
    repository.commit({"compose.yaml": web("volumes: ['.:/project']"), "page": "one"})
    deploy(stacks, stack_id, repository)
    stacks.wait_for(stack_id, RUNNING, within=WITHIN)
    (container,) = stacks.containers(stack_id)
    assert run_docker("exec", container, "ls", "-A", "/project").split() == ["compose.yaml", "page"]

    ran = tmp_path / "ran"
    hook = (
        f'[core]\n\tfsmonitor = touch {ran}\n\tworktree = /\n[filter "x"]\n\tsmudge = touch {ran}\n'
    )
    privileged = web("privileged: true, volumes: ['/:/host']")
    script = 'mkdir -p /project/.git && printf "%s" "$1" > /project/.git/config && cp /project/.git/config '
    script += (
        '/project/.git/HEAD; printf "%s" "$2" > /project/compose.yaml; ln -s /etc /project/more'
    )
    run_docker("exec", container, "sh", "-c", script, "sh", hook, privileged)
    second = repository.commit({"page": "two", "more/page": "three"})
    deploy(stacks, stack_id, repository, revision="r2")
    status = stacks.wait_for(stack_id, RUNNING, within=WITHIN)

    assert status.metadata["compose.commit"] == second
    found = described(stacks, run_docker, stack_id)
    assert not found["HostConfig"]["Privileged"]
    assert [mount["Destination"] for mount in found["Mounts"]] == ["/project"]
    assert (
        run_docker("exec", found["Id"], "cat", "/project/page", "/project/more/page") == "twothree"
    )
    assert not ran.exists()
    assert not Path("/etc/page").exists()


def test_a_start_executes_the_checked_document_and_not_the_mounted_file(
    stacks: "Agent", stack_id: str, repository: Repository, run_docker: Callable[..., str]
) -> None:
    repository.commit({"compose.yaml": web("volumes: ['.:/project']")})
    deploy(stacks, stack_id, repository)
    stacks.wait_for(stack_id, RUNNING, within=WITHIN)
    (container,) = stacks.containers(stack_id)
    privileged = web("privileged: true")
    run_docker(
        "exec", container, "sh", "-c", 'printf "%s" "$1" > /project/compose.yaml', "sh", privileged
    )

    stacks.kill()
    run_docker("rm", "-f", container)
    stacks.start()
    eventually(lambda: bool(stacks.containers(stack_id, running=True)), "it is made again")

    found = described(stacks, run_docker, stack_id)
    assert found["Id"] != container
    assert not found["HostConfig"]["Privileged"]


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"compose.yaml": web("env_file: /etc/shadow")}, "env_file"),
        ({"compose.yaml": web("env_file: ../../../../../../etc/shadow")}, "env_file"),
        ({"compose.yaml": web("env_file: '${X:-/etc/shadow}'")}, "env_file"),
        ({"compose.yaml": web("extends: {file: /etc/passwd, service: a}")}, "extends"),
        ({"compose.yaml": web(top="include: [/etc/passwd]")}, "include"),
        ({"compose.yaml": web(top="include: ['https://example.org/a.git']")}, "include"),
        ({"compose.yaml": web(top="include: [sub/a.yaml]"),
          "sub/a.yaml": web("env_file: ../../x").replace("web:", "more:")}, "env_file"),
        ({"compose.yaml": web("secrets: [s]", "secrets: {s: {file: /etc/shadow}}")},
         "secrets.s.file"),
        ({"compose.yaml": web("configs: [c]", "configs: {c: {file: ../../../../x}}")},
         "configs.c.file"),
        ({"compose.yaml": web("build: {context: /etc}")}, "services.web.build"),
        ({"compose.yaml": web("build: {context: ., dockerfile: /etc/shadow}")},
         "services.web.build.dockerfile"),
        ({"compose.yaml": web("build: {context: ., network: host}")}, "services.web.build.network"),
        ({"compose.yaml": web("volumes: ['data:/d']", "volumes: {data: {driver_opts: {type: overlay, "
                              "device: overlay, o: 'lowerdir=/etc'}}}")}, "volumes.data.driver_opts"),
        ({"compose.yaml": web("network_mode: host")}, "services.web.network_mode"),
        ({"compose.yaml": web(top="networks: {default: {driver: macvlan}}")},
         "networks.default.driver"),
        ({"compose.yaml": web("volumes: ['/etc:/host']")}, "services.web.volumes"),
        ({"compose.yaml": web(), ".env": "DOCKER_HOST=tcp://127.0.0.1:1\n"}, "DOCKER_"),
    ],
)  # fmt: skip
def test_a_repository_cannot_read_files_outside_itself(
    stacks: "Agent", stack_id: str, repository: Repository, files: dict[str, str], named: str
) -> None:
    repository.commit(files)
    deploy(stacks, stack_id, repository)

    status = stacks.wait_for(stack_id, FAILED, within=WITHIN)

    assert named in status.message
    assert status.metadata["failure_reason"] == "INVALID_SPEC"
    assert stacks.containers(stack_id) == []


@pytest.mark.parametrize(
    "part", ["env_file: link", "secrets: [s]", "build: link", "volumes: ['./link:/x']"]
)
def test_a_symlink_of_a_repository_is_not_followed(
    stacks: "Agent", stack_id: str, repository: Repository, tmp_path: Path, part: str
) -> None:
    (tmp_path / "work" / "link").symlink_to("/etc/shadow")
    repository.commit({"compose.yaml": web(part, "secrets: {s: {file: ./link}}")})
    deploy(stacks, stack_id, repository)

    status = stacks.wait_for(stack_id, FAILED, within=WITHIN)

    assert "root:" not in status.message
    assert status.metadata["failure_reason"] == "INVALID_SPEC"
    assert stacks.containers(stack_id) == []


@pytest.mark.parametrize("kind", ["alternates", "gitfile"])
def test_a_local_repository_that_refers_to_another_is_refused(
    stacks: "Agent", stack_id: str, repository: Repository, tmp_path: Path, kind: str
) -> None:
    repository.commit({"compose.yaml": web()})
    place = tmp_path / "other"
    if kind == "gitfile":
        place.mkdir()
        (place / ".git").write_text(f"gitdir: {repository.path}\n")
    else:
        words = ["git", "clone", "-q", "--bare", "--shared", str(repository.path), str(place)]
        subprocess.run(words, check=True, timeout=60)
    apply(stacks, stack_id, git_repo=f"file://{place}")

    status = stacks.wait_for(stack_id, FAILED, within=WITHIN)

    assert "spec.compose.git_repo" in status.message


def test_services_have_the_pids_limit_of_the_node(
    stacks: "Agent", stack_id: str, run_docker: Callable[..., str]
) -> None:
    apply(stacks, stack_id, compose_yaml=web("deploy: {resources: {limits: {memory: 64M}}}"))
    stacks.wait_for(stack_id, RUNNING, within=WITHIN)

    assert described(stacks, run_docker, stack_id)["HostConfig"]["PidsLimit"] == 77


def test_the_options_of_volumes_and_networks_survive_the_old_compose(
    new_agent: Callable[..., "Agent"], unique_id: str, run_docker: Callable[..., str]
) -> None:
    agent = new_agent(
        PERSYS_COMPOSE_ENABLED="true",
        PERSYS_COMPOSE_BINARY=compose_binaries.V1,
        PERSYS_PIDS_MAX="78",
    )
    agent.start()
    top = """
        volumes: {data: {driver_opts: {type: tmpfs, device: tmpfs, o: size=1m}}}
        networks: {default: {internal: true}}
        """
    apply(agent, unique_id, compose_yaml=web("volumes: ['data:/d']", top))
    agent.wait_for(unique_id, RUNNING, within=WITHIN)

    found = described(agent, run_docker, unique_id)
    (volume,) = (mount["Name"] for mount in found["Mounts"])
    (network,) = found["NetworkSettings"]["Networks"]
    assert json.loads(run_docker("volume", "inspect", volume))[0]["Options"]["o"] == "size=1m"
    assert json.loads(run_docker("network", "inspect", network))[0]["Internal"]
    assert found["HostConfig"]["PidsLimit"] == 78
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)
    run_docker("volume", "rm", volume)


def test_a_symlink_swapped_in_under_a_bind_is_detected_at_the_next_start(
    new_agent: Callable[..., "Agent"],
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
    tmp_path: Path,
    run_docker: Callable[..., str],
) -> None:
    agent = new_agent(PERSYS_RECONCILE_INTERVAL="1h")
    agent.start()
    data = tmp_path / "data"
    data.mkdir()
    sleeper.volumes.add(host_path=str(data), container_path="/given")
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)

    data.rename(tmp_path / "aside")
    data.symlink_to("/etc")
    agent.apply(unique_id, sleeper, revision="r2")
    status = agent.wait_for(unique_id, FAILED)

    assert "symbolic link" in status.message
    assert agent.containers(unique_id, running=True) == []


def test_running_workloads_continue_under_a_stricter_policy(
    new_agent: Callable[..., "Agent"],
    unique_id: str,
    sleeper: agent_pb2.ContainerSpec,
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    agent = new_agent()
    agent.start()
    sleeper.volumes.add(host_path=str(data), container_path="/given")
    agent.apply(unique_id, sleeper)
    before = agent.wait_for(unique_id, RUNNING)
    agent.kill()
    agent.set("PERSYS_BIND_ROOTS", os.fspath(tmp_path / "other"))
    agent.start()

    assert agent.apply(unique_id, sleeper).applied
    status = agent.wait_for(unique_id, RUNNING)
    sleeper.env["NEW"] = "spec"
    refused = agent.apply(unique_id, sleeper, revision="r2")

    assert "policy_violation" not in before.metadata
    assert "PERSYS_BIND_ROOTS" in status.metadata["policy_violation"]
    assert not refused.applied
