"""A full home cluster runs workloads in a second cluster, over a link that fails and a leader that dies.

Each cluster has its own Docker, scheduler, store and trust; only the gateway of the remote cluster is
reachable from the home cluster.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import compose_binaries
from e2e import vms
from e2e.cluster import Cluster
from e2e.remote_cluster import HOME, NODE, Federation, RemoteCluster, running
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

pytestmark = pytest.mark.timeout(600)
MOVE_SECONDS = 120
SETTINGS = {
    "PERSYS_CLUSTER_ID": HOME,
    "PERSYS_OFFLOAD_AFTER": "1s",
    "SCHEDULER_HEARTBEAT_INTERVAL": "1s",
    "SCHEDULER_NODE_LEASE": "4s",
    "SCHEDULER_NODE_UNAVAILABLE_GRACE": "2s",
    "SCHEDULER_MISSING_GRACE_PERIOD": "1s",
}
COMPOSE = {
    "PERSYS_COMPOSE_ENABLED": "true",
    "PERSYS_COMPOSE_BINARY": compose_binaries.V2,
    "PERSYS_STOP_GRACE": "1s",
}
FILLER = "filler"


@pytest.fixture(scope="module")
def vm_directory() -> Iterator[tuple[Path, dict[str, str]]]:
    with vms.vm_directory() as created:
        yield created


@pytest.fixture(scope="module")
def remote(
    module_directory: Path, demo_image: str, vm_directory: tuple[Path, dict[str, str]]
) -> Iterator[RemoteCluster]:
    directory = module_directory / "remote"
    directory.mkdir()
    created = RemoteCluster(directory, demo_image, {**COMPOSE, **vm_directory[1]})
    try:
        created.start()
        yield created
    finally:
        created.close()


@pytest.fixture(scope="module")
def cluster_settings() -> dict[str, dict[str, str]]:
    agent = {"PERSYS_CLUSTER_ID": HOME, "PERSYS_VM_ENABLED": "false", **COMPOSE}
    return {"scheduler": SETTINGS, "agent": agent}


@pytest.fixture(scope="module")
def federation(
    cluster: Cluster, remote: RemoteCluster, module_directory: Path
) -> Iterator[Federation]:
    created = Federation(cluster, remote, module_directory)
    try:
        created.start()
        yield created
    finally:
        created.close()


@pytest.fixture
def full(cluster: Cluster, federation: Federation, sleeper: pb.WorkloadSpec) -> Iterator[None]:
    """The home cluster has no free cpu. After the test it has no workloads, like the remote cluster."""
    cluster.run_all([FILLER], filling(sleeper, cluster))
    yield
    federation.remote.link.restore()
    cluster.delete_all([*cluster.statuses()])
    cluster.wait_until_gone(cluster.statuses())
    eventually(
        lambda: federation.remote.client.list_workloads() == [],
        lambda: f"nothing is left: {federation.remote.client.list_workloads()}",
    )


def filling(spec: pb.WorkloadSpec, cluster: Cluster) -> pb.WorkloadSpec:
    filler = copied(spec)
    free = cluster.node().available_cpu_cores
    filler.resources.cpu_millicores = round(free * 1000)
    return filler


def copied(spec: pb.WorkloadSpec) -> pb.WorkloadSpec:
    copy = pb.WorkloadSpec()
    copy.CopyFrom(spec)
    return copy


@pytest.fixture
def page(sleeper: pb.WorkloadSpec) -> pb.WorkloadSpec:
    """A container that may be offloaded."""
    spec = copied(sleeper)
    spec.container.command[:] = [
        "sh",
        "-c",
        "echo hello; trap exit TERM; while :; do sleep 0.1; done",
    ]
    spec.placement.offload = "when-full"
    return spec


@pytest.fixture
def database(page: pb.WorkloadSpec) -> pb.WorkloadSpec:
    """A container with data that may be offloaded."""
    spec = copied(page)
    spec.container.managed_volumes.add(name="data", driver="local", mount_path="/data")
    spec.placement.offload_data = True
    return spec


def a_stack(image: str) -> pb.WorkloadSpec:
    text = f"""
