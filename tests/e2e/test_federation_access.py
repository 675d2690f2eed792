"""Logs, exec and usage of a workload that runs in another cluster, on the real Docker."""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from e2e.cluster import BIN, Cluster
from e2e.process import Process, free_port, listens_on
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

SCRIPT = "echo started; echo problem >&2; while true; do echo tick; sleep 0.2; done"


class Federated:
    """The home cluster has no node of its own: persys-federation is its only one."""

    def __init__(self, home: Cluster, remote: Cluster, directory: Path) -> None:
        self.home = home
        self.remote = remote
        port = free_port()
        self.process = Process(
            [str(BIN / "persys-federation"), "-insecure"],
            {
                "PERSYS_FEDERATION_REMOTE": remote.target,
                "PERSYS_SCHEDULER_ADDR": home.target,
                "PERSYS_CLUSTER_ID": "home",
                "PERSYS_NODE_ID": "federated",
                "PERSYS_GRPC_ADDR": "127.0.0.1",
                "PERSYS_GRPC_PORT": str(port),
                "PERSYS_METRICS_PORT": str(free_port()),
                "PERSYS_STATE_PATH": str(directory / "federation.db"),
            },
            log=directory / "federation.log",
            ready=lambda: listens_on(port),
        )


@pytest.fixture
def federated(new_cluster: Callable[..., Cluster], tmp_path: Path) -> Iterator[Federated]:
    remote = new_cluster()
    home = new_cluster(scheduler={"PERSYS_CLUSTER_ID": "home"})
    remote.start()
    home.scheduler.start()
    found = Federated(home, remote, tmp_path)
    try:
        found.process.start()
        home.wait_until_node_is("Ready", node_id="federated")
        yield found
    finally:
        found.process.close()


def offloaded(image: str, script: str) -> pb.WorkloadSpec:
    return pb.WorkloadSpec(
        type="container",
        resources=pb.ResourceRequirements(cpu_millicores=50, memory_mb=32),
        container=pb.ContainerSpec(image=image, command=["sh", "-c", script], init=True),
        placement=pb.PlacementRules(offload="prefer"),
    )


def followed(chunks: Iterator[pb.LogChunk], ticks: int) -> bytes:
    """What is logged until the n-th tick."""
    read = b""
    assert isinstance(chunks, Generator)
    with closing(chunks):
        for chunk in chunks:
            read += chunk.data
            if read.count(b"tick") >= ticks:
                break
    return read


def test_logs_exec_and_usage_work_across_clusters(
    federated: Federated, names: Callable[[int], list[str]], demo_image: str
) -> None:
    home, (name,) = federated.home, names(1)
    home.apply(name, offloaded(demo_image, SCRIPT))
    view = home.wait_for(name, "Running")
    assert view.assigned_node_id == "federated"
    assert view.metadata["remote_workload"] == f"home--{name}"

    assert b"started" in followed(home.client.stream_logs(name, follow=True), ticks=3)
    tail = b"".join(chunk.data for chunk in home.client.stream_logs(name, tail=1))
    assert tail == b"tick\n"

    command = ["sh", "-c", "echo $0 out; echo err >&2; exit 3", "it"]
    start = pb.ExecStart(workload_id=name, command=command)
    outputs = list(
        home.client.exec(iter([pb.ExecInput(start=start), pb.ExecInput(stdin_closed=True)]))
    )
    assert b"".join(output.stdout for output in outputs) == b"it out\n"
    assert b"".join(output.stderr for output in outputs) == b"err\n"
    assert outputs[-1].exit.code == 3

    eventually(
        lambda: home.client.get_workload(name).usage.memory_bytes > 0, "its usage is shown here"
    )

    home.client.set_desired_state(name, "Stopped")
    home.wait_for(name, "Stopped")
    home.client.set_desired_state(name, "Running")
    home.wait_for(name, "Running")
    home.client.delete(name)
    home.wait_until_gone([name])
    assert federated.remote.containers() == []


@pytest.mark.full
def test_the_log_of_the_previous_run_and_a_failure_are_shown(
    federated: Federated, names: Callable[[int], list[str]], demo_image: str
) -> None:
    home, (name,) = federated.home, names(1)
    spec = offloaded(demo_image, "echo the end; sleep 0.2; exit 7")
    spec.container.restart_policy = "no"
    home.apply(name, spec)

    view = home.wait_for(name, "Failed")
    assert "7" in view.reason.message
    assert "the end" in view.metadata["container.stderr"]
    home.apply(name, offloaded(demo_image, SCRIPT))
    home.wait_for(name, "Running")
    past = b"".join(chunk.data for chunk in home.client.stream_logs(name, previous=True))
    assert b"the end" in past
