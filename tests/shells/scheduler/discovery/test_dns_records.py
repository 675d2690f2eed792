"""The DNS names that are published: they follow the nodes, are restored, and leave other names alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from persys.core.dns_names import Zone
from persys.errors import UnavailableError
from persys.infra.aio.supervisor import Supervisor
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId
from persys.model.node import Capabilities, Node, NodeStatus
from persys.model.service import ServiceId
from persys.scheduler.app import Scheduler
from persys.scheduler.discovery.dns_records import COMPARE_SECONDS, Discovery, NameCheck
from persys.scheduler.discovery.service_records import ServiceRecords
from persys.scheduler.services.endpoint_table import EndpointTable
from persys.scheduler.signals import Signal
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys
from persys.store.memory import MemoryStore
from persys.store.port import Unit
from shells.scheduler.harness import eventually, fast_settings
from shells.scheduler.stores import FaultyStore

ZONE = Zone("persys.local", "agents.persys.cloud", "default", "uid")
N1 = keys.name_key("n1.default.agents.persys.cloud")
OWN = keys.name_key("10-0-0-9-8085.persys-scheduler.persys.local")
BY_HAND = keys.name_key("by-hand.default.agents.persys.cloud")


class FastClock(SystemClock):
    """Its monotonic time can be advanced."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0
        true = self.monotonic
        self.monotonic = lambda: true() + self.ahead


class RunningDiscovery:
    """A running discovery, its cluster and its written names."""

    def __init__(self, *, fence: tuple[str, int] | None = None) -> None:
        self.store = FaultyStore(MemoryStore(SystemClock().monotonic))
        self.clock = FastClock()
        self.endpoints_changed: Signal[ServiceId] = Signal()
        self.cluster = ClusterState(
            node_changed=self._node_changed, service_changed=lambda change: self.table.note(change)
        )
        self.table = EndpointTable(self.cluster, self.endpoints_changed)
        self.discovery = Discovery(
            self.cluster,
            self.store,
            self.clock,
            services=ServiceRecords(self.cluster, self.table, self.clock),
            supervisor=Supervisor("scheduler", self.clock, CollectorRegistry()),
            zone=lambda: ZONE,
            address=lambda: "10.0.0.9",
            port=8085,
            fence=lambda: fence,
            leads=lambda: True,
        )
        self.endpoints_changed.connect(self.discovery.service_changed)

    def _node_changed(self, node_id: NodeId) -> None:
        self.discovery.node_changed(node_id)
        self.table.node_changed(node_id)

    def put_node(self, status: NodeStatus = NodeStatus.READY) -> None:
        endpoint, now = "10.0.0.1:50051", datetime.now(UTC)
        node = Node(NodeId("n1"), Capabilities(1, 1), endpoint, now, status=status)
        self.cluster.put_node(node, lease_until=0.0)

    async def put(self, key: str) -> None:
        await self.store.commit([Unit(puts={key: b'{"host":"10.0.0.2"}'})])

    async def written(self) -> set[str]:
        return {record.key for record in (await self.store.store.read(keys.NAMES)).records}

    async def until(self, *, there: bool, key: str = N1) -> None:
        async def holds_now() -> bool:
            return (key in await self.written()) is there

        await eventually(holds_now, lambda: f"{key} to be {'there' if there else 'gone'}")


@asynccontextmanager
async def running(announced: RunningDiscovery) -> AsyncIterator[RunningDiscovery]:
    task = asyncio.get_running_loop().create_task(announced.discovery.run())
    try:
        yield announced
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_name_follows_its_node() -> None:
    async with running(RunningDiscovery()) as announced:
        announced.put_node()
        await announced.until(there=True)

        announced.put_node(NodeStatus.NOT_READY)
        await announced.until(there=False)

        announced.put_node()
        await announced.until(there=True)

        announced.cluster.drop_node(NodeId("n1"))
        await announced.until(there=False)


