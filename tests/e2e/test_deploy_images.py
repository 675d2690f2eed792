"""The image of each component, built from this clone without a registry, and started as it is deployed."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from e2e import images
from e2e.containers import docker
from e2e.process import free_port
from e2e.waiting import eventually
from persys.wire.gen.agent.v1 import agent_pb2, agent_pb2_grpc

pytestmark = pytest.mark.timeout(images.BUILD_SECONDS + 300)
PROGRAMS = {
    "persys-scheduler": "persys-scheduler",
    "persys-gateway": "persys-gateway",
    "persys-ca": "persys-ca",
    "compute-agent": "persys-agent",
}
# What --privileged gives and this machine can give. A kernel that allows it all needs only --privileged.
ALMOST_PRIVILEGED = (
    "--cap-add=SYS_ADMIN",
    "--security-opt=seccomp=unconfined",
    "--security-opt=apparmor=unconfined",
)


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    images.build_persys(*PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_image_of_a_component_starts_its_program(name: str) -> None:
    image = f"{images.PREFIX}/{name}:latest"

    assert "log_level = " in docker("run", "--rm", image, "--print-config")
    assert f"usage: {PROGRAMS[name]}" in docker("run", "--rm", image, "--help")


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """As `make dev-certs` creates them, for a node with the name n1."""
    script = images.ROOT / "scripts" / "dev-certs"
    subprocess.run([script, tmp_path / "dev"], env={"PERSYS_NODE_ID": "n1"}, check=True, timeout=60)
    return tmp_path / "dev" / "certs"


@pytest.fixture
def agent(certificates: Path, tmp_path: Path, unique_id: str) -> Iterator[int]:
    """The port of an agent that runs in a container."""
    port, name = free_port(), f"persys-agent-{unique_id}"
    run = ["run", "-d", "--name", name, "-v", "/var/run/docker.sock:/var/run/docker.sock"]
    run += [
        "-v",
        "/var/run/libvirt:/var/run/libvirt",
        "-v",
        f"{tmp_path / 'state'}:/var/lib/persys",
    ]
    run += ["-v", f"{certificates}:/etc/persys/certs:ro", "-p", f"127.0.0.1:{port}:50051"]
    run += ["-e", "PERSYS_NODE_ID=n1", *ALMOST_PRIVILEGED, f"{images.PREFIX}/compute-agent:latest"]
    try:
        docker(*run)
        yield port
    finally:
        docker("rm", "-f", name)


def test_an_agent_in_a_container_has_every_runtime_of_its_host(
    agent: int, certificates: Path
) -> None:
    admin = certificates / "admin"
    credentials = grpc.ssl_channel_credentials(
        *((admin / name).read_bytes() for name in ("ca.crt", "admin.key", "admin.crt"))
    )
    options = [("grpc.ssl_target_name_override", "n1.agent.persys.internal")]
    with grpc.secure_channel(f"127.0.0.1:{agent}", credentials, options) as channel:
        stub = agent_pb2_grpc.AgentServiceStub(channel)

        def runtimes() -> dict[str, str]:
            try:
                answer = stub.HealthCheck(agent_pb2.HealthCheckRequest(), timeout=10)
            except grpc.RpcError as err:
                return {"agent": str(err)}
            return dict(answer.runtime_status)

        wanted = dict.fromkeys(("container", "compose", "vm"), "healthy")
        eventually(lambda: runtimes() == wanted, lambda: f"{runtimes()}", within=60)
