"""The session with the scheduler: registers the node, sends heartbeats, reports changes.

One loop sends all reports, so that a newer report is never followed by an older one. If the scheduler is
lost, workloads continue: the loop registers again, at the next address if there are several. Only changes of
the connection are logged.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from random import Random

import structlog
from msgspec.structs import replace

from persys.agent.journal.records import DeletionMarker, JournalChange
from persys.agent.journal.store import Journal
from persys.agent.metrics import Metrics
from persys.agent.uplink.contact import COMMIT_DEADLINE_SECONDS, SchedulerContact
from persys.agent.uplink.heartbeat import PendingReports, ReportBuilder
from persys.agent.uplink.link import (
    CALL_DEADLINE_SECONDS,
    Connect,
    Link,
    NoStreamError,
    SchedulerLostError,
)
from persys.agent.uplink.stream_link import SchedulerLinks
from persys.core.backoff import doubled_seconds
from persys.errors import StoreUnavailableError, UnavailableError
from persys.infra.clock import Clock
from persys.infra.net.address import is_service, local_address_towards
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities
from persys.model.workload import Desired
from persys.wire.control.messages import capabilities_message
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import timestamp

log = structlog.get_logger()

HEARTBEAT_DEFAULT_SECONDS = 10.0
# Limits for the interval that a scheduler requests: the node would flood it, or seem lost.
HEARTBEAT_MIN_SECONDS, HEARTBEAT_MAX_SECONDS = 1.0, 300.0
# The first change is reported at once. Changes within this time after a report are reported together.
GATHER_SECONDS = 0.02
PAUSE_MIN_SECONDS = 0.25
PAUSE_MAX_SECONDS = 15.0
MOVE_AGAIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class NodeRegistration:
    """The identity of this node in a registration."""

    node_id: NodeId
    cluster_id: str
    version: str
    labels: Callable[[], dict[str, str]]
    endpoint: str  # "": the source address towards the scheduler, with `port`
    port: int
    boot_id: str  # of the kernel that runs this process and its runtimes; "": unknown


class SchedulerSession:
    def __init__(
        self,
        registration: NodeRegistration,
        addresses: tuple[str, ...],
        capabilities: Callable[[], Capabilities],
        *,
        connect: Connect,
        random: Random,
        journal: Journal,
        pending_reports: PendingReports,
        clock: Clock,
        metrics: Metrics,
        contact: SchedulerContact,
        reports: ReportBuilder,
        find_service: Callable[[str], Sequence[str]],
    ) -> None:
        """`find_service` resolves SRV names, and blocks.

        The capabilities and labels are collected with each full heartbeat, and when a change of the node is
        reported. If they have changed, the node registers again.
        """
        self._registration = registration
        self._addresses = addresses
        self._capabilities = capabilities
        self._registered: tuple[Capabilities, dict[str, str]] | None = None  # as last registered
        self._connect = connect
        self._random = random
        self._session_id = f"{random.getrandbits(128):032x}"  # identifies this process
        self._instance_id = ""
        self._journal = journal
        self._pending_reports = pending_reports
        self._reports = reports
        self._clock = clock
        self._metrics = metrics
        self._contact = contact
        self._find_service = find_service
        self._attempts = 0
        self._loss_logged = False
        self._stay_logged = False

    async def run(self) -> None:
        for named in cycle(self._addresses):
            try:
                addresses = await self._find(named)
            except SchedulerLostError as err:
                self._lost(named, str(err))
                await self._back_off()
                continue
            for address in addresses:
                try:
                    await self._connect_to(address)
                except SchedulerLostError as err:
                    self._lost(address, str(err))
                await self._back_off()

    async def _find(self, named: str) -> Sequence[str]:
        """The address itself, or the addresses of an SRV name. Never empty."""
        if not is_service(named):
            return (named,)
        try:
            async with asyncio.timeout(CALL_DEADLINE_SECONDS):
                return await asyncio.to_thread(self._find_service, named)
        except (UnavailableError, TimeoutError) as err:
            raise SchedulerLostError(str(err) or f"no DNS response for {named}") from err

    async def _back_off(self) -> None:
        pause = doubled_seconds(PAUSE_MIN_SECONDS, self._attempts, longest=PAUSE_MAX_SECONDS)
        await asyncio.sleep(pause * self._random.uniform(0.5, 1.0))
        self._attempts += 1

    async def _connect_to(self, address: str) -> None:
        """Runs until SchedulerLostError."""
        for _ in range(2):
            with suppress(NoStreamError):  # the second attempt uses unary calls
                async with SchedulerLinks(self._connect, address) as links:
                    interval = await self._join(links.current, address)
                    await self._send_heartbeats(links, address, interval)

    async def _join(self, link: Link, address: str) -> float:
        """Register the node. Returns the heartbeat interval in seconds."""
        registration, has = self._registration, self._capabilities()
        labels = registration.labels()
        request = control_pb2.RegisterNodeRequest(
            node_id=registration.node_id,
            capabilities=capabilities_message(has),
            labels=labels,
            agent_version=registration.version,
            grpc_endpoint=registration.endpoint or await self._endpoint(address),
            cluster_id=registration.cluster_id,
            timestamp=timestamp(self._clock.now()),
            features=sorted(has.features),
            cluster_uid=self._journal.cluster_uid,
            instance_id=self._instance_id or self._journal.instance_id,
            session_id=self._session_id,
            boot_id=registration.boot_id,
            workload_count=self._workload_count(),
        )
        answer = await link.register(request)
        self._contact.set_superseded(not answer.accepted and answer.superseded)
        if not answer.accepted:
            raise SchedulerLostError(f"refused: {answer.reason}")
        self._registered = (has, labels)
        await self._keep_instance(answer.instance_id)
        if answer.cluster_uid and answer.cluster_uid != self._journal.cluster_uid:
            await self._join_cluster(answer.cluster_uid)
        return heartbeat_interval(answer.heartbeat_interval_seconds)

    def _workload_count(self) -> int:
        wanted = (entry.order.desired for entry in self._journal.entries.values())
        return sum(desired is not Desired.DELETED for desired in wanted)

    async def _keep_instance(self, instance_id: str) -> None:
        """Store the instance id. The next process sends it when it registers."""
        self._instance_id = instance_id
        if not instance_id or instance_id == self._journal.instance_id:
            return
        try:
            await self._commit(JournalChange(instance_id=instance_id))
        except StoreUnavailableError as err:
            log.warning("instance.not_stored", reason=str(err))

    async def _join_cluster(self, cluster_uid: str) -> None:
        log.info("cluster.joined", cluster_uid=cluster_uid, before=self._journal.cluster_uid)
        try:
            await self._commit(JournalChange(cluster_uid=cluster_uid))
        except StoreUnavailableError as err:
            log.warning("cluster.not_kept", reason=str(err))  # sent again with each registration

    async def _commit(self, change: JournalChange) -> None:
        """Commit with a short deadline, so that heartbeats continue while the journal is stalled."""
        await self._journal.commit(change, deadline_seconds=COMMIT_DEADLINE_SECONDS)

    async def _endpoint(self, address: str) -> str:
        try:
            async with asyncio.timeout(CALL_DEADLINE_SECONDS):
                own = await asyncio.to_thread(local_address_towards, address)
        except (OSError, ValueError, TimeoutError) as err:
            raise SchedulerLostError(f"cannot resolve {address}: {err}") from err
        return f"{own}:{self._registration.port}"

    async def _send_heartbeats(self, links: SchedulerLinks, address: str, interval: float) -> None:
        """Runs until SchedulerLostError."""
        due = move_due = reported_at = self._clock.monotonic()
        while True:
            link = links.current
            if link.is_stale and move_due <= self._clock.monotonic():
                if await self._move(links, address):
                    due = self._clock.monotonic()
                else:
                    move_due = self._clock.monotonic() + MOVE_AGAIN_SECONDS
                continue
            wait = due - self._clock.monotonic()
            if wait <= 0:
                self._pending_reports.take()  # before the report is built: later changes are reported again
                if (self._capabilities(), self._registration.labels()) != self._registered:
                    interval = await self._join(link, address)
                due = self._clock.monotonic() + interval
                await self._send_heartbeat(link, self._journal.entries, complete=True)
                self._found(address)
                await links.close_idle()
            elif await self._pending_reports.wait(wait):
                since = self._clock.monotonic() - reported_at
                await asyncio.sleep(max(0.0, GATHER_SECONDS - since))
                if self._pending_reports.node_changed:
                    due = self._clock.monotonic()
                    continue
                reported_at = self._clock.monotonic()
                await self._send_heartbeat(link, self._pending_reports.take(), complete=False)

    async def _move(self, links: SchedulerLinks, address: str) -> bool:
        """Switch to a connection with the new certificate. False: not possible, the old one stays in use."""
        old = links.current
        old.leaving = True
        await self._send_heartbeat(
            old, (), complete=False
        )  # announce it, so that open calls are not cut off
        try:
            await links.switch(partial(self._join, address=address))
        except SchedulerLostError as err:
            old.leaving = False
            if old.over:
                raise
            if not self._stay_logged:
                log.warning("scheduler.not_moved", address=address, reason=str(err))
            self._stay_logged = True
            return False
        self._stay_logged = False
        log.info("scheduler.moved", address=address)
        return True

    async def _send_heartbeat(
        self,
        link: Link,
        workload_ids: Iterable[WorkloadId],
        *,
        complete: bool,
    ) -> None:
        deleted = [
            marker for marker in self._journal.deletion_markers.values() if not marker.acknowledged
        ]
        request = self._reports.heartbeat(workload_ids, deleted=deleted, complete=complete)
        request.instance_id = self._instance_id
        sent, sent_at = self._clock.monotonic(), self._clock.now()
        answer = await link.heartbeat(request)
        if not answer.acknowledged:
            raise SchedulerLostError("the scheduler did not acknowledge a heartbeat")
        if answer.leads:
            await self._contact.acknowledged(sent=sent, sent_at=sent_at)
        self._contact.set_draining(answer.drain_node)
        # A workload that was applied again meanwhile has no deletion marker, or a new one.
        acknowledged = [
            replace(marker, acknowledged=True)
            for marker in deleted
            if self._journal.deletion_markers.get(marker.workload_id) is marker
        ]
        if acknowledged:
            await self._record_acknowledged(acknowledged)

    async def _record_acknowledged(self, acknowledged: Sequence[DeletionMarker]) -> None:
        try:
            await self._commit(JournalChange(deletion_markers=acknowledged))
        except StoreUnavailableError as err:
            log.warning("burials.kept", reason=str(err))  # reported again

    def _found(self, address: str) -> None:
        self._attempts = 0
        if self._contact.connected_to != address:
            log.info("scheduler.connected", address=address)
            self._metrics.scheduler_connected.set(1)
        self._contact.connected_to = address
        self._loss_logged = False

    def _lost(self, address: str, why: str) -> None:
        self._contact.connected_to = ""
        self._metrics.scheduler_connected.set(0)
        if not self._loss_logged:
            log.warning("scheduler.lost", address=address, reason=why)
        self._loss_logged = True


def heartbeat_interval(requested: int) -> float:
    """Seconds between heartbeats, from the interval that the scheduler requested; 0: none requested."""
    return min(
        max(float(requested or HEARTBEAT_DEFAULT_SECONDS), HEARTBEAT_MIN_SECONDS),
        HEARTBEAT_MAX_SECONDS,
    )
