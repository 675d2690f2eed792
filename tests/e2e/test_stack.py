"""A Compose stack from a spec file."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import compose_binaries
from e2e.cluster import Cluster
from e2e.containers import docker
from e2e.process import free_port
from e2e.waiting import eventually
from git_servers import Repository
from pages import local_page

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "stack.yaml"


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    return {
        "agent": {
            "PERSYS_COMPOSE_ENABLED": "true",
            "PERSYS_COMPOSE_BINARY": compose_binaries.V2,
            "PERSYS_STOP_GRACE": "1s",
        }
    }


@pytest.fixture
def volumes(cluster: Cluster, unique_id: str) -> Iterator[Callable[[], list[str]]]:
    """The volumes of the stack; they are removed after the test."""
    filters = ("--filter", f"label=persys.workload_id={unique_id}")

    def listed() -> list[str]:
        return docker("volume", "ls", "-q", *filters).split()

    yield listed
    for volume in listed():
        docker("volume", "rm", volume)


def test_promise_10_the_volume_of_a_stack_survives_update_and_delete(
    cluster: Cluster,
    persysctl: Callable[..., subprocess.CompletedProcess[str]],
    volumes: Callable[[], list[str]],
    unique_id: str,
    demo_image: str,
    tmp_path: Path,
) -> None:
    port = free_port()
    text = EXAMPLE.read_text().replace("hello-stack", unique_id).replace("18081", str(port))
    text = text.replace("persys-demo:latest", demo_image)
    file = tmp_path / "stack.yaml"
    file.write_text(text)

    applied = persysctl("workload", "apply", "-f", str(file), "--wait")
    assert applied.returncode == 0, applied.stderr
    eventually(lambda: local_page(port) == "Hello from a stack", "the page is served")
    eventually(
        lambda: (
            "web=running,write=completed"
            in persysctl("workload", "get", unique_id, "-o", "json").stdout
        ),
        "the services are shown",
    )
    before = {one.id for one in cluster.containers([unique_id])}

    file.write_text(text.replace("Hello from a stack", "Hello again"))
    applied = persysctl("workload", "apply", "-f", str(file), "--wait")
    assert applied.returncode == 0, applied.stderr
    eventually(lambda: local_page(port) == "Hello again", "the new page is served")
    after = {one.id for one in cluster.containers([unique_id])}
    assert len(before & after) == 1, "only the service that was changed is another one"

    cluster.agent.kill()
    cluster.agent.start()
    cluster.wait_until_node_is("Ready")
    assert local_page(port) == "Hello again"

    deleted = persysctl("workload", "delete", unique_id, "--wait")
    assert deleted.returncode == 0, deleted.stderr
    assert cluster.containers([unique_id]) == []
    assert len(volumes()) == 1


def test_an_unsupported_compose_key_is_refused_with_its_line(
    persysctl: Callable[..., subprocess.CompletedProcess[str]], unique_id: str, tmp_path: Path
) -> None:
    file = tmp_path / "stack.yaml"
    file.write_text(
        f"id: {unique_id}\ncompose:\n  inline_yaml: |\n"
        "    services:\n      web:\n        image: x\n        container_name: mine\n"
    )

    refused = persysctl("workload", "apply", "-f", str(file))

    assert refused.returncode != 0
    assert f"{file}:7: compose.inline_yaml: services.web.container_name: " in refused.stderr


def test_a_redeploy_of_a_stack_uses_the_current_commit_of_its_branch(
    cluster: Cluster,
    persysctl: Callable[..., subprocess.CompletedProcess[str]],
    unique_id: str,
    demo_image: str,
    tmp_path: Path,
) -> None:
    repository = Repository(tmp_path)
    service = f"{{image: '{demo_image}', command: [sleep, '3600'], init: true}}"
    first = repository.commit({"compose.yaml": f"services:\n  web: {service}\n"})
    file = tmp_path / "stack.yaml"
    file.write_text(
        f"id: {unique_id}\ncompose:\n  source_type: git\n"
        f"  git_repo: file://{repository.path}\n  git_ref: main\n"
    )

    def shown() -> str:
        return persysctl("workload", "get", unique_id).stdout

    applied = persysctl("apply", "-f", str(file), "--wait")
    assert applied.returncode == 0, applied.stderr
    eventually(lambda: first in shown(), lambda: f"the commit {first} is shown: {shown()}")
    before = cluster.containers([unique_id])

    # No redeploy was requested yet.
    more = f"services:\n  web: {service}\n  more: {service}\n"
    second = repository.commit({"compose.yaml": more})
    assert persysctl("apply", "-f", str(file), "--wait").returncode == 0
    assert first in shown()

    redeployed = persysctl("workload", "redeploy", unique_id, "--wait")
    assert redeployed.returncode == 0, redeployed.stderr
    eventually(
        lambda: second in shown() and "more=running,web=running" in shown(),
        lambda: f"the commit {second} is shown: {shown()}",
    )
    after = cluster.containers([unique_id])
    assert len(after) == 2
    assert set(before) < set(after), "what the new commit does not change runs on"

    # The spec file still matches the running stack.
    assert persysctl("apply", "-f", str(file), "--wait").returncode == 0
    assert cluster.containers([unique_id]) == after
    assert persysctl("workload", "delete", unique_id, "--wait").returncode == 0
