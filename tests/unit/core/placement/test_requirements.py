"""The requirements of a workload."""

import pytest

from builders import NOON, a_workload
from persys.core.placement.requirements import facts_of, holds_data, requirements_of, traits_of
from persys.model import feature
from persys.model.ids import NodeId
from persys.model.node import Capabilities, Node, StoragePool
from persys.model.placement import HostPort, Resources
from persys.model.spec import (
    ComposeSpec,
    ContainerSpec,
    Disk,
    HealthCheck,
    HealthType,
    Login,
    ManagedVolume,
    Network,
    Port,
    PullPolicy,
    RestartPolicy,
    Spec,
    VMSpec,
    VolumeMount,
    WorkloadType,
)


@pytest.mark.parametrize(
    ("spec", "trait"),
    [
        (ContainerSpec("nginx"), "type:container"),
        (ComposeSpec(yaml="services: {}"), "type:compose"),
        (VMSpec(1, 512), "type:vm"),
    ],
    ids=str,
)
def test_every_type_needs_its_runtime_and_a_plain_one_nothing_else(spec: Spec, trait: str) -> None:
    assert requirements_of(a_workload(spec=spec)).traits == {trait}


@pytest.mark.parametrize(
    ("spec", "trait"),
    [
        (ContainerSpec("x", privileged=True), f"feature:{feature.PRIVILEGED}"),
        (ContainerSpec("x", pids_max=10), f"feature:{feature.CONTAINER_LIMITS}"),
        (ContainerSpec("x", stop_grace_seconds=1), f"feature:{feature.CONTAINER_LIMITS}"),
        (ContainerSpec("x", init=True), f"feature:{feature.CONTAINER_LIMITS}"),
        (
            ContainerSpec("x", pull_policy=PullPolicy.ALWAYS),
            f"feature:{feature.CONTAINER_LIMITS}",
        ),
        (ContainerSpec("x", image_credential="c"), f"feature:{feature.CREDENTIALS}"),
        (
            ContainerSpec("x", health=HealthCheck(restart_unhealthy=True)),
            f"feature:{feature.HEALTH}",
        ),
        (
            ContainerSpec("x", health=HealthCheck(HealthType.TCP, port=1)),
            f"feature:{feature.HEALTH}",
        ),
        (ComposeSpec(source_type="git", git_repo="r"), f"feature:{feature.COMPOSE_GIT}"),
        (
            ContainerSpec("x", managed_volumes=(ManagedVolume("d", "/d", driver="nfs"),)),
            "driver:nfs",
        ),
        (
            VMSpec(1, 512, managed_volumes=(ManagedVolume("d", driver="ceph-rbd"),)),
            "driver:ceph-rbd",
        ),
        (VMSpec(1, 512, disks=(Disk(pool_name="fast", size_gb=1),)), "pool:fast"),
        (VMSpec(1, 512, os_image="debian-12"), "image:debian-12"),
        (VMSpec(1, 512, os_image="https://example.org/a.qcow2"), "feature:machine-policies"),
        (VMSpec(1, 512, restart=RestartPolicy("no")), "feature:machine-policies"),
        (
            VMSpec(1, 512, health=HealthCheck(HealthType.GUEST_AGENT)),
            f"feature:{feature.MACHINE_HEALTH}",
        ),
        (VMSpec(1, 512, stop_grace_seconds=5), "feature:machine-policies"),
        (VMSpec(1, 512, login=Login(ssh_keys=("ssh-rsa x",))), "feature:machine-policies"),
        (
            VMSpec(1, 512, networks=(Network("br0", gateway="10.0.0.1"),)),
            "feature:machine-policies",
        ),
    ],
    ids=str,
)
def test_a_field_that_a_third_party_agent_ignores_is_a_required_trait(
    spec: Spec, trait: str
) -> None:
    assert trait in requirements_of(a_workload(spec=spec)).traits


def test_only_ports_that_name_a_host_port_are_reserved() -> None:
    spec = ContainerSpec("x", ports=(Port(80, 8080), Port(53, 53, "udp"), Port(9000)))

    assert requirements_of(a_workload(spec=spec)).host_ports == {
        HostPort(8080),
        HostPort(53, "udp"),
    }


