"""Services on real Docker: the names follow the healthy members, with CoreDNS and without."""

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from e2e.cluster import BIN, Cluster
from e2e.containers import docker
from e2e.dns import CoreDns
from e2e.etcd import Etcd
from e2e.process import free_port
from e2e.waiting import eventually

TTL_SECONDS = 5
REPLICAS = 3

Address = tuple[str, int]


class Dig:
    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, kind: str, name: str, *options: str) -> str:
        done = subprocess.run(
            [
                "dig",
                "@127.0.0.1",
                "-p",
                str(self._port),
                "+tries=1",
                "+time=5",
                *options,
                kind,
                name,
            ],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return done.stdout

    def endpoints(self, service: str) -> set[Address]:
        """From the SRV records of the port http, and the addresses of their targets."""
        lines = self.ask(
            "SRV", f"_http._tcp.{service}.services.persys.local", "+noall", "+answer", "+additional"
        ).splitlines()
        words = [line.split() for line in lines if line and not line.startswith(";")]
        hosts = {word[0]: word[4] for word in words if word[3] == "A"}
        return {(hosts[word[7]], int(word[6])) for word in words if word[3] == "SRV"}


class Watcher:
    """Resolves a service again and again, and connects to each address."""

    def __init__(self, dig: Dig, service: str) -> None:
        self._dig = dig
        self._service = service
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._silent_since: dict[Address, float] = {}
        self.fewest = REPLICAS
        self.longest_silence = 0.0  # of an address that is in the answers

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.2):
            asked_at = time.monotonic()
            found = self._dig.endpoints(self._service)
            self.fewest = min(self.fewest, len(found))
            silent = {address for address in found if not _connects(address)}
            self._silent_since = {
                address: self._silent_since.get(address, asked_at) for address in silent
            }
            for since in self._silent_since.values():
                self.longest_silence = max(self.longest_silence, asked_at - since)


def _connects(address: Address) -> bool:
    try:
        with socket.create_connection(address, timeout=2):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module", params=["embedded", "coredns"])
def named(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    new_cluster_of_module: Callable[..., Cluster],
) -> Iterator[tuple[Cluster, Dig]]:
    agent = {"PERSYS_STOP_GRACE": "1s"}
    if request.param == "embedded":
        port = free_port()
        cluster = new_cluster_of_module(
            scheduler={"PERSYS_DNS_LISTEN": f"127.0.0.1:{port}"}, agent=agent
        )
        cluster.start()
        yield cluster, Dig(port)
        return
    etcd = Etcd(tmp_path_factory.mktemp("etcd"))
    etcd.start()
    dns = CoreDns(tmp_path_factory.mktemp("dns"), etcd.endpoint)
    dns.start()
    cluster = new_cluster_of_module(
        scheduler={"PERSYS_STORE": "etcd", "ETCD_ENDPOINTS": etcd.endpoint}, agent=agent
    )
    cluster.start()
    yield cluster, Dig(dns.port)
    dns.close()
    etcd.close()


@pytest.fixture(scope="module")
def new_cluster_of_module(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Cluster]]:
    created: list[Cluster] = []

    def create(*, scheduler: dict[str, str], agent: dict[str, str]) -> Cluster:
        directory = tmp_path_factory.mktemp("cluster")
        created.append(Cluster(directory, scheduler=scheduler, agent=agent))
        return created[-1]

    yield create
    for cluster in created:
        cluster.close()


@pytest.fixture
def deployed(
    named: tuple[Cluster, Dig], demo_image: str, unique_id: str, tmp_path: Path
) -> Iterator[Callable[[int], None]]:
    """Applies the set and the service of the test, in a version of the set."""
    cluster, _ = named

    def apply(version: int) -> None:
        path = tmp_path / "service.yaml"
        path.write_text(
            FILE.replace("ID", unique_id)
            .replace("IMAGE", demo_image)
            .replace("NUMBER", str(version))
        )
        done = persysctl(cluster, "apply", "-f", str(path), "--wait=300s")
        assert done.returncode == 0, done.stdout + done.stderr

    yield apply
    persysctl(cluster, "service", "delete", unique_id)
    persysctl(cluster, "delete", unique_id, "--wait=120s")


