"""A node pool of the provider `libvirt`: a new node is a real VM with Docker and an agent.

The VM boots with emulation on most test hosts, which takes many minutes.
"""

import hashlib
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from e2e.cluster import BIN, Cluster, a_container
from e2e.vms import GUESTS, add_image, domains, virsh, vm_directory
from e2e.waiting import eventually

pytestmark = [pytest.mark.full, pytest.mark.timeout(7200)]

ROOT = Path(__file__).resolve().parents[2]
GUEST_IMAGE = "persys-guest-demo:latest"  # Docker in the guest has it
BOOT_SECONDS = 2700
SHRINK_SECONDS = 600
POOL = """kind: nodepool
pool_id: {pool_id}
provider: libvirt
image: node
sizes:
  - {{name: small, cpu_millicores: 1000, memory_mb: 1024, disk_gb: 4, hour_price: 0.01}}
max: 1
spend_per_hour_max: 0.01
idle_after: 1m
provision_deadline: 1h
labels: {{pool: {pool_id}}}
software: {{url: "{url}", sha256: {sha256}}}
"""


@pytest.fixture(scope="module")
def gateway() -> str:
    """The address of this host in the network of the VMs."""
    described = virsh("net-dumpxml", "default")
    return described.partition("<ip address='")[2].partition("'")[0]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([ROOT / "scripts" / "wheel", folder], timeout=300, check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture
def url(wheel: Path, gateway: str) -> Iterator[str]:
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(wheel.parent))
    server = http.server.ThreadingHTTPServer((gateway, 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.1,))
    thread.start()
    yield f"http://{gateway}:{server.server_port}/{wheel.name}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_pool_grows_by_a_vm_and_shrinks(
    tmp_path: Path, url: str, wheel: Path, gateway: str, unique_id: str
) -> None:
    build: list[str | Path] = [sys.executable, ROOT / "scripts" / "guest" / "cloud", "--node"]
    subprocess.run(build, timeout=1800, check=True)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (tmp_path / "pool.yaml").write_text(POOL.format(pool_id=unique_id, url=url, sha256=digest))
    with vm_directory() as (directory, settings):
        # One node runs only VMs. The other has too little capacity for the container.
        cluster = Cluster(
            tmp_path,
            scheduler={
                "PERSYS_GRPC_ADDR": "0.0.0.0",
                "PERSYS_OFFLOAD_AFTER": "1s",
            },
            agent={**settings, "PERSYS_DOCKER_ENABLED": "false", "PERSYS_COMPOSE_ENABLED": "false"},
        )
        try:
            run_on_a_vm(cluster, directory, tmp_path / "pool.yaml", unique_id)
        finally:
            (tmp_path / "serial.log").write_text(serial_logs(directory))
            cluster.close()


def run_on_a_vm(cluster: Cluster, directory: Path, pool: Path, workload_id: str) -> None:
    cluster.start()
    cluster.add_node(PERSYS_SYSTEM_RESERVE_CPU_MILLICORES=reserved())
    add_image(cluster, "node", GUESTS / "node.qcow2")
    ctl: list[str | Path] = [BIN / "persysctl", "--scheduler", cluster.target, "nodepool"]

    cluster.apply(workload_id, a_container(GUEST_IMAGE, "sleep", "6000", cpu=500))
    subprocess.run([*ctl, "create", "-f", pool], timeout=60, check=True)

    cluster.wait_for(workload_id, "Running", within=BOOT_SECONDS)
    node_id = cluster.client.get_workload(workload_id).assigned_node_id
    assert cluster.client.get_node(node_id).labels["pool"] == workload_id
    assert len(domains(directory)) == 1

    cluster.client.delete(workload_id)

    eventually(lambda: not domains(directory), "the VM is destroyed", within=SHRINK_SECONDS)
    eventually(
        lambda: node_id not in {node.node_id for node in cluster.client.list_nodes()},
        "the node is removed",
        within=SHRINK_SECONDS,
    )


def reserved() -> str:
    return str(1000 * (os.cpu_count() or 1) - 100)


def serial_logs(directory: Path) -> str:
    """The consoles of the VMs, for a failed test."""
    return "\n".join(path.read_text(errors="replace") for path in directory.rglob("*console*"))
