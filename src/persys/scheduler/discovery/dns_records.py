"""Publishes the scheduler, its nodes and services in DNS: writes records into the etcd that CoreDNS reads.

A change of a node or of an endpoint is written at once; a periodic comparison corrects changes by others.
Nothing waits for this part: while that etcd is unavailable there is one warning, and everything is compared
when it is back. The scheduler's own names expire with its lease; those of agents and services do not.

A query for the scheduler's own service checks that DNS serves what was written. If CoreDNS is down or reads
another etcd, there is one warning.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import structlog

from persys.core.dns_names import (
    Announcement,
    Difference,
    Zone,
    agent_name,
    announce_agent,
    announce_agents,
    announce_scheduler,
    compare,
)
from persys.core.services.names import services_domain
from persys.errors import PersysError, RefusedError, UnavailableError
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.clock import Clock
from persys.model.ids import NodeId
from persys.model.node import Node
from persys.model.service import ServiceId
from persys.scheduler.discovery.service_records import ServiceRecords
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys
from persys.store.port import LeaseId, Record, Store, Unit
from persys.wire.stored import records

log = structlog.get_logger()

LEASE_SECONDS = 15
KEEP_SECONDS = 5.0
RETRY_SECONDS = 1.0  # after a failure: clients must not be sent to a member that has stopped
COMPARE_SECONDS = 60.0
WITHDRAW_SECONDS = 2.0
CHECK_SECONDS = 15.0
CHECK_AGAIN_SECONDS = 2.0  # after a failure
QUERY_SECONDS = 5.0
ENDPOINTS_SHOWN_MAX = 10
FAILURES_MIN = 2  # in a row, before they are reported: a resolver may cache an old answer briefly

Lookup = Callable[[str], list[str]]  # host:port of a service; raises UnavailableError


class Discovery:
    def __init__(
        self,
        cluster: ClusterState,
        store: Store,
        clock: Clock,
        *,
        services: ServiceRecords,
        supervisor: Supervisor,
        zone: Callable[[], Zone],
        address: Callable[[], str],
        port: int,
        fence: Callable[[], tuple[str, int] | None],
        leads: Callable[[], bool],
    ) -> None:
        """`store` is closed by this part. `fence` is None if the leader key is in another etcd.

        Only the leader publishes agents and services.
        """
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._services = services
        self._supervisor = supervisor
        self._zone = zone
        self._address = address
        self._port = port
        self._fence = fence
        self._leads = leads
        self._led = False
        self._changed: set[NodeId] = set()
        self._changed_services: set[ServiceId] = set()
        self._wakeup = asyncio.Event()
        self._lease: LeaseId | None = None
        self._keep_at = self._compare_at = 0.0
        self._is_unavailable = False

    def node_changed(self, node_id: NodeId) -> None:
        self._changed.add(node_id)
        self._wakeup.set()

    def service_changed(self, service_id: ServiceId) -> None:
        """Its endpoints may have changed."""
        self._changed_services.add(service_id)
        self._wakeup.set()

    def wake(self) -> None:
        """This scheduler leads now."""
        self._wakeup.set()

    async def run(self) -> None:
        try:
            while True:
                try:
                    with self._supervisor.contain("discovery", "", failed=self._note_failure):
                        await self._run_due_work()
                        self._note_recovery()
                except (PersysError, OSError) as err:
                    self._note_outage(str(err))
                if self._is_unavailable:
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    await self._wait()
        finally:
            await self._withdraw()

    async def _run_due_work(self) -> None:
        now = self._clock.monotonic()
        self._wakeup.clear()
        changed, self._changed = self._changed, set()
        services, self._changed_services = self._changed_services, set()
        if self._leads() and not self._led:
            self._led, self._compare_at = True, 0.0
        if now >= self._compare_at:
            if self._led:
                await self._compare_all()
            await self._announce_self()
            self._compare_at, self._keep_at = now + COMPARE_SECONDS, now + KEEP_SECONDS
        elif (changed or services) and self._led:
            await self._write_changed(changed, services)
        if now >= self._keep_at:
            await self._keep_announced()
            self._keep_at = now + KEEP_SECONDS

    async def _wait(self) -> None:
        span = min(self._keep_at, self._compare_at) - self._clock.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(span, 0.0)):
                await self._wakeup.wait()

    async def _compare_all(self) -> None:
        zone = self._zone()
        snapshot = await self._store.read(f"{keys.name_key(zone.of_shard)}/")
        nodes = [member.node for member in self._cluster.nodes.values()]
        # In a thread, because thousands take a while. A node that changes meanwhile is written afterwards.
        difference = await asyncio.to_thread(_difference, nodes, snapshot.records, zone)
        await self._write(difference.puts, difference.withdrawn)
        wanted = await self._services.all(zone)
        snapshot = await self._store.read(f"{keys.name_key(services_domain(zone))}/")
        difference = await asyncio.to_thread(_compared, wanted, snapshot.records, zone)
        await self._write(difference.puts, difference.withdrawn)

    async def _write_changed(self, node_ids: set[NodeId], services: set[ServiceId]) -> None:
        zone = self._zone()
        puts: dict[str, Announcement] = {}
        withdrawn: list[str] = []
        for node_id in node_ids:
            member = self._cluster.nodes.get(node_id)
            record = announce_agent(member.node, zone) if member is not None else None
            if record is None:
                withdrawn.append(agent_name(node_id, zone))
            else:
                puts[agent_name(node_id, zone)] = record
        of_services = self._services.changed(services, zone)
        await self._write(puts | of_services.puts, withdrawn + of_services.withdrawn)

    async def _write(self, puts: Mapping[str, Announcement], withdrawn: list[str]) -> None:
        units = [Unit(puts=_stored(name, record)) for name, record in puts.items()]
        units += [Unit(deletes=[keys.name_key(name)]) for name in withdrawn]
        if units:
            await self._store.commit(units, fence=self._fence())
            log.debug("discovery.written", announced=len(puts), withdrawn=len(withdrawn))

    async def _announce_self(self) -> None:
        record = announce_scheduler(self._address(), self._port, self._zone())
        lease, self._lease = self._lease, None
        if lease is None or not await self._store.keep_lease(lease):
            lease = await self._store.grant_lease(LEASE_SECONDS)
        else:  # already written under this lease, unless it was changed by others
            record = {
                name: one for name, one in record.items() if not await self._is_stored(name, one)
            }
        units = [Unit(puts=_stored(name, one), lease=lease) for name, one in record.items()]
        await self._store.commit(units)
        self._lease = lease

    async def _is_stored(self, name: str, record: Announcement) -> bool:
        stored = await self._store.get(keys.name_key(name))
        return stored is not None and _read(stored.value) == record

    async def _keep_announced(self) -> None:
        if self._lease is None or not await self._store.keep_lease(self._lease):
            await self._announce_self()

    async def _withdraw(self) -> None:
        """Remove the own names: clients must not be sent to a stopped scheduler."""
        with suppress(PersysError, TimeoutError):
            async with asyncio.timeout(WITHDRAW_SECONDS):
                if self._lease is not None:
                    await self._store.revoke_lease(self._lease)
                await self._store.close()

    def _note_failure(self, error: InternalError) -> None:
        self._note_outage(error.text)

    def _note_outage(self, why: str) -> None:
        """It is unknown what was written: everything is compared next time."""
        self._compare_at = 0.0
        if not self._is_unavailable:
            log.warning("discovery.unavailable", reason=why)
        self._is_unavailable = True

    def _note_recovery(self) -> None:
        if self._is_unavailable:
            log.info("discovery.available")
        self._is_unavailable = False


class NameCheck:
    """Resolves this scheduler in DNS, as agents and clients do."""

    def __init__(
        self, *, service: str, endpoint: Callable[[], str], lookup: Lookup, supervisor: Supervisor
    ) -> None:
        """`lookup` blocks until its own deadline, so it runs on a thread."""
        self._service = service
        self._endpoint = endpoint
        self._lookup = lookup
        self._supervisor = supervisor
        self._failures = 0

    async def run(self) -> None:
        await asyncio.sleep(CHECK_AGAIN_SECONDS)  # until the names are written
        while True:
            with self._supervisor.contain("name_check", "", failed=lambda _error: None):
                await self.check()
            await asyncio.sleep(CHECK_AGAIN_SECONDS if self._failures else CHECK_SECONDS)

    async def check(self) -> None:
        try:
            found = await asyncio.to_thread(self._lookup, self._service)
        except UnavailableError as err:
            self._note_failure(str(err))
            return
        if (own := self._endpoint()) in found:
            self._note_success()
        else:
            shown = ", ".join(found[:ENDPOINTS_SHOWN_MAX])
            self._note_failure(f"expected {own} among the resolved endpoints: {shown}")

    def _note_failure(self, why: str) -> None:
        self._failures += 1
        if self._failures == FAILURES_MIN:
            log.warning("discovery.not_resolved", service=self._service, reason=why)

    def _note_success(self) -> None:
        if self._failures >= FAILURES_MIN:
            log.info("discovery.resolved", service=self._service)
        self._failures = 0


def _difference(nodes: Iterable[Node], stored: Iterable[Record], zone: Zone) -> Difference:
    return _compared(announce_agents(nodes, zone), stored, zone)


def _compared(
    wanted: Mapping[str, Announcement], stored: Iterable[Record], zone: Zone
) -> Difference:
    found = {keys.name_of(one.key): _read(one.value) for one in stored}
    return compare(wanted, found, cluster_uid=zone.cluster_uid)


def _stored(name: str, record: Announcement) -> dict[str, bytes]:
    return {keys.name_key(name): records.encode(record)}


def _read(value: bytes) -> Announcement | None:
    """None: it was not written by a scheduler."""
    try:
        return records.decode(value, Announcement)
    except RefusedError:
        return None
