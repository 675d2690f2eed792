"""A container and a Compose stack from one file, through all operations of a user.

Their image is private: only the node has the credential.
"""

import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import compose_binaries
from e2e.cluster import Cluster
from e2e.containers import docker
from e2e.process import free_port
from e2e.waiting import eventually
from pages import local_page
from registry import PASSWORD, USER, Registry

Persysctl = Callable[..., subprocess.CompletedProcess[str]]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "shop.yaml"
LIMITS_CPU, LIMITS_MEMORY = 200, 64  # of both together
LOGIN = b64encode(f"{USER}:{PASSWORD}".encode())  # as `docker login` stores it


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    created = Registry(tmp_path_factory.mktemp("registry"))
    yield created
    created.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home directory of the agent, in which `docker login` stores credentials."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def cluster_settings(registry: Registry, home: Path) -> dict[str, dict[str, str]]:
    return {
        "agent": {
            "PERSYS_COMPOSE_ENABLED": "true",
            "PERSYS_COMPOSE_BINARY": compose_binaries.V2,
            "PERSYS_CREDENTIALS_DIR": str(registry.credentials),
            "PERSYS_STOP_GRACE": "1s",
            "HOME": str(home),
            "PERSYS_INSECURE": "true",
        }
    }


class Shop:
    """The example with its own names, ports and image."""

    def __init__(self, cluster: Cluster, file: Path, mark: str, image: str) -> None:
        self._cluster = cluster
        self.file = file
        self.front, self.back = f"{mark}-front", f"{mark}-back"
        self.both = [self.front, self.back]
        self._ports = {self.front: free_port(), self.back: free_port()}
        text = EXAMPLE.read_text().replace("persys-demo:latest", image).replace("shop-", f"{mark}-")
        text = text.replace("# image_credential: team-registry", "image_credential: registry")
        for port, workload_id in (("18082", self.front), ("18083", self.back)):
            text = text.replace(port, str(self._ports[workload_id]))
        file.write_text(text)

    def change(self, before: str, after: str) -> None:
        text = self.file.read_text()
        assert before in text
        self.file.write_text(text.replace(before, after))

    def pages(self) -> list[list[str]]:
        """All lines that each of them wrote into its volume."""
        return [local_page(self._ports[workload_id]).splitlines() for workload_id in self.both]

    def runs(self) -> set[tuple[str, str]]:
        return {(one.id, one.started_at) for one in self._cluster.containers(self.both)}

    def left(self, *kind: str) -> list[str]:
        """Containers, networks and volumes of both that still exist."""
        found = []
        for workload_id in self.both:
            label = f"label=persys.workload_id={workload_id}"
            found += docker(*kind, "-q", "--filter", label).split()
        return found


@pytest.fixture
def shop(
    cluster: Cluster, registry: Registry, demo_image: str, unique_id: str, tmp_path: Path
) -> Iterator[Shop]:
    image = registry.push(demo_image, f"{unique_id}:1")
    created = Shop(cluster, tmp_path / "shop.yaml", unique_id, image)
    yield created
    for container in created.left("ps", "-a"):
        docker("rm", "-f", container)
    for kind in ("network", "volume"):
        for name in created.left(kind, "ls"):
            docker(kind, "rm", name)
    docker("rmi", image)


def test_promise_10_a_container_and_a_stack_of_a_private_image_keep_their_data(
    cluster: Cluster, persysctl: Persysctl, shop: Shop, home: Path
) -> None:
    def do(*words: str) -> str:
        result = persysctl(*words)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def has(front: list[str], back: list[str]) -> None:
        eventually(
            lambda: shop.pages() == [front, back], lambda: f"{front}, {back}: {shop.pages()}"
        )

    # Both run, and write into their volumes.
    do("apply", "-f", str(shop.file), "--wait")
    assert cluster.statuses() == dict.fromkeys(shop.both, "Running")
    has(["Open from nine"], ["apples"])
    assert "counter=running,fill=completed" in do("workload", "get", shop.back)
    given = cluster.node().usage
    eventually(
        lambda: cluster.node().usage.cpu_allocated_millicores == LIMITS_CPU,
        lambda: f"both count on their node: {given}",
    )
    assert cluster.node().usage.memory_allocated_mb == LIMITS_MEMORY
    assert _files_with(b"image_credential", cluster.directory), "its name is kept"
    assert _files_with(PASSWORD.encode(), cluster.directory, home) == []
    assert _files_with(LOGIN, cluster.directory, home) == []

    # Updated in place: the data is still there.
    before = shop.runs()
    shop.change("Open from nine", "Open from eight")
    shop.change("apples", "pears")
    do("apply", "-f", str(shop.file), "--wait")
    has(["Open from nine", "Open from eight"], ["apples", "pears"])
    assert len(before & shop.runs()) == 1, "the counter did not change, so it runs on"

    do("workload", "stop", *shop.both, "--wait")
    assert shop.left("ps") == []
    assert len(shop.left("ps", "-a")) == 3
    do("workload", "start", *shop.both, "--wait")
    # As before; the start command has written once more.
    has(["Open from nine", "Open from eight", "Open from eight"], ["apples", "pears", "pears"])

    # The agent is killed, and nothing is restarted.
    before = shop.runs()
    cluster.agent.kill()
    cluster.agent.start()
    cluster.wait_until_node_is("Ready")
    cluster.wait_for_all(shop.both, "Running")
    do("apply", "-f", str(shop.file), "--wait")
    assert shop.runs() == before

    # Only retained volumes are left.
    do("workload", "delete", *shop.both, "--wait")
    assert shop.left("ps", "-a") == []
    assert shop.left("network", "ls") == []
    (kept,) = shop.left("volume", "ls")
    assert kept.endswith("_shelf")
    assert [path for path in cluster.volumes.rglob("*") if path.is_file()] == []
    assert _files_with(PASSWORD.encode(), cluster.directory, home) == []


def _files_with(word: bytes, *directories: Path) -> list[Path]:
    files = [path for each in directories for path in each.rglob("*") if path.is_file()]
    return [path for path in files if word in path.read_bytes()]
