"""Stacks with private images: pulled with a credential of the node, which is not stored anywhere."""

import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import compose_binaries
from registry import PASSWORD, USER, Registry
from shells.agent.conftest import FAILED, RUNNING, Agent
from shells.agent.runtimes.compose.stacks import apply as apply_stack

WITHIN = 60.0
LOGIN = b64encode(f"{USER}:{PASSWORD}".encode())


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    created = Registry(tmp_path_factory.mktemp("registry"))
    yield created
    created.close()


@pytest.fixture
def images(registry: Registry, demo_image: str, unique_id: str) -> Iterator[list[str]]:
    """Two private images that Docker does not have, and one public; pulled images are removed afterwards."""
    pushed = [registry.push(demo_image, f"{unique_id}:{number}") for number in range(2)]
    yield [*pushed, demo_image]
    for image in pushed:
        subprocess.run(["docker", "rmi", image], capture_output=True, check=False, timeout=60)


@pytest.mark.parametrize(
    "binary",
    [
        pytest.param(compose_binaries.V1, marks=pytest.mark.full, id="v1"),
        pytest.param(compose_binaries.V2, id="v2"),
    ],
)
def test_private_images_of_a_mixed_stack_are_pulled_and_the_secret_is_not_stored(
    binary: str,
    new_agent: Callable[..., Agent],
    registry: Registry,
    images: list[str],
    unique_id: str,
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    agent = new_agent(
        PERSYS_COMPOSE_ENABLED="true",
        PERSYS_COMPOSE_BINARY=binary,
        PERSYS_CREDENTIALS_DIR=str(registry.credentials),
        PERSYS_LOG_LEVEL="debug",
        HOME=str(home),
    )
    agent.start()

    apply(agent, unique_id, images, revision="r1", credential="")
    refused = agent.wait_for(unique_id, FAILED, within=WITHIN)
    assert refused.metadata["failure_reason"] == "IMAGE_PULL_FAILED"

    apply(agent, unique_id, images, revision="r2", credential="registry")
    status = agent.wait_for(unique_id, RUNNING, within=WITHIN)
    assert status.metadata["compose.services"] == "cache=running,db=running,web=running"
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"image_credential" in path.read_bytes() for path in kept), "only its name is kept"
    for path in kept:
        content = path.read_bytes()
        assert PASSWORD.encode() not in content, path
        assert LOGIN not in content, path
    assert PASSWORD not in str(status)
    assert not (home / ".docker" / "config.json").exists()
    agent.delete(unique_id)
    agent.wait_until_gone(unique_id)


def apply(
    agent: Agent, workload_id: str, images: list[str], *, revision: str, credential: str
) -> None:
    web, db, cache = images
    text = (
        f"services:\n  web: {{image: '{web}', command: [sleep, '3600'], init: true}}\n"
        f"  db: {{image: '{db}', command: [sleep, '3600'], init: true, pull_policy: always}}\n"
        f"  cache: {{image: '{cache}', command: [sleep, '3600'], init: true}}\n"
    )
    apply_stack(agent, workload_id, text, revision=revision, image_credential=credential)
