"""A cluster of an earlier version is upgraded in place, on the same files, without restarts of workloads."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from uuid import uuid4

import pytest

import compose_binaries
from e2e.cluster import BIN, Cluster
from e2e.containers import Container, docker
from e2e.earlier_versions import source_of
from e2e.etcd import Etcd
from e2e.gateways import Gateway
from e2e.vms import BOOT_SECONDS, TINY, a_vm, domains, virsh, vm_directory
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

# The last commits of earlier releases.
FIRST = "0e441338b964357721f05497b19073c6c646c4f7"
SECOND = "a717cdc1e2c16c2e999c1c67dd7305700dba4d6b"
STACK = """\
services:
  web:
    image: {image}
    init: true
    command: [sh, -c, "echo {greeting}; exec sleep 3600"]
    volumes: ["site:/site"]
    restart: unless-stopped
volumes:
  site:
"""
SECRET = "hunter2-of-the-upgrade"
# The first version uses the host name in the id of a node without a name.
WITH_HOST_NAME = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"')


class Upgraded:
    """Scheduler, agent and gateway, first of an earlier version and then of the current one."""

    def __init__(
        self,
        directory: Path,
        source: Path,
        store: Mapping[str, str],
        vm_settings: Mapping[str, str],
        vms: Path,
    ) -> None:
        self.vms = vms
        of_then = {"PYTHONPATH": str(source)}
        often = {"SCHEDULER_RECONCILE_INTERVAL": "1s", "SCHEDULER_DRIFT_DETECT_INTERVAL": "1s"}
        self.host_name = f"up{uuid4().hex[:8]}"
        self.cluster = Cluster(
            directory,
            scheduler={**of_then, **often, **store},
            agent={
                **of_then,
                "PERSYS_NODE_ID": "",
                "PERSYS_RECONCILE_INTERVAL": "1s",
                "PERSYS_COMPOSE_ENABLED": "true",
                "PERSYS_COMPOSE_BINARY": compose_binaries.V2,
                "PERSYS_STOP_GRACE": "1s",
                **vm_settings,
            },
            agent_under=(*WITH_HOST_NAME, self.host_name),
        )
        self.gateway = Gateway(directory, {"default": self.cluster.target})
        self.gateway.process.set("PYTHONPATH", str(source))

    def start(self) -> None:
        self.cluster.scheduler.start()
        self.cluster.agent.start()
        eventually(lambda: self._ready_nodes() != [], "the node is ready")
        (self.cluster.node_id,) = self._ready_nodes()
        self.gateway.process.start()

    def close(self) -> None:
        self.gateway.process.close()
        self.cluster.close()
        if left := volumes(node_id=self.cluster.node_id):
            docker("volume", "rm", *left)

    def upgrade(self, part: str) -> None:
        process = {
            "scheduler": self.cluster.scheduler,
            "agent": self.cluster.agent,
            "gateway": self.gateway.process,
        }[part]
        assert process.stop() == 0
        process.set("PYTHONPATH", "")
        process.start()

    def persysctl(self, *words: str | Path) -> str:
        result = subprocess.run(
            [BIN / "persysctl", "--scheduler", self.cluster.target, *words],
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PERSYS_INSECURE": "true"},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, f"{words}: {result.stdout}{result.stderr}"
        return result.stdout

    def statuses_by_gateway(self) -> dict[str, str]:
        """Empty while the gateway is not connected to a scheduler that was just started."""
        try:
            with urllib.request.urlopen(
                f"{self.gateway.address}/workloads", timeout=30
            ) as response:
                return {
                    one["workload_id"]: one["status"] for one in json.load(response)["workloads"]
                }
        except urllib.error.HTTPError as err:
            if err.code == HTTPStatus.SERVICE_UNAVAILABLE:
                return {}
            raise

    def _ready_nodes(self) -> list[str]:
        return [node.node_id for node in self.cluster.client.list_nodes() if node.status == "Ready"]


def container(image: str, **env: str) -> pb.WorkloadSpec:
    return pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=30, memory_mb=16),
        container=pb.ContainerSpec(image=image, command=["sleep", "3600"], init=True, env=env),
    )


def stack(image: str, greeting: str) -> pb.WorkloadSpec:
    text = STACK.format(image=image, greeting=greeting)
    return pb.WorkloadSpec(
        type="compose", compose=pb.ComposeSpec(source_type="inline", inline_yaml=text)
    )


def with_volume(image: str) -> pb.WorkloadSpec:
    spec = container(image)
    spec.container.managed_volumes.add(
        name="data", driver="local", mount_path="/data", size_gb=1, retain_policy="Delete"
    )
    return spec


def workloads(mark: str, image: str) -> dict[str, pb.WorkloadSpec]:
    return {
        f"{mark}-plain": container(image, COLOUR="blue"),
        f"{mark}-secret": container(image, PASSWORD=f"secret://{mark}"),
        f"{mark}-volume": with_volume(image),
        f"{mark}-stack": stack(image, "hello"),
        f"{mark}-spare": stack(image, "hello"),
    }


def projects(node_id: str) -> dict[str, str]:
    """The Compose project label of each container of a stack, by workload."""
    shown = docker(
        *("ps", "--filter", f"label=persys.node_id={node_id}"),
        *("--format", '{{.Label "persys.workload_id"}} {{.Label "com.docker.compose.project"}}'),
    )
    pairs = (line.split() for line in shown.splitlines())
    return {words[0]: words[1] for words in pairs if len(words) == 2}


def volumes(**labels: str) -> list[str]:
    filters = (f"--filter=label=persys.{key}={value}" for key, value in labels.items())
    return docker("volume", "ls", "-q", *filters).split()


def running_vm(directory: Path) -> dict[str, str]:
    """What changes when the only VM with a disk in this directory is started again."""
    (name,) = domains(directory)
    (pid,) = (
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if f"guest={name},".encode() in _content(path)
    )
    stat = Path(f"/proc/{pid}/stat").read_text()
    return {
        "name": name,
        "uuid": virsh("domuuid", name),
        "id": virsh("domid", name),
        "pid": pid,
        "started_at": stat.rpartition(")")[2].split()[19],
    }


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # the process has ended
        return b""


def files_with(value: str, directory: Path) -> list[Path]:
    """Files with this value. Earlier versions stored secrets in plain text in the agent's journal."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return [path for path in files if value.encode() in path.read_bytes()]


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Callable[[], Etcd]]:
    with ExitStack() as stack:

        def start() -> Etcd:
            (directory := tmp_path / "etcd").mkdir()
            server = Etcd(directory)
            stack.callback(server.close)
            server.start()
            return server

        yield start


