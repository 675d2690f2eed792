"""The DNS records of services: they follow the endpoints, and only changes are written."""

from builders import NOON
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities, Node, NodeStatus
from persys.model.service import ServiceId
from persys.model.status import Status
from persys.scheduler.discovery.dns_records import COMPARE_SECONDS
from persys.store import keys
from persys.store.port import Unit
from service_builders import a_member, a_service
from shells.scheduler.discovery.test_dns_records import RunningDiscovery, running
from shells.scheduler.harness import eventually

ENDPOINT = keys.name_key("web-0._http._tcp.web.services.persys.local")
STALE = keys.name_key("web-9._http._tcp.web.services.persys.local")
FOREIGN = keys.name_key("by-hand.web.services.persys.local")


def put_member(announced: RunningDiscovery, status: Status = Status.RUNNING) -> None:
    workload, assignment, workload_status = a_member(0, status=status)
    entry = announced.cluster.put_workload(workload)
    announced.cluster.put_assignment(workload.id, assignment)
    announced.cluster.put_state(entry, workload_status, None)


def with_service() -> RunningDiscovery:
    announced = RunningDiscovery()
    announced.put_node()
    announced.cluster.put_service(a_service())
    put_member(announced)
    return announced


async def test_the_record_of_an_endpoint_follows_its_member() -> None:
    async with running(with_service()) as announced:
        await announced.until(there=True, key=ENDPOINT)

        put_member(announced, Status.FAILED)
        await announced.until(there=False, key=ENDPOINT)

        put_member(announced)
        await announced.until(there=True, key=ENDPOINT)

        announced.cluster.drop_workload(WorkloadId("web-0"))
        await announced.until(there=False, key=ENDPOINT)


async def test_the_records_of_a_lost_node_are_withdrawn() -> None:
    async with running(with_service()) as announced:
        await announced.until(there=True, key=ENDPOINT)

        announced.put_node(NodeStatus.NOT_READY)

        await announced.until(there=False, key=ENDPOINT)


async def test_a_deleted_service_has_no_records() -> None:
    async with running(with_service()) as announced:
        await announced.until(there=True, key=ENDPOINT)

        announced.cluster.drop_service("web")

        await announced.until(there=False, key=ENDPOINT)


async def test_stale_records_of_a_former_leader_are_removed_and_foreign_ones_kept() -> None:
    first = with_service()
    async with running(first):
        await first.until(there=True, key=ENDPOINT)
    stored = await first.store.get(ENDPOINT)
    assert stored is not None
    second = with_service()
    await second.store.commit([Unit(puts={STALE: stored.value, FOREIGN: b'{"host":"10.0.0.2"}'})])

    async with running(second):
        await second.until(there=True, key=ENDPOINT)
        await second.until(there=False, key=STALE)

        assert FOREIGN in await second.written()


async def test_a_record_that_was_removed_by_others_is_written_again() -> None:
    async with running(with_service()) as announced:
        await announced.until(there=True, key=ENDPOINT)
        await announced.store.commit([Unit(deletes=[ENDPOINT])])

        announced.clock.ahead += COMPARE_SECONDS
        announced.discovery.wake()

        await announced.until(there=True, key=ENDPOINT)


async def test_a_change_that_moves_no_endpoint_writes_nothing() -> None:
    async with running(with_service()) as announced:
        await announced.until(there=True, key=ENDPOINT)
        transactions = announced.store.transactions

        for _ in range(5):
            announced.cluster.service_members.note(WorkloadId("web-0"))
            announced.discovery.service_changed(ServiceId("absent"))
        # Changes are handled in order: when this one is written, the others were handled.
        node = Node(NodeId("n2"), Capabilities(1, 1), "10.0.0.2:50051", NOON)
        announced.cluster.put_node(node, lease_until=0.0)
        name = keys.name_key("n2.default.agents.persys.cloud")
        await announced.until(there=True, key=name)

        assert announced.store.transactions == transactions + 1


async def test_another_port_replaces_the_record() -> None:
    async with running(with_service()) as announced:
        await announced.until(there=True, key=ENDPOINT)
        workload, _, _ = a_member(0)
        moved = a_member(0, metadata={"container.ports": "31000->80/tcp"}).workload_status
        announced.cluster.put_state(announced.cluster.workloads[workload.id], moved, None)

        async def is_moved() -> bool:
            stored = await announced.store.get(ENDPOINT)
            return stored is not None and b'"port":31000' in stored.value

        await eventually(is_moved, lambda: "the new port")