def test_a_stack_with_a_project_name_has_it_alone_on_a_node_that_honours_it() -> None:
    named = requirements_of(a_workload(spec=ComposeSpec(project_name="shop")))

    assert named.host_ports == {HostPort.of_project("shop")}
    assert "feature:compose-project-name" in named.traits
    assert requirements_of(a_workload(spec=ComposeSpec())).host_ports == frozenset()


@pytest.mark.parametrize(("said_gb", "needed_gb"), [(0, 30), (10, 30), (30, 30), (50, 50)])
def test_volumes_count_only_beyond_the_requested_disk(said_gb: int, needed_gb: int) -> None:
    spec = VMSpec(
        1, 512, disks=(Disk(size_gb=10),), managed_volumes=(ManagedVolume("d", size_gb=20),)
    )
    workload = a_workload(spec=spec, resources=Resources(100, 512, said_gb))

    assert requirements_of(workload).resources == Resources(100, 512, needed_gb)


def test_a_node_has_the_traits_it_registered_with() -> None:
    capabilities = Capabilities(
        1000,
        1024,
        types=frozenset({WorkloadType.CONTAINER}),
        storage_drivers=frozenset({"local"}),
        features=frozenset({feature.PRIVILEGED}),
    )

    assert traits_of(capabilities) == {"type:container", "driver:local", "feature:privileged"}


def test_allocatable_is_the_capacity_minus_the_system_reserve() -> None:
    capabilities = Capabilities(
        4000,
        8192,
        pools=(StoragePool("a", total_gb=10), StoragePool("b", total_gb=20)),
        reserved=Resources(500, 1024),
    )

    assert capabilities.allocatable == Resources(3500, 7168, 30)


@pytest.mark.parametrize(
    ("spec", "holds"),
    [
        (VMSpec(1, 512), True),
        (ContainerSpec("x"), False),
        (ContainerSpec("x", managed_volumes=(ManagedVolume("d", "/d"),)), True),
        (ContainerSpec("x", volumes=(VolumeMount("/a", "/b"),)), True),
        (ContainerSpec("x", volumes=(VolumeMount("/a", "/b", read_only=True),)), False),
        (ComposeSpec(yaml="services: {}"), False),
    ],
    ids=str,
)
def test_a_workload_with_its_own_data_is_distinguished_from_one_without(
    spec: Spec, holds: bool
) -> None:
    assert holds_data(a_workload(spec=spec)) is holds


def test_metadata_and_labels_ask_nothing_of_a_node() -> None:
    workload = a_workload(
        spec=ContainerSpec("x", labels={"zone": "eu"}), metadata={"gpu": "2", "zone": "eu"}
    )

    assert requirements_of(workload) == requirements_of(a_workload(spec=ContainerSpec("x")))


def test_a_node_has_the_pools_it_names() -> None:
    has = Capabilities(1000, 1000, pools=(StoragePool("fast"), StoragePool("slow")))

    assert {"pool:fast", "pool:slow"} <= traits_of(has)


def test_a_node_has_the_images_it_names() -> None:
    has = Capabilities(1000, 1000, features=frozenset({f"{feature.IMAGE}debian-12", "other"}))

    assert traits_of(has) == {"image:debian-12", "feature:other"}


def test_facts_stand_beside_the_labels_and_win() -> None:
    node = Node(
        NodeId("n1"),
        Capabilities(4000, 8192, types=frozenset({WorkloadType.VM, WorkloadType.CONTAINER})),
        "127.0.0.1:1",
        NOON,
        labels={"zone": "eu", "node.id": "another"},
        agent_version="1.2.0",
    )

    assert facts_of(node) == {
        "zone": "eu",
        "node.id": "n1",
        "node.cpu_millicores": "4000",
        "node.memory_mb": "8192",
        "node.disk_gb": "0",
        "node.agent_version": "1.2.0",
        "node.types": "container,vm",
    }
