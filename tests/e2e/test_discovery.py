"""DNS records: a real CoreDNS on a real etcd resolves schedulers and agents."""

import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.cluster import BIN, Cluster
from e2e.dns import CoreDns
from e2e.etcd import Etcd
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

SCHEDULER_SRV = "_persys-scheduler._tcp.persys.local"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def dns(tmp_path_factory: pytest.TempPathFactory, etcd: Etcd) -> Iterator[CoreDns]:
    server = CoreDns(tmp_path_factory.mktemp("dns"), etcd.endpoint)
    server.start()
    yield server
    server.close()


@pytest.fixture(scope="module")
def cluster_settings(etcd: Etcd) -> dict[str, dict[str, str]]:
    return {
        "scheduler": {
            "PERSYS_STORE": "etcd",
            "ETCD_ENDPOINTS": etcd.endpoint,
            "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
            "SCHEDULER_NODE_LEASE": "4s",
        },
        "agent": {"PERSYS_AGENT_GRPC_ENDPOINT": "10.9.8.7:50051"},
    }


def agent_of(cluster: Cluster) -> str:
    return f"{cluster.node_id}.default.agents.persys.cloud"


def test_a_ready_node_is_in_dns_within_a_second(cluster: Cluster, dns: CoreDns) -> None:
    waited = eventually(
        lambda: dns.ask("A", agent_of(cluster)) == ["10.9.8.7"], "the agent has an address"
    )

    assert waited < 1
    assert dns.ask("SRV", agent_of(cluster)) == [f"10 100 50051 {agent_of(cluster)}."]
    assert dns.ask("A", "default.agents.persys.cloud") == ["10.9.8.7"]


def test_the_scheduler_has_service_and_address_records(cluster: Cluster, dns: CoreDns) -> None:
    target = f"127-0-0-1-{cluster.scheduler_port}.persys-scheduler.persys.local."
    service = [f"10 100 {cluster.scheduler_port} {target}"]

    assert dns.ask("SRV", SCHEDULER_SRV) == service
    assert dns.ask("SRV", "_persys-scheduler.persys.local") == service
    assert dns.ask("A", target) == ["127.0.0.1"]
    assert dns.ask("A", "persys-scheduler.persys.local") == ["127.0.0.1"]


def test_the_record_of_a_lost_node_is_removed_until_its_agent_returns(
    cluster: Cluster, dns: CoreDns
) -> None:
    eventually(lambda: dns.ask("A", agent_of(cluster)) != [], "the node is there")

    cluster.agent.signal(signal.SIGSTOP)
    try:
        cluster.wait_until_node_is("NotReady")
        eventually(lambda: dns.ask("A", agent_of(cluster)) == [], "it is withdrawn", within=5)
    finally:
        cluster.agent.signal(signal.SIGCONT)

    cluster.wait_until_node_is("Ready")
    eventually(lambda: dns.ask("A", agent_of(cluster)) != [], "it is back", within=5)


def test_a_cordoned_node_keeps_its_dns_record(cluster: Cluster, dns: CoreDns) -> None:
    cluster.client.cordon(cluster.node_id)
    try:
        # Changes are written in order: when the other node is present, this one was processed.
        other = cluster.add_node(PERSYS_AGENT_GRPC_ENDPOINT="host.example.com:50052")
        name = f"{other}.default.agents.persys.cloud"
        eventually(
            lambda: dns.ask("SRV", name) == ["10 100 50052 host.example.com."], "the other is there"
        )
        assert dns.ask("A", agent_of(cluster)) == ["10.9.8.7"]
    finally:
        cluster.client.uncordon(cluster.node_id)


def test_dns_names_in_the_store_etcd_survive_a_restart(cluster: Cluster, dns: CoreDns) -> None:
    cluster.scheduler.kill()
    assert "10.9.8.7" in dns.ask("A", "default.agents.persys.cloud")
    cluster.scheduler.start()

    cluster.wait_until_node_is("Ready")
    assert dns.ask("A", agent_of(cluster)) == ["10.9.8.7"]
    assert len(dns.ask("SRV", SCHEDULER_SRV)) == 1


def test_a_stopped_scheduler_is_removed_from_dns(
    new_cluster: Callable[..., Cluster], dns: CoreDns, etcd: Etcd
) -> None:
    cluster = new_cluster(
        scheduler={
            "DISCOVERY_ETCD_ENDPOINTS": etcd.endpoint,
            "SCHEDULER_SHARD_KEY": "other",
            "SCHEDULER_ADVERTISE_IP": "10.1.1.1",
            "SCHEDULER_ADVERTISE_PORT": "7777",
        }
    )
    cluster.scheduler.start()
    own_name = "10-1-1-1-7777.persys-scheduler.persys.local"
    eventually(lambda: dns.ask("A", own_name) == ["10.1.1.1"], "the scheduler is found")

    assert cluster.scheduler.stop() == 0

    assert dns.ask("A", own_name) == []