async def test_a_removed_dns_record_is_recreated_and_foreign_ones_are_kept() -> None:
    async with running(RunningDiscovery()) as announced:
        announced.put_node()
        await announced.until(there=True)

        await announced.store.commit([Unit(deletes=[N1])])
        await announced.put(BY_HAND)
        announced.clock.ahead += COMPARE_SECONDS
        announced.discovery.node_changed(NodeId("other"))

        await announced.until(there=True)
        assert BY_HAND in await announced.written()


async def test_a_comparison_without_differences_writes_nothing() -> None:
    async with running(RunningDiscovery()) as announced:
        announced.put_node()
        await announced.until(there=True, key=OWN)
        await announced.until(there=True)
        commits, written = announced.store.commits, announced.store.transactions

        announced.clock.ahead += COMPARE_SECONDS
        announced.discovery.node_changed(NodeId("n1"))

        async def compared() -> bool:
            return announced.store.commits > commits

        await eventually(compared, lambda: "a comparison")
        assert announced.store.transactions == written


async def test_a_scheduler_that_stops_withdraws_its_own_names_and_keeps_those_of_agents() -> None:
    announced = RunningDiscovery()
    announced.put_node()

    async with running(announced):
        await announced.until(there=True, key=OWN)

    assert await announced.written() == {N1}


async def test_a_scheduler_that_lost_leadership_writes_no_names_of_agents() -> None:
    announced = RunningDiscovery(fence=(keys.LEADER, 7))
    announced.put_node()

    with capture_logs() as logs:
        async with running(announced):

            async def warned() -> bool:
                return bool(logs)

            await eventually(warned, lambda: "a warning")

    assert [line["event"] for line in logs] == ["discovery.unavailable"]
    assert await announced.written() == set()


async def test_names_in_the_store_of_the_cluster_are_neither_counted_nor_removed() -> None:
    announced, empty = RunningDiscovery(), RunningDiscovery()
    await announced.put(BY_HAND)

    schedulers = [
        Scheduler(fast_settings(), one.store, one.clock, name="me") for one in (announced, empty)
    ]
    for scheduler in schedulers:
        await scheduler.take_over()

    with_names, without = (one.store_watch.record_count() for one in schedulers)
    assert with_names == without
    assert await announced.written() == {BY_HAND}


class Dns:
    """A DNS server as the check sees it."""

    def __init__(self) -> None:
        self.answer: list[str] | None = ["10.0.0.8:8085", "10.0.0.9:8085"]  # None: it is down

    def look_up(self, service: str) -> list[str]:
        if self.answer is None:
            raise UnavailableError(f"cannot resolve the SRV records of {service}: no answer")
        return self.answer


def a_check(dns: Dns) -> NameCheck:
    return NameCheck(
        service="_persys-scheduler._tcp.persys.local",
        endpoint=lambda: "10.0.0.9:8085",
        lookup=dns.look_up,
        supervisor=Supervisor("scheduler", SystemClock(), CollectorRegistry()),
    )


async def test_a_dns_server_that_is_down_is_one_warning_until_it_is_back() -> None:
    dns = Dns()
    check = a_check(dns)

    with capture_logs() as logs:
        await check.check()
        dns.answer = None
        for _ in range(5):
            await check.check()
        dns.answer = ["10.0.0.9:8085"]
        for _ in range(3):
            await check.check()

    warning, over = logs
    assert (warning["event"], warning["log_level"]) == ("discovery.not_resolved", "warning")
    assert warning["service"] == "_persys-scheduler._tcp.persys.local"
    assert "no answer" in warning["reason"]
    assert over["event"] == "discovery.resolved"


async def test_an_answer_without_this_scheduler_is_a_warning_too() -> None:
    dns = Dns()
    dns.answer = ["10.0.0.8:8085"]
    check = a_check(dns)

    with capture_logs() as logs:
        for _ in range(3):
            await check.check()

    (warning,) = logs
    assert warning["reason"] == "expected 10.0.0.9:8085 among the resolved endpoints: 10.0.0.8:8085"


async def test_one_failed_query_is_not_reported() -> None:
    dns = Dns()
    check = a_check(dns)

    with capture_logs() as logs:
        for response in (None, ["10.0.0.9:8085"], None, ["10.0.0.9:8085"]):
            dns.answer = response
            await check.check()

    assert logs == []
