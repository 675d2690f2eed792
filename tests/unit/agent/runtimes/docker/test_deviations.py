"""Networks, ports and limits from Docker's description of a container."""

from typing import Any

from persys.agent.runtimes.compose.deviations import (
    compare,
    joined_outside,
    services_without_network,
)
from persys.agent.runtimes.docker.deviations import first_network, shape_of
from persys.agent.runtimes.docker.mapping import OwnerLabels, deviations_of, wanted_shape
from persys.core.agent.deviations import DeviationKind, Shape, summary
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.spec import ContainerSpec, RestartPolicy, WorkloadType
from persys.model.workload import Desired, Order

OWNER = OwnerLabels("default", NodeId("n1"))
NAME = OWNER.name(WorkloadId("web"))
SPEC = ContainerSpec("x", memory_bytes=64 << 20, restart=RestartPolicy("on-failure", 3))
ORDER = Order(WorkloadId("web"), WorkloadType.CONTAINER, Revision("r1"), 1, Desired.RUNNING, SPEC)


def a_container(
    container_id: str = "c1",
    *,
    mode: str = "default",
    networks: dict[str, str] | None = None,
    status: str = "running",
    started: str = "2030-01-01T00:00:00Z",
    service: str = "web",
    published: bool = True,
    **limits: object,
) -> dict[str, Any]:
    """`networks`: the endpoint per network; "" if it was lost."""
    attached = {"bridge": "e1"} if networks is None else networks
    return {
        "Id": container_id,
        "Name": f"/{NAME}",
        "State": {"Status": status, "StartedAt": started},
        "Config": {"Labels": {"com.docker.compose.service": service}},
        "HostConfig": {
            "NetworkMode": mode,
            "PortBindings": {"80/tcp": [{"HostIp": "", "HostPort": "8080"}]},
            "Memory": 64 << 20,
            "MemorySwap": 64 << 20,
            "NanoCpus": 0,
            "CpuShares": 0,
            "PidsLimit": 4096,
            "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 3},
            **limits,
        },
        "NetworkSettings": {
            "Networks": {
                name: {"EndpointID": endpoint, "NetworkID": f"id-{name}"}
                for name, endpoint in attached.items()
            },
            "Ports": {"80/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8080"}]} if published else {},
        },
    }


def differs(found: dict[str, Any]) -> str:
    return summary(deviations_of(found, wanted_shape(found, ORDER, OWNER)))


def test_an_unmodified_container_does_not_deviate() -> None:
    assert differs(a_container()) == ""


def test_a_network_without_an_endpoint_is_lost() -> None:
    """Docker's output after a restart that lost the endpoint."""
    assert differs(a_container(networks={"bridge": ""})) == "network bridge is not attached"


def test_a_port_that_is_not_published_is_named() -> None:
    assert differs(a_container(published=False)) == "port 80/tcp is not published"


def test_limits_and_the_restart_policy_are_compared_with_the_order() -> None:
    changed = a_container(
        Memory=128 << 20, RestartPolicy={"Name": "always", "MaximumRetryCount": 0}
    )

    assert differs(changed) == (
        "Memory is 134217728, created with 67108864; RestartPolicy is always, "
        "created with on-failure:3"
    )


def test_a_limit_that_the_host_cannot_enforce_is_not_a_deviation() -> None:
    """Docker shows -1 for swap and 0 for other limits that the kernel does not support."""
    assert differs(a_container(Memory=0, MemorySwap=-1, PidsLimit=None)) == ""


def test_the_default_pids_limit_of_the_node_is_not_compared() -> None:
    assert differs(a_container(PidsLimit=7)) == ""


def test_containers_without_a_network_of_their_own_expect_none() -> None:
    assert [first_network(a_container(mode=mode)) for mode in ("host", "none", "container:x")] == [
        (),
        (),
        (),
    ]
    assert first_network(a_container(mode="shop_default")) == ("shop_default",)


def test_a_stack_container_is_compared_with_its_first_shape() -> None:
    created = a_container(mode="front", networks={"front": "e1", "back": "e2"})
    first = compare([created], {})
    assert first.deviations == {}

    later = compare([a_container(mode="front", networks={"front": "e1"})], first.shapes)

    assert summary(later.deviations["c1"]) == "web: network back is not attached"
    assert later.shapes == first.shapes


def test_a_container_without_a_shape_is_compared_with_its_first_network() -> None:
    compared = compare([a_container(mode="front", networks={}, published=False)], {})

    assert summary(compared.deviations["c1"]) == "web: network front is not attached"
    assert compared.shapes == {}


def test_ports_that_a_network_never_published_are_not_a_deviation() -> None:
    internal = a_container(mode="internal", networks={"internal": "e1"}, published=False)

    assert compare([internal], compare([internal], {}).shapes).deviations == {}


def test_stopped_containers_are_not_compared_and_removed_ones_are_dropped() -> None:
    shapes = {"c1": Shape("a"), "c2": Shape("b")}

    compared = compare([a_container("c1", status="exited", networks={})], shapes)

    assert compared.deviations == {}
    assert compared.shapes == {"c1": Shape("a")}


def test_a_container_whose_network_container_restarted_has_lost_its_network() -> None:
    vpn = a_container("vpn", started="2030-01-01T00:01:00Z", service="vpn")
    client = a_container("app", mode="container:vpn", networks={}, service="app", published=False)

    found = compare([vpn, client], {}).deviations["app"]

    assert [one.kind for one in found] == [DeviationKind.NETWORK]
    assert found[0].part == "app"


def test_a_container_whose_network_container_was_removed_has_lost_its_network() -> None:
    client = a_container("app", mode="container:old", networks={}, published=False)

    assert joined_outside([client]) == {"old"}
    assert compare([client], {}).deviations == {}
    assert "app" in compare([client], {}, gone={"old"}).deviations


def test_services_that_refer_to_a_removed_network_are_found() -> None:
    stopped = a_container(mode="front", networks={"front": ""}, status="exited")
    runs = a_container("c2", mode="back", networks={"back": "e1"}, service="db")

    assert services_without_network([stopped, runs], {"id-front", "id-back"}) == frozenset()
    assert services_without_network([stopped, runs], {"id-back"}) == {"web"}


def test_the_shape_of_a_container_is_its_current_state() -> None:
    shape = shape_of(a_container(networks={"b": "e1", "a": "e2", "lost": ""}))

    assert (shape.networks, shape.ports) == (("a", "b"), ("80/tcp",))
