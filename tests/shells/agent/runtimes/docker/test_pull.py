"""Images from a private registry, with credentials that only the node has."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from persys.wire.gen.agent.v1 import agent_pb2
from registry import PASSWORD, USER, Registry, SlowProxy
from shells.agent.conftest import FAILED, PENDING, RUNNING, Agent, eventually

LAYER_BYTES = 4_000_000


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    created = Registry(tmp_path_factory.mktemp("registry"))
    yield created
    created.close()


@pytest.fixture(scope="module")
def image(registry: Registry, demo_image: str) -> str:
    return registry.push(demo_image, "private:1")


@pytest.fixture(scope="module")
def credentials(tmp_path_factory: pytest.TempPathFactory, registry: Registry) -> Path:
    directory = tmp_path_factory.mktemp("credentials")
    hosts = {"elsewhere": ["registry.example.org"]}
    for name, password in (
        ("ours", PASSWORD),
        ("wrong", "guess"),
        ("open", PASSWORD),
        ("elsewhere", PASSWORD),
    ):
        path = directory / f"{name}.json"
        credential = {"username": USER, "password": password}
        path.write_text(json.dumps(credential | {"hosts": hosts.get(name, [registry.address])}))
        path.chmod(0o644 if name == "open" else 0o600)
    key = directory / "key.json"
    key.write_text(json.dumps({"ssh_key": "k", "hosts": [registry.address]}))
    key.chmod(0o600)
    return directory


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, credentials: Path) -> Iterator[Agent]:
    created = Agent(
        tmp_path_factory.mktemp("node"),
        PERSYS_CREDENTIALS_DIR=str(credentials),
        PERSYS_RECONCILE_INTERVAL="1h",
    )
    created.start()
    yield created
    created.close()


@pytest.fixture
def apply(node: Agent, unique_id: str) -> Iterator[Callable[[str, str], str]]:
    """Run an image with a credential; both are removed afterwards."""
    images = []

    def run(image: str, credential: str) -> str:
        images.append(image)
        node.apply(
            unique_id,
            agent_pb2.ContainerSpec(
                image=image,
                command=["sleep", "3600"],
                init=True,
                image_credential=credential,
                image_pull_policy="Always",
            ),
        )
        return unique_id

    yield run
    node.delete(unique_id)
    node.wait_until_gone(unique_id)
    for each in images:
        subprocess.run(["docker", "rmi", each], capture_output=True, check=False, timeout=60)


def test_a_private_image_is_pulled_with_the_credential_of_the_node(
    node: Agent, apply: Callable[[str, str], str], image: str
) -> None:
    workload_id = apply(image, "ours")

    status = node.wait_for(workload_id, RUNNING)
    assert status.metadata["container.image"] == image


def test_the_secret_is_in_no_record_log_or_status(
    node: Agent, apply: Callable[[str, str], str], image: str
) -> None:
    workload_id = apply(image, "ours")

    describe = str(node.wait_for(workload_id, RUNNING)).encode()
    written = b"".join(path.read_bytes() for path in node.directory.iterdir() if path.is_file())
    assert b"ours" in written
    assert PASSWORD.encode() not in describe + written


@pytest.mark.parametrize(
    ("credential", "says"),
    [
        ("", "no basic auth credentials"),
        ("wrong", "unauthorized"),
        ("absent", "credential not found: absent"),
        ("open", "invalid mode 0644: expected 0600"),
        ("key", "has no username and password"),
        ("elsewhere", "is for registry.example.org, not for 127.0.0.1:"),
    ],
)
def test_without_a_valid_credential_the_pull_fails_with_a_reason(
    node: Agent, apply: Callable[[str, str], str], image: str, credential: str, says: str
) -> None:
    workload_id = apply(image, credential)

    status = node.wait_for(workload_id, FAILED)
    assert status.metadata["failure_reason"] == "IMAGE_PULL_FAILED"
    assert status.metadata["retry_terminal"] == "false"
    assert says in status.message


def test_an_image_that_is_not_in_the_registry_is_not_found(
    node: Agent, apply: Callable[[str, str], str], registry: Registry
) -> None:
    workload_id = apply(f"{registry.address}/private:2", "ours")

    status = node.wait_for(workload_id, FAILED)
    assert status.metadata["failure_reason"] == "IMAGE_NOT_FOUND"
    assert status.metadata["retry_terminal"] == "true"


def test_the_status_shows_the_pull_progress(
    node: Agent,
    apply: Callable[[str, str], str],
    registry: Registry,
    credentials: Path,
    large_image: str,
) -> None:
    way = SlowProxy(registry.address, bytes_per_second=LAYER_BYTES // 4)
    hosts = {"hosts": [way.address], "username": USER, "password": PASSWORD}
    (credentials / "slow.json").write_text(json.dumps(hosts))
    (credentials / "slow.json").chmod(0o600)
    describe: set[str] = set()
    try:
        workload_id = apply(large_image.replace(registry.address, way.address), "slow")

        def is_over() -> bool:
            status = node.status(workload_id)
            if status.metadata.get("reason_code") == "Pulling":
                assert status.actual_state == PENDING
                describe.add(status.message)
            return status.actual_state == RUNNING

        eventually(is_over, "it runs", within=60)
    finally:
        way.close()

    assert any(" layers, " in text and " of 12 MB" in text for text in describe), describe
    assert 3 <= len(describe) <= 20


@pytest.fixture(scope="module")
def large_image(
    registry: Registry, demo_image: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Three incompressible layers."""
    context = tmp_path_factory.mktemp("image")
    lines = [f"FROM {demo_image}"]
    for number in range(3):
        (context / f"part{number}").write_bytes(os.urandom(LAYER_BYTES))
        lines.append(f"COPY part{number} /")
    (context / "Dockerfile").write_text("\n".join(lines))
    name = f"{registry.address}/built"
    subprocess.run(
        ["docker", "build", "-q", "-t", name, str(context)],
        env=os.environ | {"DOCKER_BUILDKIT": "0"},
        capture_output=True,
        timeout=120,
        check=True,
    )
    pushed = registry.push(name, "large:1")
    subprocess.run(["docker", "rmi", name], capture_output=True, timeout=60, check=True)
    return pushed
