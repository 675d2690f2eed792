"""Thousands of idle connections to a process with few file descriptors: every port still responds."""

import json
import resource
import socket
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from e2e.cluster import BIN
from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually
from persys.client import SchedulerClient
from persys.errors import UnavailableError

CONNECTIONS = 2_000
# A hard limit that many connections would exhaust at once if their number were not limited.
FEW_DESCRIPTORS = ("prlimit", "--nofile=1024:1024")
SILENCE: bytes = b""
HALF_A_HEADER = b"GET /health HTTP/1.1\r\nX-A: "


class Ports(NamedTuple):
    grpc: int
    metrics: int
    gateway: int
    webhooks: int
    ca: int


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    directory = tmp_path_factory.mktemp("connections")
    ports = Ports(*(free_port() for _ in Ports._fields))
    running = [
        _process(
            directory,
            "persys-scheduler",
            ports.grpc,
            {
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "GRPC_PORT": str(ports.grpc),
                "METRICS_PORT": str(ports.metrics),
                "PERSYS_STORE": f"sqlite:{directory / 'scheduler.db'}",
            },
        ),
        _process(
            directory,
            "persys-gateway",
            ports.gateway,
            {
                "PERSYS_GATEWAY_CONFIG": str(_gateway_config(directory, ports)),
                "PERSYS_GATEWAY_CONNECTIONS_MAX": "256",
            },
        ),
        _process(
            directory,
            "persys-ca",
            ports.ca,
            {
                "PERSYS_CA_DIR": str(directory / "ca"),
                "PERSYS_CA_LISTEN": "127.0.0.1",
                "PERSYS_CA_PORT": str(ports.ca),
            },
        ),
    ]
    try:
        for process in running:
            process.start()
        yield ports
    finally:
        for process in running:
            process.kill()


def _process(directory: Path, program: str, port: int, environment: dict[str, str]) -> Process:
    insecure = [] if program == "persys-ca" else ["-insecure"]
    return Process(
        [*FEW_DESCRIPTORS, str(BIN / program), *insecure],
        environment,
        log=directory / f"{program}.log",
        ready=lambda: listens_on(port),
    )


def _gateway_config(directory: Path, ports: Ports) -> Path:
    path = directory / "gateway.yaml"
    config = {
        "addr": "127.0.0.1",
        "port": ports.gateway,
        "public_addr": "127.0.0.1",
        "public_port": ports.webhooks,
        "audit_db": "memory",
        "scheduler_addr": [f"127.0.0.1:{ports.grpc}"],
        "webhooks": [{"repository": "acme/shop", "secret": "s3cret"}],
    }
    path.write_text(json.dumps(config))
    return path


def answers_grpc(ports: Ports) -> bool:
    try:
        with SchedulerClient(f"127.0.0.1:{ports.grpc}", timeout=timedelta(seconds=5)) as client:
            client.list_nodes()
    except UnavailableError:
        return False
    return True


def answers_http(port: int, scheme: str = "http") -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"{scheme}://127.0.0.1:{port}/health"
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as response:
            return bool(response.status == 200)
    except OSError:
        return False


ANSWERS: dict[str, Callable[[Ports], bool]] = {
    "grpc": answers_grpc,
    "metrics": lambda ports: answers_http(ports.metrics),
    "gateway": lambda ports: answers_http(ports.gateway),
    "webhooks": lambda ports: answers_http(ports.webhooks),
    "ca": lambda ports: answers_http(ports.ca, "https"),
}


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(SILENCE, marks=pytest.mark.full, id="silence"),
        pytest.param(HALF_A_HEADER, id="half a header"),
    ],
)
@pytest.mark.parametrize("name", Ports._fields)
def test_idle_connections_on_one_port_do_not_block_any_port(
    ports: Ports, name: str, sent: bytes
) -> None:
    held = []
    try:
        for _ in range(CONNECTIONS):
            client = socket.create_connection(("127.0.0.1", getattr(ports, name)), timeout=30)
            held.append(client)
            try:
                client.sendall(sent)
            except ConnectionError:
                continue  # already closed: over the limit

        for other, responses in ANSWERS.items():
            eventually(partial(responses, ports), f"{other} answers")
    finally:
        for client in held:
            client.close()
