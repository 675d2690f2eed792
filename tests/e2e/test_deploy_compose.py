"""Our image, and the control plane of deploy/compose with it, without Grafana, which is not packaged."""

import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import compose_binaries
from e2e import images
from e2e.cluster import BIN
from e2e.containers import docker
from e2e.gateways import Gateway
from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually
from persys.client import SchedulerClient
from persys.client.grpc.channel import Trust
from persys.model.identity import Role
from root_ca import Root

pytestmark = pytest.mark.timeout(images.BUILD_SECONDS + 300)
FILE = images.ROOT / "deploy" / "compose" / "compose.yaml"
COREDNS = images.ROOT / ".cache" / "engines" / "coredns"
STARTED = (
    "ca",
    "etcd",
    "scheduler-1",
    "scheduler-2",
    "scheduler-3",
    "gateway",
    "coredns",
    "prometheus",
)
PORTS = (
    "CA",
    "SCHEDULER_1",
    "SCHEDULER_2",
    "SCHEDULER_3",
    "GATEWAY",
    "WEBHOOKS",
    "DNS",
    "PROMETHEUS",
)
_DEADLINE_SECONDS = 150


@pytest.fixture(scope="module")
def image() -> str:
    images.build_persys()
    return images.PERSYS


class Stack:
    def __init__(self, images_by_name: dict[str, str]) -> None:
        self.ports = {name: free_port() for name in PORTS}
        self._project = f"persys-{uuid4().hex[:8]}"
        self._env = {
            "PATH": os.environ["PATH"],
            **{f"IMAGE_{name}": image for name, image in images_by_name.items()},
            **{f"PORT_{name}": str(port) for name, port in self.ports.items()},
        }

    def compose(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*compose_binaries.V2.split(), "-p", self._project, "-f", str(FILE), *words],
            env=self._env,
            input=text,
            capture_output=True,
            text=True,
            timeout=_DEADLINE_SECONDS,
            check=False,
        )

    def persysctl(self, *words: str, text: str = "") -> str:
        done = self.compose("run", "--rm", "--no-deps", "-T", "persysctl", *words, text=text)
        return (
            done.stdout if done.returncode == 0 else f"ended with {done.returncode}: {done.stderr}"
        )

    def store(self, path: str, content: str) -> None:
        """Write a file where persysctl and the federation read it."""
        shell = ("run", "--rm", "--no-deps", "-T", "--entrypoint", "sh", "persysctl", "-ec")
        done = self.compose(*shell, f"umask 077; cat >{path}", text=content)
        assert done.returncode == 0, done.stderr

    def host_address(self) -> str:
        """The address of this host in the network of the stack."""
        form = "{{(index .IPAM.Config 0).Gateway}}"
        return docker("network", "inspect", f"{self._project}_plane", "--format", form).strip()

    def federation(self, name: str) -> subprocess.CompletedProcess[str]:
        self._env["FEDERATION"] = name
        return self.compose("--profile", "federation", "up", "-d", "--no-build", "federation")

    def inside(self, service: str, script: str) -> str:
        return self.compose("exec", "-T", service, "python3", "-c", script).stdout


class LocalAgent:
    """An agent on this host, with all its files in one directory."""

    def __init__(self, node_id: str, directory: Path) -> None:
        self._node_id = node_id
        self._config = directory / "agent.yaml"
        self._env = {
            "PATH": os.environ["PATH"],
            "PERSYS_NODE_ID": node_id,
            "PERSYS_GRPC_PORT": str(free_port()),
            "PERSYS_METRICS_PORT": str(free_port()),
            "PERSYS_STATE_PATH": str(directory / "state.db"),
            "PERSYS_STORAGE_LOCAL_ROOT": str(directory / "volumes"),
            "PERSYS_TLS_CA": str(directory / "ca.crt"),
            "PERSYS_TLS_CERT": str(directory / "agent.crt"),
            "PERSYS_TLS_KEY": str(directory / "agent.key"),
            "PERSYS_COMPOSE_ENABLED": "false",
            "PERSYS_VM_ENABLED": "false",
        }
        self.process = Process(
            [str(BIN / "persys-agent"), "--config", str(self._config)],
            self._env,
            log=directory / "agent.log",
            ready=lambda: "scheduler.connected" in self.process.log,
        )

    def join(self, scheduler: str, token: str) -> None:
        words = [str(BIN / "persys-agent"), "join", "--config", str(self._config), scheduler, token]
        result = subprocess.run(
            words, env=self._env, capture_output=True, text=True, timeout=60, check=False
        )
        assert result.returncode == 0, f"{token}: {result.stderr}"

    def remove_containers(self) -> None:
        label = f"label=persys.node_id={self._node_id}"
        for container in docker("ps", "-aq", "--filter", label).split():
            docker("rm", "-f", container)


