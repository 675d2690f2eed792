"""Which members are endpoints, where clients reach them, and why others are not in the list."""

from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from persys.core.agent.health import HEALTH, UNHEALTHY
from persys.core.services.endpoints import Endpoints, Member, endpoints
from persys.model.ids import NodeId
from persys.model.node import Capabilities, Node
from persys.model.service import Selector, Service, ServicePort, ServiceProtocol
from persys.model.spec import ComposeSpec, ContainerSpec, ManagedVolume, Port, VMSpec
from persys.model.status import Status
from persys.model.workload import Desired, Membership
from service_builders import HTTP, a_draining_node, a_lost_node, a_member, a_node, a_service


def found(
    *members: Member, service: Service | None = None, nodes: tuple[Node, ...] = ()
) -> Endpoints:
    known = nodes or (a_node("n1"), a_node("n2"))
    return endpoints(service or a_service(), members, {node.id: node for node in known})


def reason(*members: Member, service: Service | None = None, nodes: tuple[Node, ...] = ()) -> str:
    result = found(*members, service=service, nodes=nodes)
    assert result.endpoints == ()
    (excluded,) = result.excluded
    return excluded.reason


def test_a_healthy_member_is_reached_at_its_node_and_its_published_port() -> None:
    (one, two) = found(a_member(0), a_member(1, node="n2")).endpoints

    assert (one.workload_id, one.host, one.port, one.node_id) == ("web-0", "10.0.0.1", 20_000, "n1")
    assert (two.workload_id, two.host, two.port) == ("web-1", "10.0.0.2", 20_001)


def test_members_of_other_sets_are_not_endpoints() -> None:
    assert found(a_member(0, owner="shop")) == Endpoints()


def test_a_workload_is_selected_by_all_its_labels() -> None:
    service = a_service(Selector(labels={"app": "web", "track": "stable"}))

    both = found(a_member(0, owner="", labels={"app": "web", "track": "stable"}), service=service)
    one = found(a_member(0, owner="", labels={"app": "web"}), service=service)

    assert len(both.endpoints) == 1
    assert one == Endpoints()


def test_the_labels_of_a_container_select_it_too() -> None:
    spec = ContainerSpec("nginx", ports=(Port(80),), labels={"app": "web"})
    service = a_service(Selector(labels={"app": "web"}))

    assert len(found(a_member(0, owner="", spec=spec), service=service).endpoints) == 1


def test_the_first_selector_that_matches_gives_the_weight() -> None:
    service = a_service(
        Selector(set_id="web", weight=9), Selector(labels={"track": "canary"}, weight=2)
    )

    weights = [
        one.weight
        for one in found(
            a_member(0, labels={"track": "canary"}),
            a_member(1, owner="", labels={"track": "canary"}),
            service=service,
        ).endpoints
    ]

    assert weights == [9, 2]


def test_a_member_of_a_job_is_never_an_endpoint() -> None:
    service = a_service(Selector(labels={"app": "web"}))
    run = Membership("backup-1", 0, 0, job_id="backup")

    assert found(a_member(0, labels={"app": "web"}, membership=run), service=service) == Endpoints()


@dataclass(frozen=True, slots=True)
class Case:
    member: Member
    reason: str


@pytest.mark.parametrize(
    "case",
    [
        Case(a_member(desired=Desired.DELETED), "it is being deleted"),
        Case(a_member(desired=Desired.STOPPED, healthy_since=None), "it is being stopped"),
        Case(a_member(desired=Desired.STOPPED, status=Status.STOPPED), "it is stopped"),
        Case(
            a_member(code=UNHEALTHY, message="HTTP 500", healthy_since=None),
            "its health check fails: HTTP 500",
        ),
        Case(
            a_member(status=Status.FAILED, message="exit code 1", healthy_since=None),
            "it has failed: exit code 1",
        ),
        Case(a_member(status=Status.UNKNOWN, healthy_since=None), "its state is unknown"),
        Case(a_member(status=Status.PENDING, healthy_since=None), "it is pending"),
        Case(a_member(reported="r0"), "node n1 has not reported revision r1 yet"),
        Case(
            a_member(healthy_since=None, metadata={HEALTH: "starting"}),
            "its health check has not passed yet",
        ),
        Case(
            a_member(node=None, message="no capacity"), "it is not assigned to a node: no capacity"
        ),
        Case(
            a_member(metadata={"container.ports": "8080->81/tcp"}), "port 80/tcp is not published"
        ),
    ],
    ids=lambda case: case.reason,
)
def test_a_member_that_is_not_an_endpoint_says_why(case: Case) -> None:
    assert reason(case.member).startswith(case.reason)


def test_a_member_on_a_lost_node_is_not_an_endpoint() -> None:
    assert reason(a_member(), nodes=(a_lost_node(),)) == "its node n1 does not send heartbeats"


