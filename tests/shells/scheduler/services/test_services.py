"""Services of a real scheduler: what users change, and the endpoints that follow from the members."""

import grpc
import pytest

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.scheduler.harness import Cluster
from shells.scheduler.recovery.test_mode import our_node
from shells.scheduler.recovery.test_recovery import lose_the_store, restore, save
from shells.scheduler.services.calls_of_services import ServiceCalls, a_service, listed
from shells.scheduler.sets.calls_of_sets import SetCalls, a_set


async def test_running_workloads_with_the_label_are_endpoints(
    cluster: Cluster, services: ServiceCalls
) -> None:
    node = await cluster.join("n1")
    await services.applied(a_service())
    await services.run("web-a", 8080)
    await services.run("db", 5432, app="db")

    view = await services.until_listed("web-a")

    (endpoint,) = view.endpoints
    assert endpoint.host == node.agent.endpoint.rpartition(":")[0]
    assert (endpoint.port, endpoint.protocol, endpoint.weight) == (8080, "http", 1)
    assert (view.member_count, view.healthy_count) == (1, 1)
    assert view.dns_name == "web.services.persys.local"


async def test_a_service_finds_members_that_existed_before(
    cluster: Cluster, services: ServiceCalls
) -> None:
    await cluster.join("n1")
    await services.run("web-a", 8080)
    await cluster.control.until("web-a", "Running")

    view = await services.applied(a_service())

    assert listed(view) == ["web-a"]


async def test_a_stopped_member_is_withdrawn_before_it_has_stopped(
    cluster: Cluster, services: ServiceCalls
) -> None:
    await cluster.join("n1")
    await services.applied(a_service())
    await services.run("web-a", 8080)
    await services.until_listed("web-a")

    await cluster.control.want("web-a", "Stopped")
    view = await services.get()

    assert listed(view) == []
    assert view.excluded[0].reason in ("it is being stopped", "it is stopped")


async def test_a_deleted_member_is_withdrawn_with_the_answer(
    cluster: Cluster, services: ServiceCalls
) -> None:
    await cluster.join("n1")
    await services.applied(a_service())
    await services.run("web-a", 8080)
    await services.until_listed("web-a")

    await cluster.control.delete("web-a")

    assert listed(await services.get()) == []


async def test_a_member_that_loses_the_label_is_not_a_member_any_more(
    cluster: Cluster, services: ServiceCalls
) -> None:
    await cluster.join("n1")
    await services.applied(a_service())
    await services.run("web-a", 8080)
    await services.until_listed("web-a")

    await services.run("web-a", 8080, app="other")

    view = await services.get()
    assert (listed(view), view.member_count, list(view.excluded)) == ([], 0, [])


async def test_members_of_a_lost_node_are_withdrawn_and_come_back(
    cluster: Cluster, services: ServiceCalls
) -> None:
    node = await cluster.join("n1")
    await services.applied(a_service())
    await services.run("web-a", 8080)
    await services.until_listed("web-a")

    await node.stop_heartbeats()
    view = await services.until_listed()
    assert view.excluded[0].health == "lost"

    node.start_heartbeats()
    await services.until_listed("web-a")


async def test_the_members_of_a_set_are_endpoints_during_a_rollout(
    cluster: Cluster, services: ServiceCalls
) -> None:
    await cluster.join("n1")
    await cluster.join("n2")
    sets = SetCalls(cluster)
    spec = a_service()
    spec.members[0].CopyFrom(pb.ServiceSelector(set="web", weight=5))
    await services.applied(spec)
    of_set = a_set(replicas=2, order="in-place")
    of_set.template.container.ports.add(host_port=8080, container_port=80)
    await sets.applied(of_set)
    await sets.until_steady(members=2)
    await services.until_listed("web-0", "web-1")

    of_set.template.container.image = "web:2"
    await sets.applied(of_set)

    view = await services.until(
        lambda view: (
            len({one.revision_id for one in view.endpoints}) == 1 and len(view.endpoints) == 2
        )
    )
    assert {one.weight for one in view.endpoints} == {5}


async def test_applying_the_same_service_changes_nothing(
    cluster: Cluster, services: ServiceCalls
) -> None:
    first = await services.apply(a_service())
    again = await services.apply(a_service())
    changed = await services.apply(a_service(app="shop"))

    assert (first.outcome, again.outcome, changed.outcome) == ("created", "unchanged", "updated")
    kinds = [one.event.kind for one in cluster.app.events if "Service" in one.event.kind]
    assert kinds == ["ServiceCreated", "ServiceUpdated"]


async def test_an_invalid_service_is_refused_with_its_field(services: ServiceCalls) -> None:
    spec = a_service()
    spec.ports[0].protocol = "sctp"
    refused = await services.apply(spec)
    spec.ports[0].protocol = ""
    spec.members[0].weight = 1000

    assert "ports[0].protocol" in refused.reason
    assert "members[0].weight" in (await services.apply(spec)).reason


async def test_a_deleted_service_is_gone_and_its_members_run_on(
    cluster: Cluster, services: ServiceCalls
) -> None:
    await cluster.join("n1")
    await services.applied(a_service())
    await services.run("web-a", 8080)
    await services.until_listed("web-a")

    answer = await cluster.control.stub.DeleteService(
        pb.ServiceRequest(service_id="web"), timeout=10
    )

    assert answer.accepted, answer.reason
    with pytest.raises(grpc.aio.AioRpcError) as missing:
        await services.get()
    assert missing.value.code() is grpc.StatusCode.NOT_FOUND
    assert (await cluster.control.workload("web-a")).status == "Running"


async def test_a_list_has_endpoints_only_on_request(
    cluster: Cluster, services: ServiceCalls
) -> None:
    await cluster.join("n1")
    await services.applied(a_service())
    await services.run("web-a", 8080)
    await services.until_listed("web-a")

    stub = cluster.control.stub
    short = await stub.ListServices(pb.ListServicesRequest(), timeout=10)
    long = await stub.ListServices(pb.ListServicesRequest(endpoints=True), timeout=10)

    assert [(one.healthy_count, len(one.endpoints)) for one in short.services] == [(1, 0)]
    assert [(one.healthy_count, len(one.endpoints)) for one in long.services] == [(1, 1)]


async def test_an_idle_service_writes_nothing(cluster: Cluster, services: ServiceCalls) -> None:
    await cluster.join("n1")
    await services.applied(a_service())
    await services.run("web-a", 8080)
    await services.until_listed("web-a")
    written = cluster.store.transactions

    for _ in range(50):
        await services.get()

    assert cluster.store.transactions == written


async def test_a_restarted_scheduler_knows_services_and_endpoints(
    cluster: Cluster, services: ServiceCalls
) -> None:
    await cluster.join("n1")
    await services.applied(a_service())
    await services.run("web-a", 8080)
    await services.until_listed("web-a")

    await cluster.stop()
    await cluster.start()

    await services.until_listed("web-a")


async def test_a_snapshot_contains_services(cluster: Cluster, services: ServiceCalls) -> None:
    await our_node(cluster)
    await services.applied(a_service())
    await services.run("web-a", 8080)
    await services.until_listed("web-a")
    chunks = await save(cluster)
    await lose_the_store(cluster, and_memory=True)

    assert (await restore(cluster, chunks)).accepted

    assert (await services.get()).spec == a_service()
    await services.until_listed("web-a")
