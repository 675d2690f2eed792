"""The create body of a container for an order."""

from typing import Any

import pytest

from persys.agent.runtimes.docker.mapping import OwnerLabels, create_body
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.spec import ContainerSpec, RestartPolicy, WorkloadType
from persys.model.workload import Desired, Order

OWNER = OwnerLabels("default", NodeId("n1"))


def body(spec: ContainerSpec) -> dict[str, Any]:
    order = Order(
        WorkloadId("web"), WorkloadType.CONTAINER, Revision("r1"), 3, Desired.RUNNING, spec
    )
    return create_body(order, OWNER, {}, files={}, pids_max=10)


def test_a_container_is_created_from_the_image_of_its_spec() -> None:
    assert body(ContainerSpec("nginx:1.27"))["Image"] == "nginx:1.27"


@pytest.mark.parametrize("privileged", [True, False])
def test_a_container_is_privileged_only_if_its_spec_is(privileged: bool) -> None:
    created = body(ContainerSpec("nginx", privileged=privileged))

    assert created["HostConfig"]["Privileged"] is privileged


@pytest.mark.parametrize(
    ("policy", "restart"),
    [
        (RestartPolicy("no"), {"Name": "no"}),
        (RestartPolicy("always"), {"Name": "always"}),
        (RestartPolicy("on-failure", 3), {"Name": "on-failure", "MaximumRetryCount": 3}),
        (RestartPolicy("unless-stopped"), {"Name": "unless-stopped"}),
    ],
    ids=lambda value: value.name if isinstance(value, RestartPolicy) else "",
)
def test_the_restart_policy_is_passed_to_docker(
    policy: RestartPolicy, restart: dict[str, object]
) -> None:
    assert body(ContainerSpec("nginx", restart=policy))["HostConfig"]["RestartPolicy"] == restart


def test_limits_are_passed_to_docker() -> None:
    limits = body(ContainerSpec("nginx", cpu_shares=512, cpu_millicores=500, memory_bytes=1 << 29))

    assert limits["HostConfig"].items() >= {
        ("CpuShares", 512),
        ("NanoCpus", 500_000_000),
        ("Memory", 1 << 29),
        ("MemorySwap", 1 << 29),
        ("PidsLimit", 10),
    }


def test_a_container_is_labelled_with_its_workload_revision_and_owner() -> None:
    assert body(ContainerSpec("nginx", labels={"team": "blue"}))["Labels"] == {
        "team": "blue",
        "persys.managed": "true",
        "persys.workload_id": "web",
        "persys.revision_id": "r1",
        "persys.cluster_id": "default",
        "persys.node_id": "n1",
        "persys.epoch": "3",
    }
