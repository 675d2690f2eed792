"""What this node offers of the remote cluster."""

import pytest
from msgspec.structs import replace

from persys.federation.capacity import Limits, Offer, RemoteHost, offer_of
from persys.model.node import Capabilities, StoragePool
from persys.model.placement import Resources
from persys.model.spec import WorkloadType
from persys.wire.gen.control.v1 import control_pb2 as pb


def a_node(
    *, cores: float = 4, memory_mb: int = 8000, status: str = "Ready", cordoned: bool = False
) -> pb.NodeView:
    return pb.NodeView(
        status=status,
        cordoned=cordoned,
        available_cpu_cores=cores,
        available_memory_mb=memory_mb,
        available_disk_gb=100,
    )


def test_the_offer_is_a_share_of_what_is_free_and_what_is_used_already() -> None:
    nodes = [a_node(), a_node(cores=2, memory_mb=2000)]

    offer = offer_of(nodes, Resources(1000, 500, 10), Limits(share=0.5))

    assert offer.total == Resources(4000, 5500, 110)
    assert offer.largest == Resources(4000, 8000, 100)


@pytest.mark.parametrize("node", [a_node(status="NotReady"), a_node(cordoned=True)])
def test_nodes_that_accept_no_workloads_are_not_offered(node: pb.NodeView) -> None:
    assert offer_of([node], Resources(), Limits()) == Offer()


def test_an_overcommitted_node_reduces_nothing() -> None:
    offer = offer_of([a_node(cores=-2), a_node(cores=2)], Resources(), Limits(share=1))

    assert offer.total.cpu_millicores == 2000


@pytest.mark.parametrize(
    ("limits", "millicores"),
    [
        (Limits(share=1, cpu_millicores_max=3000), 3000),
        (Limits(share=1, spend_per_hour_max=1.0, core_hour_price=0.5), 2000),
        (Limits(share=1, cpu_millicores_max=1000, spend_per_hour_max=9, core_hour_price=1), 1000),
        (Limits(share=1, spend_per_hour_max=1.0), 4000),
    ],
)
def test_limits_of_cores_and_spend_cap_the_offer(limits: Limits, millicores: int) -> None:
    assert offer_of([a_node()], Resources(), limits).total.cpu_millicores == millicores


@pytest.mark.parametrize(("cores", "differs"), [(4.1, False), (4.3, True), (3.7, True), (0, True)])
def test_only_a_change_of_a_twentieth_is_registered(cores: float, differs: bool) -> None:
    before = offer_of([a_node()], Resources(), Limits())

    assert offer_of([a_node(cores=cores)], Resources(), Limits()).differs_from(before) is differs


def test_types_of_any_node_and_labels_of_all_nodes_are_offered() -> None:
    first, second, off = a_node(), a_node(), a_node(status="NotReady")
    first.supported_workload_types.extend(["container", "vm"])
    second.supported_workload_types.append("container")
    off.supported_workload_types.append("compose")
    first.labels.update({"region": "eu", "disk": "ssd"})
    second.labels.update({"region": "eu", "disk": "hdd"})

    offer = offer_of([first, second, off], Resources(), Limits())

    assert offer.types == {WorkloadType.CONTAINER, WorkloadType.VM}
    assert offer.labels == {"region": "eu"}


def test_a_federated_node_of_the_remote_cluster_is_not_offered() -> None:
    federated = a_node()
    federated.remote = "third 10.0.0.1:8085"

    assert offer_of([federated], Resources(), Limits()) == Offer()


def test_the_pool_of_the_node_has_the_disk_of_the_offer() -> None:
    """Also if the remote cluster did not respond when the process started."""
    measured = Capabilities(1000, 1000, pools=(StoragePool("local", "local", 0),))

    found = Offer(total=Resources(4000, 8000, 50)).capabilities(measured)

    assert found.pools == (StoragePool("local", "local", 50),)


def test_another_type_or_label_is_registered() -> None:
    before = offer_of([a_node()], Resources(), Limits())

    assert replace(before, types=frozenset({WorkloadType.VM})).differs_from(before)
    assert replace(before, labels={"a": "b"}).differs_from(before)


def test_the_registered_capabilities_are_those_of_the_offer() -> None:
    offer = Offer(
        largest=Resources(1000, 512, 1),
        types=frozenset({WorkloadType.VM}),
        images=frozenset({"debian"}),
        remote="far 10.0.0.1:8085",
    )

    found = offer.capabilities(
        Capabilities(1000, 1000, types=frozenset(WorkloadType), features=frozenset({"a"}))
    )

    assert (found.types, found.remote) == (offer.types, "far 10.0.0.1:8085")
    assert found.largest == offer.largest
    assert found.features == {"a", "image:debian"}


def test_an_empty_offer_is_a_valid_host() -> None:
    host = RemoteHost()

    assert host.cpu_millicores() == 0
    assert host.memory().used_mb / host.memory().total_mb == 0
