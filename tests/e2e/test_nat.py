"""An unreachable agent in a separate network, which only opens outgoing connections."""

import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from e2e import containers
from e2e.cluster import BIN, Cluster
from e2e.process import Process
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

NODE = "inside"


@dataclass(frozen=True)
class NatNetwork:
    """A network namespace from which the host can be reached at `host`."""

    name: str
    host: str


@pytest.fixture
def nat() -> Iterator[NatNetwork]:
    tag = uuid.uuid4().hex[:6]
    name, outer, inner = f"persys-{tag}", f"pn{tag}o", f"pn{tag}i"
    third = int(tag[:2], 16)
    _ip("netns", "add", name)
    try:
        _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name)
        _ip("addr", "add", f"10.213.{third}.1/30", "dev", outer)
        _ip("link", "set", outer, "up")
        _ip("-n", name, "addr", "add", f"10.213.{third}.2/30", "dev", inner)
        _ip("-n", name, "link", "set", inner, "up")
        _ip("-n", name, "link", "set", "lo", "up")
        yield NatNetwork(name, f"10.213.{third}.1")
    finally:
        _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


@pytest.fixture
def cluster(new_cluster: Callable[..., Cluster]) -> Cluster:
    created = new_cluster(scheduler={"PERSYS_GRPC_ADDR": "0.0.0.0"})
    created.scheduler.start()
    return created


@pytest.fixture
def agent(cluster: Cluster, nat: NatNetwork) -> Iterator[Process]:
    """It listens only on its own loopback interface, which is not that of the scheduler."""
    log = cluster.directory / "inside.log"
    process = Process(
        [
            *("nsenter", f"--net=/var/run/netns/{nat.name}"),
            *(str(BIN / "persys-agent"), "-insecure"),
        ],
        {
            "PERSYS_GRPC_ADDR": "127.0.0.1",
            "PERSYS_NODE_ID": f"{cluster.node_id}-{NODE}",
            "PERSYS_STATE_PATH": str(cluster.directory / "inside.db"),
            "PERSYS_STORAGE_LOCAL_ROOT": str(cluster.volumes),
            "PERSYS_SCHEDULER_ADDR": f"{nat.host}:{cluster.scheduler_port}",
        },
        log=log,
        ready=lambda: "scheduler.connected" in log.read_text(),
    )
    process.start()
    yield process
    process.close()
    containers.remove(containers.container_ids(f"{cluster.node_id}-{NODE}"))


def test_an_agent_behind_nat_runs_workloads(
    cluster: Cluster, agent: Process, names: Callable[[int], list[str]], sleeper: pb.WorkloadSpec
) -> None:
    some = names(3)

    cluster.apply_all(some, sleeper)
    cluster.wait_for_all(some, "Running")
    agent.kill()
    agent.start()
    cluster.client.set_desired_state(some[0], "Stopped")
    cluster.wait_for(some[0], "Stopped")
    cluster.delete_all(some)
    cluster.wait_until_gone(some)

    node_id = f"{cluster.node_id}-{NODE}"
    eventually(lambda: not containers.container_ids(node_id), "nothing is left")
