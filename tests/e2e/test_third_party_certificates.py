"""Certificates of OpenSSL and CFSSL, with one common name for all nodes and one for all users."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster import BIN
from e2e.containers import container_ids, remove
from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually

HOSTS = ("127.0.0.1", "localhost")
NAMES = ("persys-scheduler", "compute-agent", "persysctl")
ROLES = "compute-agent=agent,persysctl=operator"


def run(*words: str, cwd: Path, text: str = "") -> str:
    result = subprocess.run(
        words, cwd=cwd, input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, f"{words}: {result.stderr}"
    return result.stdout


def by_openssl(directory: Path) -> None:
    """ca.pem, and for each name NAME.pem and NAME-key.pem."""
    new = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30")
    run(*new, "-keyout", "ca-key.pem", "-out", "ca.pem", "-subj", "/CN=our-ca", cwd=directory)
    for name in NAMES:
        key = ("-keyout", f"{name}-key.pem", "-out", f"{name}.pem", "-subj", f"/CN={name}")
        extensions = ("subjectAltName=IP:127.0.0.1,DNS:localhost", "basicConstraints=CA:FALSE")
        run(
            *(*new, *key, "-CA", "ca.pem", "-CAkey", "ca-key.pem"),
            *(word for extension in extensions for word in ("-addext", extension)),
            cwd=directory,
        )


def by_cfssl(directory: Path) -> None:
    key = {"algo": "ecdsa", "size": 256}
    usages = ["signing", "key encipherment", "server auth", "client auth"]
    config = {"signing": {"default": {"expiry": "720h", "usages": usages}}}
    (directory / "config.json").write_text(json.dumps(config))
    created = run(
        *("cfssl", "gencert", "-initca", "-"),
        cwd=directory,
        text=json.dumps({"CN": "our-ca", "key": key}),
    )
    run("cfssljson", "-bare", "ca", cwd=directory, text=created)
    for name in NAMES:
        request = json.dumps({"CN": name, "key": key, "hosts": HOSTS})
        sign = ("-ca", "ca.pem", "-ca-key", "ca-key.pem", "-config", "config.json", "-")
        created = run("cfssl", "gencert", *sign, cwd=directory, text=request)
        run("cfssljson", "-bare", name, cwd=directory, text=created)


class Deployment:
    def __init__(self, directory: Path, node_id: str) -> None:
        self._directory = directory
        self._port, self._node_id = free_port(), node_id
        self.scheduler = self._process(
            "scheduler",
            "persys-scheduler",
            self._port,
            GRPC_PORT=str(self._port),
            METRICS_PORT=str(free_port()),
            PERSYS_STORE=f"sqlite:{directory / 'scheduler.db'}",
        )
        port = free_port()
        self.agent = self._process(
            "agent",
            "compute-agent",
            port,
            PERSYS_GRPC_PORT=str(port),
            PERSYS_METRICS_PORT=str(free_port()),
            PERSYS_NODE_ID=node_id,
            PERSYS_STATE_PATH=str(directory / "state.db"),
            PERSYS_STORAGE_LOCAL_ROOT=str(directory / "volumes"),
            PERSYS_SCHEDULER_ADDR=f"127.0.0.1:{self._port}",
        )

    def close(self) -> None:
        self.agent.close()
        self.scheduler.close()
        remove(container_ids(self._node_id))

    def persysctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / "persysctl", "--scheduler", f"127.0.0.1:{self._port}", *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self._directory),
                "PERSYS_TLS_VERIFY": "host",
                **self._certificate("persysctl"),
            },
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def _process(self, part: str, name: str, port: int, **variables: str) -> Process:
        return Process(
            [str(BIN / f"persys-{part}")],
            {
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "PERSYS_TLS_CN_ROLES": ROLES,
                **self._certificate(name),
                **variables,
            },
            log=self._directory / f"{part}.log",
            ready=lambda: listens_on(port),
        )

    def _certificate(self, name: str) -> dict[str, str]:
        return {
            "PERSYS_TLS_CA": str(self._directory / "ca.pem"),
            "PERSYS_TLS_CERT": str(self._directory / f"{name}.pem"),
            "PERSYS_TLS_KEY": str(self._directory / f"{name}-key.pem"),
        }


@pytest.fixture(params=[by_openssl, by_cfssl])
def deployment(
    request: pytest.FixtureRequest, tmp_path: Path, unique_id: str
) -> Iterator[Deployment]:
    issue: Callable[[Path], None] = request.param
    issue(tmp_path)
    created = Deployment(tmp_path, unique_id)
    try:
        created.scheduler.start()
        created.agent.start()
        yield created
    finally:
        created.close()


def test_a_workload_runs_with_shared_third_party_certificates(
    deployment: Deployment, unique_id: str, demo_image: str, tmp_path: Path
) -> None:
    spec = {
        "id": unique_id,
        "container": {"image": demo_image, "init": True, "command": ["sleep", "3600"]},
        "resources": {"cpu_millicores": 30, "memory_mb": 16},
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    eventually(
        lambda: "Ready" in deployment.persysctl("node", "list").stdout,
        lambda: f"{deployment.persysctl('node', 'list')}{deployment.agent.log[-3000:]}",
    )

    applied = deployment.persysctl("apply", "-f", str(tmp_path / "spec.json"), "--wait")

    assert applied.returncode == 0, applied.stderr + deployment.agent.log[-3000:]
    assert len(container_ids(unique_id, unique_id)) == 1