services:
  api:
    image: {image}
    init: true
    command: ["sh", "-c", "echo stack is up; exec sleep 3600"]
    deploy: {{resources: {{limits: {{cpus: "0.1", memory: 16M}}}}}}
"""
    return pb.WorkloadSpec(
        type="compose",
        compose=pb.ComposeSpec(inline_yaml=text),
        placement=pb.PlacementRules(offload="when-full"),
    )


def test_a_container_and_a_stack_are_offloaded_and_can_be_accessed(
    federation: Federation, full: None, page: pb.WorkloadSpec, demo_image: str
) -> None:
    home, remote = federation.home, federation.remote
    staying = copied(page)
    staying.placement.offload = ""
    home.apply("page", page)
    home.apply("stack", a_stack(demo_image))
    home.apply("staying", staying)

    for name in ("page", "stack"):
        federation.wait_until_offloaded(name)
        assert (running(name, node_id=home.node_id), len(remote.containers(name))) == (set(), 1)
    assert home.status("staying") == "Pending"
    eventually(lambda: federation.persysctl("logs", "page") == "hello\n", "the log is shown")
    eventually(lambda: "stack is up" in federation.persysctl("logs", "stack"), "the log is shown")
    ran = ("exec", "page", "--", "sh", "-c", "echo $((6 * 7)); exit 9")
    assert federation.persysctl(*ran, code=9) == "42\n"
    shown = federation.persysctl("federation", "get", NODE)
    assert f"{HOME}--page" in shown
    assert f"{NODE}" in federation.persysctl("federation", "list")

    before = remote.containers("page")
    home.client.set_desired_state("page", "Stopped")
    home.wait_for("page", "Stopped")
    assert remote.containers("page") == set()
    home.client.set_desired_state("page", "Running")
    home.wait_for("page", "Running")
    assert len(remote.containers("page")) == 1, before


def test_a_workload_returns_when_the_home_cluster_has_capacity(
    federation: Federation, full: None, page: pb.WorkloadSpec
) -> None:
    home, remote = federation.home, federation.remote
    setattr(page.placement, "return", "when-free")  # a keyword of Python
    home.apply("page", page)
    federation.wait_until_offloaded("page")

    home.client.delete(FILLER)

    def is_home() -> bool:
        assert federation.copies("page") >= 1, "it runs in at least one cluster"
        return bool(running("page", node_id=home.node_id)) and not remote.containers("page")

    eventually(is_home, "it runs at home only", within=MOVE_SECONDS)
    assert home.wait_for("page", "Running").assigned_node_id == home.node_id
    eventually(lambda: remote.status("page") == "", "the remote cluster has deleted it")


def test_a_lost_link_loses_and_duplicates_nothing(
    federation: Federation, full: None, page: pb.WorkloadSpec, database: pb.WorkloadSpec
) -> None:
    home, remote = federation.home, federation.remote
    home.apply("page", page)
    home.apply("db", database)
    for name in ("page", "db"):
        federation.wait_until_offloaded(name)
    before = remote.containers("db")

    remote.link.cut()
    home.client.delete(FILLER)  # now the home cluster could run both
    eventually(
        lambda: home.status("db") != "Running",
        "the status of the remote workloads is unknown",
        within=MOVE_SECONDS,
    )
    assert remote.containers("db") == before
    remote.link.restore()

    def runs_again() -> bool:
        assert federation.copies("db") == 1, "a workload with data has one copy"
        return all(home.status(name) == "Running" for name in ("page", "db"))

    eventually(runs_again, lambda: f"both run: {home.statuses()}", within=MOVE_SECONDS)
    assert remote.containers("db") == before
    eventually(lambda: federation.copies("page") == 1, "one copy of the page")


def test_a_lost_federation_is_a_lost_node(
    federation: Federation, full: None, page: pb.WorkloadSpec, database: pb.WorkloadSpec
) -> None:
    home, remote = federation.home, federation.remote
    home.apply("page", page)
    home.apply("db", database)
    for name in ("page", "db"):
        federation.wait_until_offloaded(name)
    before = remote.containers("db")

    federation.process.kill()
    home.client.delete(FILLER)

    def replaced() -> bool:
        assert federation.copies("db") == 1, "a workload with data has one copy"
        return federation.node_of("page") == home.node_id and home.status("page") == "Running"

    eventually(replaced, "the page runs at home", within=MOVE_SECONDS)
    federation.process.start()

    def restored() -> bool:
        assert federation.copies("db") == 1, "a workload with data has one copy"
        return federation.copies("page") == 1 and home.status("db") == "Running"

    eventually(restored, lambda: f"one copy of each: {home.statuses()}", within=MOVE_SECONDS)
    assert remote.containers("db") == before
    assert remote.containers("page") == set()


@pytest.mark.full
def test_a_workload_with_stop_after_is_stopped_there_before_it_runs_at_home(
    federation: Federation, full: None, database: pb.WorkloadSpec
) -> None:
    home, remote = federation.home, federation.remote
    database.stop_after_seconds = 90
    database.container.stop_grace_seconds = 1
    home.apply("db", database)
    federation.wait_until_offloaded("db")

    federation.process.kill()
    home.client.delete(FILLER)

    def runs_at_home() -> bool:
        assert federation.copies("db") <= 1, "a workload with data has one copy"
        return bool(running("db", node_id=home.node_id))

    eventually(lambda: remote.containers("db") == set(), "the remote cluster stops it", within=90)
    eventually(runs_at_home, lambda: f"it runs at home: {home.statuses()}", within=180)
    federation.process.start()

    def only_at_home() -> bool:
        assert federation.copies("db") == 1, "a workload with data has one copy"
        return remote.status("db") == ""

    eventually(only_at_home, "the remote cluster has deleted it", within=MOVE_SECONDS)


def test_offloaded_workloads_survive_a_change_of_the_remote_leader(
    federation: Federation, full: None, page: pb.WorkloadSpec, database: pb.WorkloadSpec
) -> None:
    home, remote = federation.home, federation.remote
    home.apply("db", database)
    federation.wait_until_offloaded("db")
    before = remote.containers("db")
    leader = remote.leader()

    leader.kill()
    home.apply("page", page)
    federation.wait_until_offloaded("page", within=MOVE_SECONDS)
    assert remote.leader() is not leader
    leader.launch()
    home.wait_for("db", "Running", within=MOVE_SECONDS)

    assert remote.containers("db") == before
    assert federation.copies("page") == 1


def test_a_removed_federation_returns_its_workloads(
    federation: Federation, full: None, page: pb.WorkloadSpec
) -> None:
    home, remote = federation.home, federation.remote
    home.apply("page", page)
    federation.wait_until_offloaded("page")
    blocked = federation.persysctl("node", "drain", NODE, "--wait=20s", code=1)
    assert "draining" in blocked

    home.client.delete(FILLER)
    federation.persysctl("node", "drain", NODE, "--wait=2m")

    assert home.wait_for("page", "Running").assigned_node_id == home.node_id
    assert federation.copies("page") == 1
    assert remote.client.list_workloads() == []
    federation.persysctl("node", "uncordon", NODE)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_vm_is_offloaded(
    federation: Federation, full: None, vm_directory: tuple[Path, dict[str, str]]
) -> None:
    home, remote = federation.home, federation.remote
    add_image(remote)
    spec = vms.a_vm()
    spec.placement.offload = "when-full"
    spec.placement.offload_data = True  # a VM has a disk
    home.apply("machine", spec)

    federation.wait_until_offloaded("machine", within=vms.BOOT_SECONDS)
    assert len(vms.domains(vm_directory[0])) == 1
    eventually(
        lambda: "guest: up" in federation.persysctl("logs", "machine"),
        "its console is shown",
        within=vms.BOOT_SECONDS,
    )
    home.client.delete("machine")
    home.wait_until_gone(["machine"])
    eventually(lambda: vms.domains(vm_directory[0]) == [], "the VM is removed")


def add_image(remote: RemoteCluster) -> None:
    with vms.TINY.open("rb") as file:
        size = vms.TINY.stat().st_size
        progress = list(remote.client.add_image("tiny", file, size_bytes=size))
    assert not [each.problem for each in progress if each.problem]
