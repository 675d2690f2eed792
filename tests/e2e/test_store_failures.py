"""Failures of a real etcd: workloads continue, and the reported state is correct."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from e2e.etcd import Etcd
from persys.errors import StoreUnavailableError
from persys.store.etcd import EtcdOptions, EtcdStore
from persys.store.port import Store, Unit
from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster, a_cluster, fast_settings
from shells.scheduler.recovery.test_mode import health, mode, our_node, running, until_mode
from shells.scheduler.recovery.test_recovery import rebuild
from shells.scheduler.stores import FaultyStore
from shells.scheduler.third_party_agent import Node

MEGABYTE = 1 << 20


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path, f"--quota-backend-bytes={16 * MEGABYTE}")
    server.start()
    yield server
    server.close()


@pytest.fixture
async def cluster(etcd: Etcd) -> AsyncIterator[Cluster]:
    options = EtcdOptions(endpoints=(etcd.endpoint,), deadline_seconds=1.5)
    store = await EtcdStore.open(options)
    async with a_cluster(FaultyStore(store), fast_settings()) as cluster:
        yield cluster
    await store.close()


@pytest.fixture
async def node(cluster: Cluster) -> Node:
    """It runs web and mail, as at the end of each test."""
    node = await our_node(cluster)
    await running(cluster, "web", "mail")
    return node


async def check_unchanged(cluster: Cluster, node: Node) -> None:
    """Nothing was stopped, started or deleted, and the scheduler still shows its state."""
    assert node.agent.running() >= {"web", "mail"}
    assert node.agent.starts[:2] == ["web", "mail"]
    assert node.agent.deletes == []
    assert {"web", "mail"} <= set(await cluster.control.names(status="Running"))


async def check_degraded(cluster: Cluster, node: Node) -> None:
    refused = await cluster.control.apply("late")
    assert not refused.success
    assert "degraded mode" in refused.error_message
    code, body = await health(cluster)
    assert (code, body["status"], body["mode"]) == (200, "degraded", "degraded")
    assert "etcd" in body["reason"]
    assert (await node.heartbeat()).drain_node
    await check_unchanged(cluster, node)


async def check_recovered(cluster: Cluster, node: Node) -> None:
    await until_mode(cluster.control, "normal")
    assert (await health(cluster))[1]["status"] == "ok"
    await running(cluster, "late")
    await check_unchanged(cluster, node)
    assert not (await node.heartbeat()).drain_node


async def fill(store: Store) -> None:
    """Another client writes into the same etcd until it is full."""
    for _ in range(64):
        await store.commit([Unit(puts={"/not-ours": bytes(MEGABYTE - 1)})])


async def test_promise_5_a_stopped_etcd_is_used_again_after_its_start(
    cluster: Cluster, etcd: Etcd, node: Node
) -> None:
    await asyncio.to_thread(etcd.stop)
    await check_degraded(cluster, node)

    await asyncio.to_thread(etcd.start)
    await check_recovered(cluster, node)


async def test_a_paused_etcd_is_used_again_after_it_resumes(
    cluster: Cluster, etcd: Etcd, node: Node
) -> None:
    etcd.signal(signal.SIGSTOP)
    try:
        await check_degraded(cluster, node)
    finally:
        etcd.signal(signal.SIGCONT)

    await check_recovered(cluster, node)


async def test_promise_11_a_wiped_etcd_is_rebuilt_from_memory_and_agents(
    cluster: Cluster, etcd: Etcd, node: Node
) -> None:
    await asyncio.to_thread(etcd.wipe)
    assert not (await cluster.control.apply("late")).success
    view = await until_mode(cluster.control, "recovery")
    assert "its records are gone" in view.reason
    assert (await health(cluster))[1]["status"] == "recovery"
    await check_unchanged(cluster, node)

    response = await rebuild(cluster)

    assert (response.accepted, response.workloads) == (True, 2)
    await check_recovered(cluster, node)


async def test_an_etcd_out_of_space_causes_degraded_mode_until_space_is_freed(
    cluster: Cluster, etcd: Etcd, node: Node
) -> None:
    with pytest.raises(StoreUnavailableError, match="out of space"):
        await fill(cluster.store.store)
    await check_degraded(cluster, node)
    assert "out of space" in (await mode(cluster.control)).reason

    revision = json.loads(etcd.etcdctl("endpoint", "status", "-w", "json"))[0]["Status"]["header"]
    etcd.etcdctl("compact", str(revision["revision"]))
    etcd.etcdctl("defrag")
    etcd.etcdctl("alarm", "disarm")
    await check_recovered(cluster, node)


async def test_only_a_value_too_large_for_etcd_is_refused(cluster: Cluster, node: Node) -> None:
    spec = pb.WorkloadSpec(type="container", container=pb.ContainerSpec(image="nginx"))
    spec.container.env["LARGE"] = "x" * 1_100_000

    response = await cluster.control.send(pb.ApplyWorkloadRequest(workload_id="large", spec=spec))

    assert not response.success
    assert (await mode(cluster.control)).mode == "normal"
    await running(cluster, "late")
    await check_unchanged(cluster, node)
