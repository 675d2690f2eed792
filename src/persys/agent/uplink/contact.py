"""Tracks the contact with the leading scheduler, and which workloads must stop when it is lost.

The time without contact counts from the sending of the last heartbeat that the leader acknowledged. That time
is also stored in the journal, so that it keeps counting across a restart of the agent or a reboot.

When the scheduler reports that another host is registered as this node, workloads with data stop here: this
host is a clone or was replaced, and the other host runs the same workloads.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from persys.agent.journal.records import JournalChange
from persys.agent.journal.store import Journal
from persys.core.agent.next_step import STOPPED_ALONE
from persys.core.placement.requirements import has_data
from persys.errors import StoreUnavailableError
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.workload import Desired, Order

log = structlog.get_logger()

CHECK_SECONDS = 1.0
WRITE_SECONDS = 5.0
FIRST_SECONDS = 3.0
COMMIT_DEADLINE_SECONDS = 2.0  # heartbeats continue while the journal does not respond
SILENCE_MAX_SECONDS = 60.0
# If the wall clock was set back by more than this, the elapsed time is unknown.
STEP_BACK_MAX = timedelta(seconds=1)


class SchedulerContact:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        wake: Callable[[WorkloadId], None],
        stop_after_parts: int = 1,
    ) -> None:
        """`stop_after_parts`: workloads stop after this fraction of `stop_after`."""
        self._journal = journal
        self._parts = stop_after_parts
        self._clock = clock
        self._wake = wake
        self._acknowledged_at = _on_monotonic(journal.contact_at, clock)
        self._stored_at = self._acknowledged_at
        self._first = asyncio.Event()
        self._unbroken = float("inf")  # start of the current period without a long gap
        self._draining = False
        self.connected_to = ""  # address of the scheduler; "": not connected
        self._superseded = False

    def must_stop(self, order: Order) -> bool:
        """Whether the workload must stop: its stop_after has expired, or another host has its data."""
        if self._superseded and has_data(order.spec):
            return True
        return 0 < self._span(order) <= self._clock.monotonic() - self._acknowledged_at

    def set_superseded(self, superseded: bool) -> None:
        """Record whether another host is registered as this node. Stopped workloads wait for a new order."""
        if superseded and not self._superseded:
            log.error(
                "node.superseded",
                detail="another host is registered as this node; workloads with data stop",
            )
        self._superseded = superseded

    def unbroken_for(self) -> timedelta:
        """How long the scheduler has responded without a long gap since this process started."""
        now = self._clock.monotonic()
        if now - self._acknowledged_at > SILENCE_MAX_SECONDS:
            return timedelta()
        return timedelta(seconds=max(0.0, now - self._unbroken))

    def silent_for(self) -> timedelta | None:
        """The time since the last heartbeat that the leader acknowledged; None: there was none."""
        silence = self._clock.monotonic() - self._acknowledged_at
        return timedelta(seconds=silence) if silence < float("inf") else None

    async def is_established_for(self, order: Order) -> bool:
        """Whether the order can be accepted now: it may arrive just before the first heartbeat response."""
        if order.stop_after_seconds:
            try:
                async with asyncio.timeout(FIRST_SECONDS):
                    await self._first.wait()
            except TimeoutError:
                return False
        return True

    def is_draining(self) -> bool:
        """Whether the scheduler has set this node to draining: no new workloads."""
        return self._draining

    def set_draining(self, draining: bool) -> None:
        if draining != self._draining:
            log.info("node.draining" if draining else "node.accepting")
        self._draining = draining

    async def acknowledged(self, *, sent: float, sent_at: datetime) -> None:
        """Record that the leader acknowledged a heartbeat that was sent at this time."""
        if sent - self._acknowledged_at > SILENCE_MAX_SECONDS or self._unbroken > sent:
            self._unbroken = sent
        self._acknowledged_at = max(self._acknowledged_at, sent)
        self._first.set()
        shortest = min(self._spans(), default=0)
        if not shortest or sent < self._stored_at + min(WRITE_SECONDS, shortest / 10):
            return
        try:
            await self._journal.commit(
                JournalChange(contact_at=sent_at), deadline_seconds=COMMIT_DEADLINE_SECONDS
            )
        except StoreUnavailableError as err:
            log.warning("contact.not_kept", reason=str(err))  # retried with the next heartbeat
            return
        self._stored_at = sent

    async def run(self) -> None:
        """Wake the workloads whose stop_after has expired, until they are stopped."""
        while True:
            now = self._clock.monotonic()
            ends = [self._acknowledged_at + span for span in self._spans()]
            for workload_id, entry in self._journal.entries.items():
                if (
                    entry.order.desired is Desired.RUNNING
                    and entry.status.code != STOPPED_ALONE
                    and self.must_stop(entry.order)
                ):
                    self._wake(workload_id)
            next_end = min((end for end in ends if end > now), default=now + CHECK_SECONDS)
            await asyncio.sleep(min(next_end - now, CHECK_SECONDS))

    def _span(self, order: Order) -> float:
        return order.stop_after_seconds / self._parts

    def _spans(self) -> list[float]:
        return [
            self._span(entry.order)
            for entry in self._journal.entries.values()
            if entry.order.stop_after_seconds
        ]


def _on_monotonic(contact_at: datetime | None, clock: Clock) -> float:
    """A stored wall-clock time on the monotonic clock; -inf if the elapsed time is unknown."""
    if contact_at is None:
        return float("-inf")
    elapsed = clock.now() - contact_at
    if elapsed < -STEP_BACK_MAX:
        return float("-inf")
    return clock.monotonic() - max(elapsed, timedelta()).total_seconds()


def never_lost(_order: Order) -> bool:
    """For a standalone agent, which has no scheduler."""
    return False


async def always_established(_order: Order) -> bool:
    return True