FILE = """\
- kind: set
  id: ID
  replicas: 3
  update: {min_healthy: 1s, max_parallel: 1}
  resources: {cpu_millicores: 20, memory_mb: 16}
  container:
    image: IMAGE
    init: true
    command: [sh, -c, "mkdir -p /site; exec httpd -f -p 80 -h /site"]
    env: {VERSION: "NUMBER"}
    ports: ["80"]
    health_check: {type: tcp, port: 80, interval_seconds: 1, retries: 2}
- kind: service
  id: ID
  ports: [{name: http, port: 80, protocol: http}]
  members: [{set: ID, weight: 9}]
"""


def persysctl(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "persysctl"), "--insecure", "--scheduler", cluster.target, *words],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def listed(cluster: Cluster, service: str) -> set[Address]:
    return {(one.host, one.port) for one in cluster.client.get_service(service).endpoints}


def test_the_names_have_the_healthy_members(
    named: tuple[Cluster, Dig], deployed: Callable[[int], None], unique_id: str
) -> None:
    cluster, dig = named
    deployed(1)
    eventually(lambda: len(dig.endpoints(unique_id)) == REPLICAS, "all members have names")

    addresses = dig.ask("A", f"{unique_id}.services.persys.local", "+short").split()
    tcp = dig.ask("SRV", f"_http._tcp.{unique_id}.services.persys.local", "+tcp", "+short")

    assert dig.endpoints(unique_id) == listed(cluster, unique_id)
    assert addresses == ["127.0.0.1"]
    assert len(tcp.splitlines()) == REPLICAS
    assert "status: NXDOMAIN" in dig.ask("A", "absent.services.persys.local")
    assert all(_connects(address) for address in dig.endpoints(unique_id))


def test_a_killed_member_leaves_the_answers(
    named: tuple[Cluster, Dig], deployed: Callable[[int], None], unique_id: str
) -> None:
    cluster, dig = named
    deployed(1)
    eventually(lambda: len(dig.endpoints(unique_id)) == REPLICAS, "all members have names")
    victim = cluster.client.get_service(unique_id).endpoints[0]
    (container,) = cluster.containers([victim.workload_id])

    with Watcher(dig, unique_id) as watcher:
        docker("kill", container.id)
        eventually(
            lambda: (victim.host, victim.port) not in dig.endpoints(unique_id),
            "the address is gone",
            within=30,
        )
        eventually(
            lambda: len(dig.endpoints(unique_id)) == REPLICAS, "the member is back", within=120
        )

    assert watcher.fewest >= REPLICAS - 1
    assert watcher.longest_silence < TTL_SECONDS


def test_a_rollout_always_has_answers_that_respond(
    named: tuple[Cluster, Dig], deployed: Callable[[int], None], unique_id: str
) -> None:
    cluster, dig = named
    deployed(1)
    eventually(lambda: len(dig.endpoints(unique_id)) == REPLICAS, "all members have names")
    before = dig.endpoints(unique_id)

    with Watcher(dig, unique_id) as watcher:
        deployed(2)
        eventually(
            lambda: (
                dig.endpoints(unique_id) == listed(cluster, unique_id)
                and not before & dig.endpoints(unique_id)
            ),
            "only new members have names",
            within=60,
        )

    assert watcher.fewest >= REPLICAS - 1
    assert watcher.longest_silence < TTL_SECONDS


def test_an_idle_service_writes_nothing(
    named: tuple[Cluster, Dig], deployed: Callable[[int], None], unique_id: str
) -> None:
    cluster, dig = named
    deployed(1)
    eventually(lambda: len(dig.endpoints(unique_id)) == REPLICAS, "all members have names")
    time.sleep(3)  # the statuses of new members settle
    written = transactions(cluster)

    for _ in range(20):
        dig.endpoints(unique_id)
        listed(cluster, unique_id)

    assert transactions(cluster) == written


def transactions(cluster: Cluster) -> float:
    return cluster.metric("persys_scheduler_store_transactions_total")
