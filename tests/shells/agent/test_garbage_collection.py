"""Garbage collection on the real Docker: only artefacts without a workload are removed."""

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from persys.wire.gen.agent.v1 import agent_pb2
from registry import Registry
from shells.agent.conftest import RUNNING, Agent, docker, eventually

NOW_AND_THEN = {"PERSYS_GC_INTERVAL": "1h", "PERSYS_GC_ZOMBIE_AFTER": "1ms"}


def collect(agent: Agent, *, dry_run: bool = False) -> list[agent_pb2.GarbageItem]:
    request = agent_pb2.GarbageCollectRequest(dry_run=dry_run)
    return list(agent.stub.GarbageCollect(request, timeout=60).items)


def make_container(agent: Agent, workload_id: str, image: str, **labels: str) -> str:
    """A container with the labels of the agent, created without it."""
    own = {
        "persys.managed": "true",
        "persys.cluster_id": "default",
        "persys.node_id": agent.node_id,
        "persys.workload_id": workload_id,
    }
    flags = [
        flag
        for name, value in (own | {f"persys.{key}": word for key, word in labels.items()}).items()
        for flag in ("--label", f"{name}={value}")
    ]
    return docker("run", "-d", "--init", *flags, image, "sleep", "3600")


def exists(container: str) -> bool:
    found = docker("ps", "-aq", "--no-trunc", "--filter", f"id={container}")
    return found == container


@pytest.fixture
def leftovers() -> Iterator[list[str]]:
    """Removes containers that the agents of a test do not remove."""
    created: list[str] = []
    yield created
    for container in created:
        subprocess.run(["docker", "rm", "-f", container], capture_output=True, check=False)


def test_remains_of_a_deleted_workload_are_removed_and_nothing_else(
    new_agent: Callable[..., Agent],
    sleeper: agent_pb2.ContainerSpec,
    demo_image: str,
    unique_id: str,
    leftovers: list[str],
) -> None:
    agent = new_agent(**NOW_AND_THEN)
    agent.start()
    agent.apply(unique_id, sleeper)
    agent.apply(f"{unique_id}-kept", sleeper)
    agent.wait_for(unique_id, RUNNING)
    agent.wait_for(f"{unique_id}-kept", RUNNING)
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)
    leftover = make_container(agent, unique_id, demo_image)
    stray = make_container(agent, f"{unique_id}-unknown", demo_image)
    foreign = make_container(agent, unique_id, demo_image, node_id=f"other-{uuid.uuid4().hex}")
    leftovers += (leftover, stray, foreign)
    kept = agent.containers(f"{unique_id}-kept")

    eventually(lambda: bool(collect(agent, dry_run=True)), "it is seen")
    assert exists(leftover)
    (gone,) = collect(agent)

    assert gone.removed
    assert gone.workload_id == unique_id
    assert gone.reason.startswith("zombie: its workload was deleted")
    assert not exists(leftover)
    assert exists(foreign)
    assert exists(stray), "no scheduler has said that it is not wanted"
    assert agent.containers(f"{unique_id}-kept") == kept
    (line,) = agent.logged("garbage.removed")
    assert (line["kind"], line["workload_id"]) == ("container", unique_id)
    assert collect(agent) == []


def test_a_lost_journal_makes_nothing_garbage(
    new_agent: Callable[..., Agent], sleeper: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    agent = new_agent(**NOW_AND_THEN, PERSYS_GC_STRAY_AFTER="1ms")
    agent.start()
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)
    before = agent.containers(unique_id, running=True)
    agent.kill()
    for path in agent.directory.glob("state.db*"):
        path.unlink()
    agent.start()

    assert collect(agent) == []
    assert agent.containers(unique_id, running=True) == before


def test_a_network_of_a_deleted_workload_is_removed_with_its_container(
    new_agent: Callable[..., Agent], sleeper: agent_pb2.ContainerSpec, unique_id: str
) -> None:
    agent = new_agent(**NOW_AND_THEN)
    agent.start()
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)
    labels = {
        "persys.managed": "true",
        "persys.cluster_id": "default",
        "persys.node_id": agent.node_id,
        "persys.workload_id": unique_id,
    }
    flags = [flag for name, word in labels.items() for flag in ("--label", f"{name}={word}")]
    docker("network", "create", *flags, unique_id)

    eventually(lambda: bool(collect(agent, dry_run=True)), "it is seen")
    (gone,) = collect(agent)

    assert (gone.kind, gone.name, gone.removed) == ("network", unique_id, True)
    assert docker("network", "ls", "-q", "--filter", f"name={unique_id}") == ""


def test_while_docker_does_not_respond_nothing_is_garbage(
    new_agent: Callable[..., Agent], tmp_path: Path
) -> None:
    agent = new_agent(**NOW_AND_THEN, DOCKER_HOST=f"unix://{tmp_path}/none.sock")
    agent.start()

    eventually(lambda: bool(agent.logged("garbage.not_looked_for")), "it says so")
    assert not agent.logged("garbage.removed")


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    created = Registry(tmp_path_factory.mktemp("registry"))
    yield created
    created.close()


@pytest.fixture
def own_image(demo_image: str, tmp_path: Path) -> Path:
    """The content of a unique image."""
    context = tmp_path / "image"
    context.mkdir()
    (context / "Dockerfile").write_text(f"FROM {demo_image}\nARG own\nLABEL own=$own\n")
    return context


def test_an_unused_image_that_the_agent_pulled_is_removed(
    new_agent: Callable[..., Agent],
    registry: Registry,
    own_image: Path,
    demo_image: str,
    sleeper: agent_pb2.ContainerSpec,
    unique_id: str,
) -> None:
    # Of the same content as another, it would be in use whenever that one is.
    docker("build", "-q", "-t", unique_id, "--build-arg", f"own={unique_id}", str(own_image))
    image = registry.push(unique_id, f"{unique_id}:1")
    docker("rmi", unique_id)
    agent = new_agent(
        **NOW_AND_THEN,
        PERSYS_GC_IMAGE_AFTER="1ms",
        PERSYS_CREDENTIALS_DIR=str(registry.credentials),
    )
    agent.start()
    sleeper.image, sleeper.image_credential = image, "registry"
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)

    assert collect(agent) == []
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)
    (gone,) = collect(agent)

    assert (gone.kind, gone.name, gone.removed) == ("image", image, True)
    assert docker("images", "-q", image) == ""
    assert docker("images", "-q", demo_image), "it was not fetched by the agent"


def test_persysctl_shows_and_collects_garbage(
    new_agent: Callable[..., Agent],
    sleeper: agent_pb2.ContainerSpec,
    demo_image: str,
    unique_id: str,
    leftovers: list[str],
) -> None:
    agent = new_agent(**NOW_AND_THEN)
    agent.start()
    agent.apply(unique_id, sleeper)
    agent.wait_for(unique_id, RUNNING)
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)
    leftovers.append(make_container(agent, unique_id, demo_image))
    eventually(lambda: bool(collect(agent, dry_run=True)), "it is seen")

    def gc(*flags: str) -> str:
        command = [str(Path(sys.executable).parent / "persysctl"), "agent", "gc", *flags]
        result = subprocess.run(
            [*command, "--agent", f"127.0.0.1:{agent.port}"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return result.stdout

    assert "zombie" in gc("--dry-run")
    assert exists(leftovers[0])
    assert "yes" in gc()
    assert not exists(leftovers[0])
    assert "no garbage" in gc()
