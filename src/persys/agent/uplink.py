"""The way to the scheduler: join, renew the lease, tell what changed.

One loop sends everything, so news is never overtaken by older news. Losing the scheduler stops nothing here:
the loop joins again, at the next address if there are several, and only the edges are logged.
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

from persys.agent.contact import COMMIT_DEADLINE_SECONDS, Contact
from persys.agent.journal import Burial
from persys.agent.journal_changes import Change
from persys.agent.link import (
    CALL_DEADLINE_SECONDS,
    Connect,
    Link,
    NoStreamError,
    SchedulerLostError,
)
from persys.agent.metrics import Metrics
from persys.agent.moving import Links
from persys.agent.news import News
from persys.agent.reports import Reports
from persys.agent.state import State
from persys.errors import StoreUnavailableError, UnavailableError
from persys.infra.address import address_towards, is_service
from persys.infra.clock import Clock
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Capabilities
from persys.model.workload import Desired
from persys.wire.control import capabilities_message, timestamp
from persys.wire.gen.control.v1 import control_pb2

log = structlog.get_logger()

HEARTBEAT_DEFAULT_SECONDS = 10.0
# A scheduler that asks for less or more than this is not obeyed: the node would flood it, or seem lost.
HEARTBEAT_MIN_SECONDS, HEARTBEAT_MAX_SECONDS = 1.0, 300.0
# News that comes close together travels together.
GATHER_SECONDS = 0.02
PAUSE_MIN_SECONDS = 0.25
PAUSE_MAX_SECONDS = 15.0
MOVE_AGAIN_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Membership:
    """As whom this node joins."""

    node_id: NodeId
    cluster_id: str
    version: str
    labels: dict[str, str]
    endpoint: str  # "": the address from which the scheduler is reached, and `port`
    port: int
    boot_id: str  # of the kernel that this process and all its runtimes run on; "": not certain


class Uplink:
    def __init__(
        self,
        membership: Membership,
        addresses: tuple[str, ...],
        capabilities: Callable[[], Capabilities],
        *,
        connect: Connect,
        random: Random,
        state: State,
        news: News,
        clock: Clock,
        metrics: Metrics,
        contact: Contact,
        reports: Reports,
        find_service: Callable[[str], Sequence[str]],
    ) -> None:
        """`find_service` asks DNS, and blocks; it is only used for names of services.

        What the node has is looked at with each full heartbeat, and when the news say so; when it changed,
        the node registers anew.
        """
        self._membership = membership
        self._addresses = addresses
        self._capabilities = capabilities
        self._told: Capabilities | None = None  # what the scheduler knows of
        self._connect = connect
        self._random = random
        self._session_id = f"{random.getrandbits(128):032x}"  # names this process
        self._instance_id = ""
        self._state = state
        self._news = news
        self._reports = reports
        self._clock = clock
        self._metrics = metrics
        self._contact = contact
        self._find_service = find_service
        self._pause = PAUSE_MIN_SECONDS
        self.connected_to = ""
        self._loss_logged = False
        self._stay_logged = False

    async def run(self) -> None:
        for named in cycle(self._addresses):
            try:
                addresses = await self._find(named)
            except SchedulerLostError as err:
                self._lost(named, str(err))
                await self._rest()
                continue
            for address in addresses:
                try:
                    await self._stay_with(address)
                except SchedulerLostError as err:
                    self._lost(address, str(err))
                await self._rest()

    async def _find(self, named: str) -> Sequence[str]:
        """The address itself, or those behind the name of a service. Never none."""
        if not is_service(named):
            return (named,)
        try:
            async with asyncio.timeout(CALL_DEADLINE_SECONDS):
                return await asyncio.to_thread(self._find_service, named)
        except (UnavailableError, TimeoutError) as err:
            raise SchedulerLostError(str(err) or f"DNS gave no answer about {named}") from err

    async def _rest(self) -> None:
        await asyncio.sleep(self._pause * self._random.uniform(0.5, 1.0))
        self._pause = min(2 * self._pause, PAUSE_MAX_SECONDS)

    async def _stay_with(self, address: str) -> None:
        """Raises SchedulerLostError, sooner or later."""
        for _ in range(2):
            with suppress(NoStreamError):  # the second time it is spoken to by plain calls
                async with Links(self._connect, address) as links:
                    interval = await self._join(links.newest, address)
                    await self._keep_in_touch(links, address, interval)

    async def _join(self, link: Link, address: str) -> float:
        """The seconds between heartbeats."""
        membership, has = self._membership, self._capabilities()
        request = control_pb2.RegisterNodeRequest(
            node_id=membership.node_id,
            capabilities=capabilities_message(has),
            labels=membership.labels,
            agent_version=membership.version,
            grpc_endpoint=membership.endpoint or await self._endpoint(address),
            cluster_id=membership.cluster_id,
            timestamp=timestamp(self._clock.now()),
            features=sorted(has.features),
            cluster_uid=self._state.cluster_uid,
            instance_id=self._instance_id or self._state.instance_id,
            session_id=self._session_id,
            boot_id=membership.boot_id,
            workload_count=self._workload_count(),
        )
        answer = await link.register(request)
        self._contact.supersede(not answer.accepted and answer.superseded)
        if not answer.accepted:
            raise SchedulerLostError(f"refused: {answer.reason}")
        self._told = has
        await self._keep_instance(answer.instance_id)
        if answer.cluster_uid and answer.cluster_uid != self._state.cluster_uid:
            await self._belong_to(answer.cluster_uid)
        return heartbeat_interval(answer.heartbeat_interval_seconds)

    def _workload_count(self) -> int:
        wanted = (entry.order.desired for entry in self._state.entries.values())
        return sum(desired is not Desired.DELETED for desired in wanted)

    async def _keep_instance(self, instance_id: str) -> None:
        """The id under which this process reports. The next process shows it when it registers."""
        self._instance_id = instance_id
        if not instance_id or instance_id == self._state.instance_id:
            return
        try:
            await self._commit(Change(instance_id=instance_id))
        except StoreUnavailableError as err:
            log.warning("instance.not_stored", reason=str(err))

    async def _belong_to(self, cluster_uid: str) -> None:
        log.info("cluster.joined", cluster_uid=cluster_uid, before=self._state.cluster_uid)
        try:
            await self._commit(Change(cluster_uid=cluster_uid))
        except StoreUnavailableError as err:
            log.warning("cluster.not_kept", reason=str(err))  # said again when it joins again

    async def _commit(self, change: Change) -> None:
        """Raises StoreUnavailableError, and soon: heartbeats go on while the journal hangs."""
        await self._state.commit(change, deadline_seconds=COMMIT_DEADLINE_SECONDS)

    async def _endpoint(self, address: str) -> str:
        try:
            async with asyncio.timeout(CALL_DEADLINE_SECONDS):
                own = await asyncio.to_thread(address_towards, address)
        except (OSError, ValueError, TimeoutError) as err:
            raise SchedulerLostError(f"{address} cannot be resolved: {err}") from err
        return f"{own}:{self._membership.port}"

    async def _keep_in_touch(self, links: Links, address: str, interval: float) -> None:
        """Raises SchedulerLostError, sooner or later."""
        due = move_due = self._clock.monotonic()
        while True:
            link = links.newest
            if link.is_old and move_due <= self._clock.monotonic():
                if await self._move(links, address):
                    due = self._clock.monotonic()
                else:
                    move_due = self._clock.monotonic() + MOVE_AGAIN_SECONDS
                continue
            wait = due - self._clock.monotonic()
            if wait <= 0:
                self._news.take()  # before the look: what changes during it is news again
                if self._capabilities() != self._told:
                    interval = await self._join(link, address)
                due = self._clock.monotonic() + interval
                await self._beat(link, self._state.entries, complete=True)
                self._found(address)
                await links.tidy()
            elif await self._news.wait(wait):
                await asyncio.sleep(GATHER_SECONDS)
                if self._news.node_changed:
                    due = self._clock.monotonic()
                    continue
                await self._beat(link, self._news.take(), complete=False)

    async def _move(self, links: Links, address: str) -> bool:
        """To a connection with the new certificate. False: there is none to be had, and the old one works."""
        old = links.newest
        old.leaving = True
        await self._beat(old, (), complete=False)  # says so, that nothing under way is cut off
        try:
            await links.move(partial(self._join, address=address))
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

    async def _beat(
        self,
        link: Link,
        about: Iterable[WorkloadId],
        *,
        complete: bool,
    ) -> None:
        gone = [burial for burial in self._state.burials.values() if not burial.told]
        request = self._reports.heartbeat(about, gone=gone, complete=complete)
        request.instance_id = self._instance_id
        sent, sent_at = self._clock.monotonic(), self._clock.now()
        answer = await link.heartbeat(request)
        if not answer.acknowledged:
            raise SchedulerLostError("a heartbeat was not acknowledged")
        if answer.leads:
            await self._contact.heard(sent=sent, sent_at=sent_at)
        self._contact.drain(answer.drain_node)
        # A workload that came back meanwhile is not buried any more, or was buried anew.
        told = [
            replace(burial, told=True)
            for burial in gone
            if self._state.burials.get(burial.workload_id) is burial
        ]
        if told:
            await self._note_told(told)

    async def _note_told(self, told: Sequence[Burial]) -> None:
        try:
            await self._commit(Change(burials=told))
        except StoreUnavailableError as err:
            log.warning("burials.kept", reason=str(err))  # they are told once more

    def _found(self, address: str) -> None:
        self._pause = PAUSE_MIN_SECONDS
        if self.connected_to != address:
            log.info("scheduler.connected", address=address)
            self._metrics.scheduler_connected.set(1)
        self.connected_to = address
        self._loss_logged = False

    def _lost(self, address: str, why: str) -> None:
        self.connected_to = ""
        self._metrics.scheduler_connected.set(0)
        if not self._loss_logged:
            log.warning("scheduler.lost", address=address, reason=why)
        self._loss_logged = True


def heartbeat_interval(said: int) -> float:
    """Seconds between heartbeats, from what the scheduler asked for; 0: it did not say."""
    return min(
        max(float(said or HEARTBEAT_DEFAULT_SECONDS), HEARTBEAT_MIN_SECONDS), HEARTBEAT_MAX_SECONDS
    )