@pytest.fixture
def upgraded(
    request: pytest.FixtureRequest, tmp_path: Path, demo_image: str, etcd: Callable[[], Etcd]
) -> Iterator[Upgraded]:
    commit, store = request.param
    settings = (
        {"PERSYS_STORE": "etcd", "ETCD_ENDPOINTS": etcd().endpoint} if store == "etcd" else {}
    )
    (directory := tmp_path / "cluster").mkdir()
    with vm_directory() as (vms, vm_settings):
        source = source_of(commit, tmp_path / "then")
        created = Upgraded(directory, source, settings, vm_settings, vms)
        try:
            created.start()
            yield created
        finally:
            created.close()


CASES = [
    pytest.param((FIRST, "sqlite"), id="first-sqlite"),
    pytest.param((FIRST, "etcd"), id="first-etcd"),
    pytest.param((SECOND, "sqlite"), id="second-sqlite"),
    pytest.param((SECOND, "etcd"), id="second-etcd"),
]


@pytest.mark.full  # the versions are taken from the history, which a shallow clone lacks
@pytest.mark.parametrize("upgraded", CASES, indirect=True)
def test_promise_6_an_in_place_upgrade_restarts_nothing(
    upgraded: Upgraded, demo_image: str, tmp_path: Path
) -> None:
    cluster, mark = upgraded.cluster, f"u{uuid4().hex[:6]}"
    specs, vm = workloads(mark, demo_image), f"{mark}-vm"
    _, secret, _, changed, spare = specs
    upgraded.persysctl("image", "add", "tiny", TINY)
    cluster.apply(vm, a_vm())
    (tmp_path / "value").write_text(SECRET)
    upgraded.persysctl("secret", "put", mark, "--from-file", str(tmp_path / "value"))
    for workload_id, spec in specs.items():
        cluster.apply(workload_id, spec)
    cluster.wait_for_all(specs, "Running")
    cluster.wait_for_all([vm], "Running", within=BOOT_SECONDS)
    node_id, before, names = cluster.node_id, cluster.containers(), projects(cluster.node_id)
    vm_before = running_vm(upgraded.vms)
    assert [one.workload_id for one in before] == sorted(specs)
    assert node_id.startswith(upgraded.host_name)
    assert names.keys() == {changed, spare}
    assert files_with(SECRET, cluster.directory) != []
    running = dict.fromkeys([*specs, vm], "Running")

    for part in ("scheduler", "gateway", "agent"):
        upgraded.upgrade(part)
        cluster.wait_until_node_is("Ready", node_id=node_id)
        cluster.wait_for_all([*specs, vm], "Running")
        eventually(lambda: upgraded.statuses_by_gateway() == running, "the gateway shows it")
        assert cluster.containers() == before
        assert running_vm(upgraded.vms) == vm_before

    assert [node.node_id for node in cluster.client.list_nodes()] == [node_id]
    assert projects(node_id) == names
    assert f"PASSWORD={SECRET}" in cluster.container(secret).env
    assert files_with(SECRET, cluster.directory) == []

    _change_and_delete(upgraded, specs, before, names, demo_image)
    assert running_vm(upgraded.vms) == vm_before
    cluster.delete_all([vm])
    cluster.wait_until_gone([vm])
    assert domains(upgraded.vms) == []


def _change_and_delete(
    upgraded: Upgraded,
    specs: Mapping[str, pb.WorkloadSpec],
    before: list[Container],
    names: Mapping[str, str],
    image: str,
) -> None:
    cluster = upgraded.cluster
    plain, secret, volume, changed, spare = specs
    untouched = [one for one in before if one.workload_id in (secret, volume)]
    kept_volumes = volumes(workload_id=changed)

    cluster.apply(plain, container(image, COLOUR="green"))
    cluster.apply(changed, stack(image, "hello again"))
    first = {one.id for one in before}
    eventually(lambda: _replaced(cluster.containers([plain]), first), "another container")
    eventually(lambda: _replaced(cluster.containers([changed]), first), "another container")
    cluster.wait_for_all(specs, "Running")
    assert "COLOUR=green" in cluster.container(plain).env
    assert projects(cluster.node_id) == names, "an updated stack keeps its project"
    assert volumes(workload_id=changed) == kept_volumes
    assert cluster.containers([secret, volume]) == untouched

    cluster.delete_all([plain, spare])
    cluster.wait_until_gone([plain, spare])
    assert cluster.containers([plain, spare]) == []
    assert cluster.containers([secret, volume]) == untouched

    cluster.delete_all([secret, volume, changed])
    cluster.wait_until_gone(specs)
    assert cluster.containers() == []


def _replaced(now: list[Container], before: set[str]) -> bool:
    return [one.running and one.id not in before for one in now] == [True]
