"""Stacks from git: deployed commit, private repositories, builds, and rejected content."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

import compose_binaries
import git_servers
from git_servers import Repository
from persys.wire.compose.git_source import host_of
from persys.wire.gen.agent.v1 import agent_pb2
from shells.agent.runtimes.compose.stacks import WITHIN, runs, stack_agent, until
from shells.agent.runtimes.compose.stacks import apply as apply_stack

if TYPE_CHECKING:
    from shells.agent.conftest import Agent

RUNNING = agent_pb2.ACTUAL_STATE_RUNNING
FAILED = agent_pb2.ACTUAL_STATE_FAILED
SLEEPER = "image: persys-test\n    command: [sleep, '3600']\n    init: true\n"
PLAIN = f"services:\n  web:\n    {SLEEPER}"


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("credentials")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def stacks(
    tmp_path_factory: pytest.TempPathFactory,
    agent_in: Callable[..., "Agent"],
    demo_image: str,
    credentials: Path,
    certificates: Path,
) -> Iterator["Agent"]:
    with stack_agent(
        agent_in,
        tmp_path_factory.mktemp("compose-git"),
        PERSYS_CREDENTIALS_DIR=str(credentials),
        GIT_SSL_CAINFO=str(certificates / "forge.pem"),
    ) as agent:
        yield agent


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


@pytest.fixture
def stack_id(stacks: "Agent", unique_id: str) -> Iterator[str]:
    yield unique_id
    stacks.delete(unique_id)
    stacks.wait_until_gone(unique_id)


def apply(
    agent: "Agent", workload_id: str, repo: str, **parts: Any
) -> agent_pb2.ApplyWorkloadResponse:
    return apply_stack(agent, workload_id, git_repo=repo, **parts)


def container(
    agent: "Agent", run_docker: Callable[..., str], workload_id: str, service: str
) -> str:
    filters = [f"label=persys.node_id={agent.node_id}", f"label=persys.workload_id={workload_id}"]
    filters.append(f"label=com.docker.compose.service={service}")
    arguments = [part for text in filters for part in ("--filter", text)]
    return run_docker("ps", "-q", "--no-trunc", *arguments)


def test_the_deployed_commit_stays_until_a_new_revision(
    stacks: "Agent", stack_id: str, repository: Repository, run_docker: Callable[..., str]
) -> None:
    text = (
        f"services:\n  web:\n    {SLEEPER}    volumes: ['./conf:/conf:ro']\n"
        f"  other:\n    {SLEEPER}    environment: {{WHO: $WHO, MORE: $MORE}}\n"
    )
    files = {"deploy/compose.yaml": text, "deploy/conf/name": "one", "deploy/.env": "WHO=repo\n"}
    first = repository.commit(files)
    url = f"file://{repository.path}"

    def deploy(revision: str) -> agent_pb2.WorkloadStatus:
        apply(
            stacks, stack_id, url, git_ref="main", git_path="deploy", env={"MORE": "spec"},
            revision=revision,
        )  # fmt: skip
        return stacks.wait_for(stack_id, RUNNING, within=WITHIN)

    assert deploy("r1").metadata["compose.commit"] == first
    web, other = (container(stacks, run_docker, stack_id, name) for name in ("web", "other"))
    assert run_docker("exec", web, "cat", "/conf/name") == "one"
    assert run_docker("exec", other, "sh", "-c", "echo $WHO $MORE") == "repo spec"

    second = repository.commit({"deploy/conf/name": "two"})
    run_docker("rm", "-f", other)  # recreated from the same commit
    until(lambda: bool(container(stacks, run_docker, stack_id, "other")))
    assert deploy("r1").metadata["compose.commit"] == first
    other = container(stacks, run_docker, stack_id, "other")

    assert deploy("r2").metadata["compose.commit"] == second
    assert container(stacks, run_docker, stack_id, "other") == other
    changed = container(stacks, run_docker, stack_id, "web")
    assert changed != web
    assert run_docker("exec", changed, "cat", "/conf/name") == "two"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"git_ref": "no-such-branch"}, id="the ref does not exist"),
        pytest.param({"git_path": "broken"}, id="the file is invalid"),
        pytest.param({"git_path": "missing"}, id="an image does not exist"),
    ],
)
def test_a_stack_runs_on_unchanged_if_its_new_revision_cannot_be_fetched(
    stacks: "Agent",
    stack_id: str,
    repository: Repository,
    run_docker: Callable[..., str],
    change: dict[str, str],
) -> None:
    text = f"services:\n  web:\n    {SLEEPER}    volumes: ['./conf:/conf:ro']\n"
    missing = "  new:\n    image: persys-test:no-such-tag\n    pull_policy: never\n"
    repository.commit({"good/compose.yaml": text, "good/conf/name": "one"})
    url = f"file://{repository.path}"
    apply(stacks, stack_id, url, git_ref="main", git_path="good")
    stacks.wait_for(stack_id, RUNNING, within=WITHIN)
    before = runs(stacks, stack_id)
    files = {"broken/compose.yaml": f"{text}    bogus: true\n", "broken/conf/name": "two"}
    files |= {"missing/compose.yaml": text + missing, "missing/conf/name": "two"}
    repository.commit({**files, "good/conf/name": "two", "good/conf/more": "new"})

    parts = {"git_ref": "main", "git_path": "good"} | change
    apply(stacks, stack_id, url, revision="r2", **parts)

    status = stacks.wait_for(stack_id, FAILED, within=WITHIN)
    assert status.revision_id == "r2"
    assert runs(stacks, stack_id) == before
    web = container(stacks, run_docker, stack_id, "web")
    assert run_docker("exec", web, "sh", "-c", "cat /conf/*") == "one"


def test_a_service_is_built_from_the_repository(
    stacks: "Agent", stack_id: str, repository: Repository, run_docker: Callable[..., str]
) -> None:
    text = "services:\n  web:\n    build: ./web\n    command: [sleep, '3600']\n    init: true\n"
    dockerfile = "FROM persys-test\nCOPY page /page\n"
    repository.commit({"compose.yml": text, "web/Dockerfile": dockerfile, "web/page": "built"})

    apply(stacks, stack_id, f"file://{repository.path}")
    stacks.wait_for(stack_id, RUNNING, within=WITHIN)

    web = container(stacks, run_docker, stack_id, "web")
    assert run_docker("exec", web, "cat", "/page") == "built"
    image = run_docker("inspect", "-f", "{{.Image}}", web)
    stacks.delete(stack_id)
    stacks.wait_until_gone(stack_id)
    run_docker("rmi", "-f", image)


def test_a_private_https_repository_is_fetched_with_a_credential(
    stacks: "Agent", stack_id: str, repository: Repository, credentials: Path, certificates: Path
) -> None:
    commit = repository.commit({"compose.yaml": PLAIN})
    path = credentials / "forge.json"
    path.touch(mode=0o600)
    with git_servers.https(repository, certificates) as (url, _):
        host = urlsplit(url).netloc
        output = {
            "hosts": ["git.example.org"],
            "username": git_servers.USER,
            "password": git_servers.PASSWORD,
        }
        path.write_text(json.dumps(output))
        apply(stacks, stack_id, url, git_credential="forge", revision="r0")
        elsewhere = stacks.wait_for(stack_id, FAILED, within=WITHIN)
        output = {"hosts": [host], "username": git_servers.USER, "password": "wr0ng"}
        path.write_text(json.dumps(output))
        apply(stacks, stack_id, url, git_credential="forge")
        refused = stacks.wait_for(stack_id, FAILED, within=WITHIN)
        path.write_text(json.dumps(output | {"password": git_servers.PASSWORD}))
        apply(stacks, stack_id, url, git_credential="forge")
        status = stacks.wait_for(stack_id, RUNNING, within=WITHIN)

    assert status.metadata["compose.commit"] == commit
    assert "is for git.example.org, not for 127.0.0.1:" in elsewhere.message
    assert "git fetch" in refused.message
    kept = [path for path in stacks.directory.rglob("*") if path.is_file()]
    assert all(word not in path.read_bytes() for path in kept for word in (b"wr0ng", b"p4ss word"))
    assert "wr0ng" not in str(refused)


def test_a_private_ssh_repository_is_fetched_with_a_key(
    stacks: "Agent",
    stack_id: str,
    repository: Repository,
    credentials: Path,
    tmp_path: Path,
    free_port: int,
) -> None:
    commit = repository.commit({"compose.yaml": PLAIN})
    path = credentials / "key.json"
    path.touch(mode=0o600)
    with git_servers.over_ssh(repository, tmp_path, free_port) as (url, key, host):
        credential = {"hosts": [host_of(url)], "ssh_key": key}
        path.write_text(json.dumps(credential))
        apply(stacks, stack_id, url, git_credential="key")
        unknown = stacks.wait_for(stack_id, FAILED, within=WITHIN)
        path.write_text(json.dumps(credential | {"known_hosts": host}))
        apply(stacks, stack_id, url, git_credential="key")
        status = stacks.wait_for(stack_id, RUNNING, within=WITHIN)

    assert "Host key verification failed" in unknown.message
    assert status.metadata["compose.commit"] == commit


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("    volumes: ['./out:/etc/host:ro']\n", "services.web.volumes"),
        ("    privileged: true\n", "PERSYS_ALLOW_PRIVILEGED"),
        ("    container_name: mine\n", "services.web.container_name"),
        ("    build: ../..\n", "services.web.build"),
    ],
)
def test_disallowed_settings_of_a_repository_are_rejected(
    new_agent: Callable[..., "Agent"],
    unique_id: str,
    repository: Repository,
    tmp_path: Path,
    text: str,
    named: str,
) -> None:
    agent = new_agent(
        PERSYS_COMPOSE_ENABLED="true",
        PERSYS_COMPOSE_BINARY=compose_binaries.V2,
        PERSYS_BIND_ROOTS=str(tmp_path),
    )
    agent.start()
    out = tmp_path / "work" / "out"
    out.symlink_to("/etc")  # a link out of the repository
    repository.commit({"compose.yaml": PLAIN + text})

    apply(agent, unique_id, f"file://{repository.path}")
    status = agent.wait_for(unique_id, FAILED, within=WITHIN)

    assert named in status.message
    assert agent.containers(unique_id) == []
