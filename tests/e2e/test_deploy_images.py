"""The image of each component, built from this clone without a registry, and started as deployed."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from e2e import containers, images
from e2e.containers import docker
from e2e.process import free_port
from e2e.waiting import eventually
from pages import page
from persys.wire.gen.agent.v1 import agent_pb2, agent_pb2_grpc

pytestmark = pytest.mark.timeout(images.BUILD_SECONDS + 300)
PROGRAMS = {
    "persys-scheduler": "persys-scheduler",
    "persys-gateway": "persys-gateway",
    "persys-ca": "persys-ca",
    "persys-federation": "persys-federation",
    "compute-agent": "persys-agent",
}
# The part of --privileged that this host allows. Elsewhere --privileged is enough.
ALMOST_PRIVILEGED = (
    "--cap-add=SYS_ADMIN",
    "--security-opt=seccomp=unconfined",
    "--security-opt=apparmor=unconfined",
)


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    images.build_persys()


# The images differ in their entry point only, except that of the agent.
@pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("persys-scheduler", "compute-agent")
        else pytest.param(name, marks=pytest.mark.full)
        for name in PROGRAMS
    ],
)
def test_a_component_image_starts_its_program(name: str) -> None:
    image = f"{images.PREFIX}/{name}:latest"

    assert "log_level = " in docker("run", "--rm", image, "--print-config")
    assert f"usage: {PROGRAMS[name]}" in docker("run", "--rm", image, "--help")


@pytest.mark.parametrize("name", ["persys-ca", "compute-agent"])
def test_the_label_of_an_image_is_the_version_of_its_programs(name: str) -> None:
    image = f"{images.PREFIX}/{name}:latest"
    label = '{{index .Config.Labels "org.opencontainers.image.version"}}'

    version = docker("run", "--rm", "--entrypoint", "persysctl", image, "version")

    assert version == f"persysctl {docker('inspect', '--format', label, image)}"


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """Certificates of `make dev-certs` for the node n1."""
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
                response = stub.HealthCheck(agent_pb2.HealthCheckRequest(), timeout=10)
            except grpc.RpcError as err:
                return {"agent": str(err)}
            return dict(response.runtime_status)

        wanted = dict.fromkeys(("container", "compose", "vm"), "healthy")
        eventually(lambda: runtimes() == wanted, lambda: f"{runtimes()}", within=60)


class Components:
    """Containers of our images on one network. Each has a name that the others can resolve."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._undo = ExitStack()
        docker("network", "create", mark)
        self._undo.callback(docker, "network", "rm", mark)

    def close(self) -> None:
        self._undo.close()

    def address(self, image: str, port: int) -> str:
        return f"{self._mark}-{image}:{port}"

    def start(self, image: str, *words: str, options: tuple[str, ...] = ()) -> str:
        """Returns the name of the container."""
        name = f"{self._mark}-{image}"
        run = ("run", "-d", "--name", name, "--network", self._mark, *options)
        self._undo.callback(docker, "rm", "-f", "-v", name)
        docker(*run, f"{images.PREFIX}/{image}:latest", *words)
        return name

    def persysctl(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        run = ("docker", "run", "-i", "--rm", "--network", self._mark, "-e", "PERSYS_INSECURE=true")
        command = ("persysctl", "--scheduler", self.address("persys-scheduler", 8085), *words)
        return subprocess.run(
            [*run, images.PERSYS, *command],
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def components(unique_id: str) -> Iterator[Components]:
    created = Components(unique_id)
    try:
        yield created
    finally:
        created.close()
        containers.remove(containers.container_ids(unique_id))


@pytest.mark.full  # test_deploy_compose.py runs schedulers and a gateway in containers
def test_a_workload_runs_in_a_cluster_of_containers(
    components: Components, unique_id: str, demo_image: str, tmp_path: Path
) -> None:
    port = free_port()
    scheduler = components.address("persys-scheduler", 8085)
    components.start("persys-scheduler", "-insecure")
    gateway = ("-e", f"PERSYS_SCHEDULER_ADDR={scheduler}", "-p", f"127.0.0.1:{port}:8551")
    components.start("persys-gateway", "-insecure", options=gateway)
    agent = ["-v", "/var/run/docker.sock:/var/run/docker.sock", *ALMOST_PRIVILEGED]
    agent += ["-v", f"{tmp_path}:/var/lib/persys", "-e", f"PERSYS_NODE_ID={unique_id}"]
    agent += ["-e", f"PERSYS_SCHEDULER_ADDR={scheduler}", "-e", "PERSYS_VM_ENABLED=false"]
    agent += [f"--env=PERSYS_ADMISSION_{name}_PERCENT=100" for name in ("CPU", "MEMORY", "DISK")]
    components.start("compute-agent", "-insecure", options=tuple(agent))
    eventually(
        lambda: unique_id in components.persysctl("node", "list").stdout,
        lambda: components.persysctl("node", "list").stderr,
    )

    spec = {
        "id": unique_id,
        "container": {"image": demo_image, "init": True, "command": ["sleep", "3600"]},
        "resources": {"cpu_millicores": 30, "memory_mb": 16},
    }
    applied = components.persysctl("apply", "-f", "-", "--wait", text=json.dumps(spec))
    assert applied.returncode == 0, applied.stderr

    (only,) = containers.inspect(containers.container_ids(unique_id, unique_id))
    assert only.running
    assert unique_id in page(f"http://127.0.0.1:{port}/workloads")


@pytest.mark.full
def test_the_ca_in_a_container_issues_certificates(
    components: Components,
) -> None:
    port = free_port()
    name = components.start("persys-ca", options=("-p", f"127.0.0.1:{port}:8888"))

    eventually(lambda: page(f"https://127.0.0.1:{port}/health") != "", "the CA responds")
    issue = ("persys-ca", "certificate", "--role", "viewer", "--name", "v", "--out", "/tmp/v")
    assert "viewer/v until" in docker("exec", name, *issue)
