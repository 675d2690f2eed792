"""A machine of the provider `ec2`: moto stores its user data, and a real agent boots from it and joins."""

import base64
import hashlib
import http.server
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from e2e.cluster import BIN, a_container
from e2e.machine import BootedMachine
from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually
from persys.client import SchedulerClient
from persys.client.grpc.channel import Trust
from persys.infra.atomic_files import CertificateFiles
from persys.model.nodepool import MachineSize, NodePool, PoolId, Software
from persys.model.placement import Resources
from persys.providers.open import open_provider
from persys.providers.port import MachineRequest, Provider
from persys.providers.user_data import Boot, user_data
from persys.wire.gen.control.v1 import control_pb2 as pb

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
TAGS = {"persys-cluster": "home", "persys-pool": "burst"}


class SecureHome:
    """A CA and a scheduler with TLS."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ca_port, port = free_port(), free_port()
        self.target = f"127.0.0.1:{port}"
        self.ca = Process(
            [str(BIN / "persys-ca")],
            self._variables(),
            log=folder / "ca.log",
            ready=lambda: listens_on(self._ca_port),
        )
        self.scheduler = Process(
            [str(BIN / "persys-scheduler")],
            {
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "GRPC_PORT": str(port),
                "METRICS_PORT": str(free_port()),
                "PERSYS_STORE": f"sqlite:{folder / 'scheduler.db'}",
                "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
                **self._certificate_variables("scheduler"),
            },
            log=folder / "scheduler.log",
            ready=lambda: listens_on(port),
        )

    def start(self) -> None:
        for role, name in (("admin", "ada"), ("scheduler", "s1")):
            out = str(self._folder / role)
            self._run("persys-ca", "certificate", "--role", role, "--name", name, "--out", out)
        self.ca.start()
        self.scheduler.start()

    def close(self) -> None:
        self.scheduler.close()
        self.ca.close()

    def client(self) -> SchedulerClient:
        trust = Trust(self._files("admin"))
        return SchedulerClient(self.target, timeout=timedelta(seconds=30), trust=trust)

    def join_token(self, node_id: str) -> str:
        create = ("token", "create", "--role", "agent", "--node", node_id, "--ttl", "15m")
        return self._run("persysctl", *create, "--authority", f"127.0.0.1:{self._ca_port}").strip()

    def _files(self, role: str) -> CertificateFiles:
        folder = self._folder / role
        return CertificateFiles(folder / f"{role}.crt", folder / f"{role}.key", folder / "ca.crt")

    def _certificate_variables(self, role: str) -> dict[str, str]:
        files = self._files(role)
        return {
            "PERSYS_TLS_CA": str(files.roots),
            "PERSYS_TLS_CERT": str(files.certificate),
            "PERSYS_TLS_KEY": str(files.key),
        }

    def _variables(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "PERSYS_CA_DIR": str(self._folder / "ca"),
            "PERSYS_CA_PORT": str(self._ca_port),
            "PERSYS_CA_LISTEN": "127.0.0.1",
            "PERSYS_CA_ADVERTISE": f"127.0.0.1:{self._ca_port}",
            **self._certificate_variables("admin"),
        }

    def _run(self, program: str, *words: str) -> str:
        done = subprocess.run(
            [BIN / program, *words],
            env=self._variables(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Iterator[SecureHome]:
    made = SecureHome(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
async def provider(endpoint: str) -> AsyncIterator[Provider]:
    pool = NodePool(
        PoolId("burst"),
        "ec2",
        (MachineSize("t3.small", Resources(2000, 2048, 20), 0.02),),
        max_machines=1,
        spend_per_hour_max=1.0,
        region="eu-west-1",
        image="ami-12c6146b",
        options={"endpoint": endpoint},
    )
    made = open_provider(pool, CREDENTIALS, None)
    yield made
    await made.close()


@pytest.fixture
def new_machine(tmp_path: Path) -> Iterator[Callable[[str], BootedMachine]]:
    made: list[BootedMachine] = []

    def make(text: str) -> BootedMachine:
        folder = tmp_path / f"machine-{len(made)}"
        folder.mkdir()
        ports = {"PERSYS_GRPC_PORT": str(free_port()), "PERSYS_METRICS_PORT": str(free_port())}
        made.append(BootedMachine(folder, text, {"PERSYS_GRPC_ADDR": "127.0.0.1", **ports}))
        return made[-1]

    yield make
    for machine in made:
        machine.terminate()


def stored_user_data(endpoint: str, provider_id: str) -> str:
    """The user data as the cloud passes it to the machine."""
    client = boto3.client(
        "ec2",
        region_name="eu-west-1",
        endpoint_url=endpoint,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    answer = client.describe_instance_attribute(InstanceId=provider_id, Attribute="userData")
    return base64.b64decode(answer["UserData"]["Value"]).decode()


async def test_a_machine_joins_runs_a_workload_and_ends(
    home: SecureHome,
    provider: Provider,
    endpoint: str,
    new_machine: Callable[[str], BootedMachine],
    demo_image: str,
) -> None:
    node_id = f"home-burst-{uuid4().hex[:6]}"
    boot = Boot(
        node_id,
        "default",
        (home.target,),
        home.join_token(node_id),
        timedelta(minutes=10),
        labels={"pool": "burst"},
        tier=1,
        core_hour_price=0.02,
    )
    tags = {**TAGS, "persys-machine": node_id}
    request = MachineRequest(
        node_id,
        tags,
        "t3.small",
        "ami-12c6146b",
        "eu-west-1",
        user_data(boot),
        {"endpoint": endpoint},
    )

    created = await provider.create(request)
    machine = new_machine(stored_user_data(endpoint, created.provider_id))
    booted = machine.boot()

    assert booted.returncode == 0, booted.stderr
    assert not machine.file("/etc/persys/join-token").exists()
    assert machine.systemctl_calls()[:3] == [
        "daemon-reload",
        "enable --now persys-power-off.timer",
        "enable --now persys-block-metadata.service",
    ]
    with home.client() as client:
        eventually(partial(is_ready, client, node_id), machine.log)
        view = client.get_node(node_id)
        assert (view.labels["pool"], view.tier) == ("burst", 1)
        offloaded = pb.PlacementRules(offload="prefer")
        spec = a_container(demo_image, "sleep", "600", placement=offloaded)
        client.apply(pb.ApplyWorkloadRequest(workload_id="burst-web", spec=spec))
        eventually(lambda: client.get_workload("burst-web").status == "Running", machine.log)
        assert client.get_workload("burst-web").assigned_node_id == node_id

        await provider.destroy(created.provider_id)
        assert await provider.instances(TAGS) == []


def is_ready(client: SchedulerClient, node_id: str) -> bool:
    return node_id in {node.node_id for node in client.list_nodes(status="Ready")}


def test_software_with_a_wrong_checksum_is_not_installed(
    tmp_path: Path, new_machine: Callable[[str], BootedMachine]
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    (served / "persys.tar.gz").write_bytes(b"changed on its way")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Tests print nothing."""

    server = http.server.HTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    software = Software(
        f"http://127.0.0.1:{server.server_port}/persys.tar.gz",
        hashlib.sha256(b"as built").hexdigest(),
    )
    boot = Boot("n1", "home", ("127.0.0.1:1",), "", timedelta(minutes=10), software=software)
    machine = new_machine(user_data(boot))

    booted = machine.boot()
    server.shutdown()
    thread.join()
    server.server_close()

    assert booted.returncode != 0
    assert "FAILED" in booted.stdout
    assert not any("persys-agent" in call for call in machine.systemctl_calls())