@pytest.fixture(scope="module")
def stack(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    prometheus = shutil.which("prometheus")
    assert prometheus is not None, "the tests need prometheus"
    place = tmp_path_factory.mktemp("programs")
    created = Stack(
        {
            "PERSYS": image,
            "ETCD": images.build_etcd(),
            "COREDNS": images.build_program(images.COREDNS, COREDNS, place / "coredns"),
            "PROMETHEUS": images.build_program(
                images.PROMETHEUS, Path(prometheus), place / "prometheus"
            ),
        }
    )
    try:
        up = created.compose("up", "-d", "--no-build", *STARTED)
        assert up.returncode == 0, up.stderr + created.compose("logs").stdout[-6000:]
        yield created
    finally:
        profiles = ("--profile", "tools", "--profile", "federation")
        created.compose(*profiles, "down", "-v", "--timeout", "5")


def test_the_image_has_every_program(image: str) -> None:
    for program in (
        "persys-scheduler",
        "persys-agent",
        "persys-ca",
        "persys-gateway",
        "persys-federation",
    ):
        assert "log_level = " in docker("run", "--rm", image, program, "--print-config")
    assert "usage: persysctl" in docker("run", "--rm", image)


def test_the_compose_file_is_valid(stack: Stack) -> None:
    config = stack.compose("--profile", "tools", "config", "--format", "json")

    assert config.returncode == 0, config.stderr
    services = json.loads(config.stdout)["services"]
    assert services.keys() == {*STARTED, "certificates", "grafana", "persysctl"}


def test_one_of_three_schedulers_on_one_etcd_leads(stack: Stack) -> None:
    url = "http://127.0.0.1:8084/health"
    ask = f"import urllib.request as r; print(r.urlopen('{url}').read().decode())"

    def roles() -> list[str]:
        responses = [stack.inside(f"scheduler-{number}", ask) for number in (1, 2, 3)]
        return sorted(json.loads(response)["role"] if response else "" for response in responses)

    eventually(lambda: roles() == ["leader", "standby", "standby"], lambda: f"{roles()}")
    assert "normal" in stack.persysctl("recovery", "status")


def test_an_agent_joins_with_a_token_and_runs_a_workload_from_the_gateway(
    stack: Stack, unique_id: str, demo_image: str, tmp_path: Path
) -> None:
    token = stack.persysctl("token", "create", "--role", "agent", "--node", unique_id).strip()
    agent = LocalAgent(unique_id, tmp_path)
    try:
        scheduler = f"127.0.0.1:{stack.ports['SCHEDULER_1']}"
        agent.join(scheduler, token)
        agent.process.start()
        gateway = ("--api", "https://gateway:8551")
        spec = f"{{id: {unique_id}, container: {{image: {demo_image}, init: true, command: [sleep, '99']}}}}"
        eventually(
            lambda: unique_id in stack.persysctl(*gateway, "node", "list", "--status", "Ready"),
            lambda: stack.persysctl(*gateway, "node", "list") + agent.process.log[-3000:],
        )
        output = stack.persysctl(*gateway, "apply", "-f", "-", "--wait", text=spec)
        assert f"{unique_id}: Running" in output
        stack.persysctl("workload", "delete", unique_id, "--wait")
    finally:
        agent.process.kill()
        agent.remove_containers()


def test_coredns_resolves_the_schedulers(stack: Stack) -> None:
    def found() -> str:
        name = "_persys-scheduler._tcp.persys.local"
        words = [
            "dig",
            "+short",
            "+time=2",
            "@127.0.0.1",
            "-p",
            str(stack.ports["DNS"]),
            "SRV",
            name,
        ]
        return subprocess.run(words, capture_output=True, text=True, timeout=20, check=False).stdout

    eventually(lambda: len(found().splitlines()) == 3, found, within=30)


def test_prometheus_sees_one_leader_among_three_schedulers(stack: Stack) -> None:
    def sees(query: str) -> str:
        url = f"http://127.0.0.1:{stack.ports['PROMETHEUS']}/api/v1/query?query={query}"
        with urllib.request.urlopen(url, timeout=10) as response:
            found = json.load(response)["data"]["result"]
        return str(found[0]["value"][1]) if found else ""

    eventually(lambda: sees("count(persys_scheduler_leading)") == "3", "three are scraped")
    assert sees("sum(persys_scheduler_leading)") == "1"


@pytest.mark.full
def test_another_cluster_becomes_a_node_with_the_service_federation(
    stack: Stack, tmp_path: Path
) -> None:
    address = stack.host_address()
    root = Root(tmp_path / "certs")
    port = free_port()
    scheduler = Process(
        [str(BIN / "persys-scheduler")],
        {
            "PERSYS_CLUSTER_ID": "east",
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "GRPC_PORT": str(port),
            "METRICS_PORT": str(free_port()),
            "PERSYS_STORE": f"sqlite:{tmp_path / 'scheduler.db'}",
            **root.variables(root.write(Role.SCHEDULER, "s1")),
        },
        log=tmp_path / "scheduler.log",
        ready=lambda: listens_on(port),
    )
    variables = root.variables(root.write(Role.GATEWAY, "g1", hosts=(address,)))
    settings = {**variables, "PERSYS_GATEWAY_ADDR": "0.0.0.0"}
    gateway = Gateway(tmp_path, {"east": f"127.0.0.1:{port}"}, settings)
    admin = root.write(Role.ADMIN, "me")
    agent = Process(
        [str(BIN / "persys-agent")],
        {
            "PERSYS_CLUSTER_ID": "east",
            "PERSYS_NODE_ID": "east-1",
            "PERSYS_GRPC_PORT": str(free_port()),
            "PERSYS_METRICS_PORT": str(free_port()),
            "PERSYS_SCHEDULER_ADDR": f"127.0.0.1:{port}",
            "PERSYS_STATE_PATH": str(tmp_path / "agent.db"),
            "PERSYS_STORAGE_LOCAL_ROOT": str(tmp_path / "volumes"),
            **root.variables(root.write(Role.AGENT, "east-1")),
        },
        log=tmp_path / "agent.log",
        ready=lambda: "scheduler.connected" in agent.log,
    )
    try:
        scheduler.start()
        agent.start()
        gateway.process.start()
        with SchedulerClient(f"127.0.0.1:{port}", trust=Trust(admin)) as client:
            token = client.create_token("home", "operator", prefix="default--").secret
        stack.store("/etc/persys/federation/token", token)
        stack.store("/etc/persys/federation/ca.crt", admin.roots.read_text())
        added = stack.persysctl(
            "federation", "add", "east",
            "--remote", f"https://{address}:{gateway.port}",
            "--token-file", "/etc/persys/federation/token",
            "--remote-ca", "/etc/persys/federation/ca.crt",
        )  # fmt: skip
        assert "settings are in /etc/persys/federation/east.env" in added

        started = stack.federation("east")

        assert started.returncode == 0, started.stderr
        eventually(
            lambda: "east" in stack.persysctl("node", "list"),
            lambda: stack.compose("logs", "federation").stdout[-4000:],
            within=_DEADLINE_SECONDS,
        )
    finally:
        agent.close()
        gateway.process.close()
        scheduler.close()