def test_a_member_on_a_node_without_a_record_is_not_an_endpoint() -> None:
    assert reason(a_member(), nodes=(a_node("n9"),)) == "its node n1 does not send heartbeats"


def test_a_member_that_leaves_a_draining_node_is_left_out_while_there_are_others() -> None:
    nodes = (a_draining_node("n1"), a_node("n2"))

    result = found(a_member(0), a_member(1, node="n2"), nodes=nodes)

    assert [one.workload_id for one in result.endpoints] == ["web-1"]
    assert [one.reason for one in result.excluded] == ["its node n1 is being drained"]


def test_the_only_members_of_a_draining_node_stay_endpoints() -> None:
    assert len(found(a_member(0), nodes=(a_draining_node("n1"),)).endpoints) == 1


def test_a_member_with_data_stays_an_endpoint_on_a_draining_node() -> None:
    volume = ManagedVolume("data", "/data")
    spec = ContainerSpec("nginx", ports=(Port(80),), managed_volumes=(volume,))
    nodes = (a_draining_node("n1"), a_node("n2"))

    assert len(found(a_member(0, spec=spec), a_member(1, node="n2"), nodes=nodes).endpoints) == 2


def test_a_running_member_whose_health_was_never_recorded_is_an_endpoint() -> None:
    assert len(found(a_member(healthy_since=None)).endpoints) == 1


def test_a_fixed_host_port_is_used_if_the_node_reports_none() -> None:
    spec = ContainerSpec("nginx", ports=(Port(80, 8080),))

    (one,) = found(a_member(spec=spec, metadata={})).endpoints

    assert one.port == 8080


def test_a_vm_is_reached_at_its_own_address() -> None:
    spec = VMSpec(1, 512)

    (one,) = found(a_member(spec=spec, metadata={"vm.primary_ip": "192.168.122.7"})).endpoints

    assert (one.host, one.port) == ("192.168.122.7", 80)


def test_a_vm_without_an_address_is_not_an_endpoint() -> None:
    assert reason(a_member(spec=VMSpec(1, 512), metadata={})) == "it has no known address yet"


def test_a_stack_is_reached_at_its_published_port() -> None:
    ports = {"container.ports": "8080->80/tcp,9000->9000/tcp"}

    (one,) = found(a_member(spec=ComposeSpec(), metadata=ports)).endpoints

    assert one.port == 8080


def test_a_port_that_a_stack_publishes_twice_is_not_guessed() -> None:
    ports = {"container.ports": "8080->80/tcp,8081->80/tcp"}

    assert reason(a_member(spec=ComposeSpec(), metadata=ports)).startswith(
        "port 80/tcp is published more than once, as 8080 and 8081"
    )


def test_a_member_may_miss_one_of_the_ports() -> None:
    dns = ServicePort("dns", 53, ServiceProtocol.UDP)
    ports = {"container.ports": "8080->80/tcp,5300->53/tcp"}

    result = found(a_member(metadata=ports), service=a_service(ports=(HTTP, dns)))

    assert [one.service_port.name for one in result.endpoints] == ["http"]
    assert [one.reason for one in result.excluded] == [
        "port 53/udp is not published: add it to the ports of the workload"
    ]


def test_an_ipv6_node_is_reached_at_its_address() -> None:
    (one,) = found(a_member(), nodes=(a_node("n1", endpoint="[fd00::1]:50051"),)).endpoints

    assert one.host == "fd00::1"


@pytest.mark.parametrize("endpoint", ["0.0.0.0:50051", "", "[::]:1", "a b:1"])
def test_a_node_without_a_usable_address_has_no_endpoints(endpoint: str) -> None:
    node = replace(a_node("n1"), endpoint=endpoint)

    assert reason(a_member(), nodes=(node,)).startswith("its node n1 has no usable address")


def test_a_workload_in_a_remote_cluster_is_not_an_endpoint() -> None:
    node = replace(a_node("n1"), capabilities=Capabilities(1, 1, remote="east https://east"))

    assert reason(a_member(), nodes=(node,)).startswith("it runs in the remote cluster of node n1")


def test_the_node_of_an_endpoint_is_that_of_its_assignment() -> None:
    (one,) = found(a_member(node="n2")).endpoints

    assert one.node_id == NodeId("n2")


@pytest.mark.parametrize(
    ("endpoint", "port"), [("10.0.0.1:50051", 32833), ("[fd00::1]:50051", 32830)]
)
def test_the_port_is_that_of_the_address_family(endpoint: str, port: int) -> None:
    ports = {"container.ports": "32833->80/tcp,[::]:32830->80/tcp"}

    (one,) = found(a_member(metadata=ports), nodes=(a_node("n1", endpoint=endpoint),)).endpoints

    assert one.port == port