def test_an_unreachable_dns_etcd_causes_one_warning_and_no_delay(
    new_cluster: Callable[..., Cluster],
    tmp_path: Path,
    names: Callable[[int], list[str]],
    sleeper: pb.WorkloadSpec,
) -> None:
    etcd = Etcd(tmp_path)
    cluster = new_cluster(scheduler={"DISCOVERY_ETCD_ENDPOINTS": etcd.endpoint})
    cluster.start()
    eventually(lambda: "discovery.unavailable" in cluster.scheduler.log, "it is noticed")

    cluster.run_all(names(2), sleeper)
    for _ in range(3):
        cluster.client.cordon(cluster.node_id)
        cluster.client.uncordon(cluster.node_id)
    etcd.start()
    try:
        eventually(lambda: "discovery.available" in cluster.scheduler.log, "it is found again")
    finally:
        etcd.close()

    assert cluster.scheduler.log.count("discovery.unavailable") == 1


def test_an_unreachable_coredns_causes_one_warning(
    new_cluster: Callable[..., Cluster], tmp_path: Path, etcd: Etcd
) -> None:
    dns = CoreDns(tmp_path, etcd.endpoint)
    cluster = new_cluster(
        scheduler={
            "DISCOVERY_ETCD_ENDPOINTS": etcd.endpoint,
            "PERSYS_DNS_SERVER": dns.server,
        }
    )
    cluster.start()
    eventually(lambda: "discovery.not_resolved" in cluster.scheduler.log, "it is noticed")

    dns.start()
    try:
        eventually(lambda: "discovery.resolved" in cluster.scheduler.log, "it is found again")
    finally:
        dns.close()

    assert cluster.scheduler.log.count("discovery.not_resolved") == 1
    assert "discovery.unavailable" not in cluster.scheduler.log


def test_an_agent_finds_the_scheduler_by_its_service_record(
    cluster: Cluster, dns: CoreDns, etcd: Etcd
) -> None:
    eventually(lambda: dns.ask("SRV", SCHEDULER_SRV) != [], "the scheduler is announced")

    node_id = cluster.add_node(PERSYS_SCHEDULER_ADDR=SCHEDULER_SRV, PERSYS_DNS_SERVER=dns.server)

    cluster.scheduler.kill()
    cluster.scheduler.start()
    cluster.wait_until_node_is("Ready", node_id=node_id)


def test_an_agent_waits_for_a_missing_service_record(
    new_cluster: Callable[..., Cluster], dns: CoreDns, etcd: Etcd
) -> None:
    cluster = new_cluster(
        scheduler={
            "DISCOVERY_ETCD_ENDPOINTS": etcd.endpoint,
            "DOMAIN": "late.persys.local",
            "SCHEDULER_SHARD_KEY": "late",
        },
        agent={
            "PERSYS_SCHEDULER_ADDR": "_persys-scheduler._tcp.late.persys.local",
            "PERSYS_DNS_SERVER": dns.server,
        },
    )
    cluster.agent.start()
    eventually(lambda: "scheduler.lost" in cluster.agent.log, "the agent reports the outage")

    cluster.scheduler.start()

    cluster.wait_until_node_is("Ready")
    assert cluster.agent.log.count("scheduler.lost") == 1


def test_persysctl_finds_the_scheduler_by_its_service_record(
    cluster: Cluster, dns: CoreDns
) -> None:
    result = persysctl("--scheduler", SCHEDULER_SRV, "node", "list", PERSYS_DNS_SERVER=dns.server)

    assert result.returncode == 0, result.stderr
    assert cluster.node_id in result.stdout


def test_persysctl_reports_a_missing_service_record(cluster: Cluster, dns: CoreDns) -> None:
    name = "_other._tcp.persys.local"
    result = persysctl("--scheduler", name, "node", "list", PERSYS_DNS_SERVER=dns.server)

    assert result.returncode != 0
    assert f"cannot resolve the SRV records of {name}" in result.stderr
    assert "Traceback" not in result.stderr


def persysctl(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "persysctl", *words],
        env={"PATH": "/usr/bin:/bin", "PERSYS_INSECURE": "true", **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
