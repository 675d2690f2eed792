"""Garbage collection on this node, periodic or on request. Items are removed one by one and logged.

Before each removal the lock of the workload is taken and the journal is checked again: an order that needs
the item may have arrived. If a runtime does not respond, nothing is removed.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

import structlog
from msgspec.structs import replace

from persys.agent.journal.records import Image, JournalChange
from persys.agent.journal.store import Journal
from persys.agent.metrics import Metrics
from persys.agent.ports import GarbageSource
from persys.core.agent.garbage import (
    Ages,
    GarbageItem,
    ImageUse,
    Item,
    Kind,
    old_actions,
    stale_images,
    unowned_items,
    unowned_since,
)
from persys.errors import RuntimeUnavailableError, StoreUnavailableError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.spec import ContainerSpec
from persys.model.workload import Desired

log = structlog.get_logger()

INVENTORY_DEADLINE_SECONDS = 300.0
REMOVE_DEADLINE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Removal:
    """The outcome for one item. `problem`: why it was not removed."""

    item: Item
    why: str
    removed: bool = False
    problem: str = ""


class GarbageCollector:
    def __init__(
        self,
        journal: Journal,
        locks: KeyedLock[WorkloadId],
        clock: Clock,
        metrics: Metrics,
        *,
        source: GarbageSource,
        ages: Ages,
        interval: timedelta,
        dry_run: bool,
        connected_for: Callable[[], timedelta],
        supervisor: Supervisor,
        owned: OwnedWork,
    ) -> None:
        """`connected_for`: for how long the scheduler has responded without a long gap."""
        self._journal = journal
        self._locks = locks
        self._clock = clock
        self._metrics = metrics
        self._source = source
        self._ages = ages
        self._interval = interval
        self._dry_run = dry_run
        self._connected_for = connected_for
        self._supervisor = supervisor
        self._owned = owned
        self._seen_since: dict[str, datetime] = {}
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        while True:
            try:
                await self._collect(dry_run=self._dry_run)
            except (RuntimeUnavailableError, StoreUnavailableError) as err:
                log.info("garbage.not_looked_for", reason=str(err))
            await asyncio.sleep(self._interval.total_seconds())

    async def collect(self, *, dry_run: bool) -> list[Removal]:
        """On request. Raises RuntimeUnavailableError, StoreUnavailableError."""
        return await self._owned.finish(
            "garbage.collect", "", partial(self._collect, dry_run=dry_run)
        )

    async def _collect(self, *, dry_run: bool) -> list[Removal]:
        async with self._one_at_a_time:
            began = self._clock.monotonic()
            removals = await self._remove_items(dry_run=dry_run)
            removals += await self._remove_actions(dry_run=dry_run)
            self._metrics.garbage.collected(self._clock.monotonic() - began)
            return removals

    async def _remove_items(self, *, dry_run: bool) -> list[Removal]:
        now = self._clock.now()
        items = await self._inventory()
        known = {*self._journal.entries, *self._journal.unreadable}
        self._seen_since = unowned_since(items, self._seen_since, known=known, now=now)
        self._metrics.garbage.unclaimed.set(len(self._seen_since))
        candidates = unowned_items(
            items,
            self._seen_since,
            self._ages,
            deleted_here=[
                one.workload_id for one in self._journal.deletion_markers.values() if one.was_here
            ],
            connected_for=self._connected_for(),
            now=now,
        )
        if self._ages.image:
            candidates += stale_images(await self._images(now), self._ages, now=now)
        return [await self._contained(each, dry_run=dry_run) for each in candidates]

    async def _inventory(self) -> list[Item]:
        try:
            async with asyncio.timeout(INVENTORY_DEADLINE_SECONDS):
                return await self._source.inventory()
        except TimeoutError as err:
            raise RuntimeUnavailableError(
                f"no inventory from the runtimes within {INVENTORY_DEADLINE_SECONDS:g} s"
            ) from err

    async def _images(self, now: datetime) -> list[ImageUse]:
        wanted = {
            entry.order.spec.image
            for entry in self._journal.entries.values()
            if isinstance(entry.order.spec, ContainerSpec)
            and entry.order.desired is not Desired.DELETED
        }
        found = [
            replace(each, in_use=True) if each.item.name in wanted else each
            for each in await self._source.images(self._journal.images)
        ]
        present = {each.item.name for each in found}
        used = [
            replace(self._journal.images[each.item.name], used_at=now)
            for each in found
            if each.in_use
        ]
        removed_names = [name for name in self._journal.images if name not in present]
        if used or removed_names:
            await self._journal.commit(JournalChange(images=used, images_removed=removed_names))
        return found

    async def _contained(self, candidate: GarbageItem, *, dry_run: bool) -> Removal:
        """Remove one item. An unexpected error affects only this item."""
        errors: list[InternalError] = []
        key = f"{candidate.item.kind}/{candidate.item.name}"
        with self._supervisor.contain("garbage.remove", key, failed=errors.append):
            removal = await self._remove(candidate, dry_run=dry_run)
            self._supervisor.resolved("garbage.remove", key)
            return removal
        return Removal(candidate.item, candidate.why, problem=f"internal error: {errors[0].text}")

    async def _remove(self, candidate: GarbageItem, *, dry_run: bool) -> Removal:
        item = candidate.item
        if dry_run:
            _log_removal(candidate, dry_run=True)
            return Removal(item, candidate.why)
        async with self._locks.hold(item.workload_id):
            if item.workload_id in {*self._journal.entries, *self._journal.unreadable}:
                return Removal(
                    item, candidate.why, problem="a new order for this workload has arrived"
                )
            problem = await self._remove_in_time(item)
        self._metrics.garbage.removed(item.kind, removed=not problem)
        _log_removal(candidate, problem=problem)
        if not problem and item.kind is Kind.IMAGE:
            await self._journal.commit(JournalChange(images_removed=[item.name]))
        return Removal(item, candidate.why, removed=not problem, problem=problem)

    async def _remove_in_time(self, item: Item) -> str:
        try:
            async with asyncio.timeout(REMOVE_DEADLINE_SECONDS):
                return await self._source.remove(item)
        except TimeoutError:
            return f"the removal did not finish within {REMOVE_DEADLINE_SECONDS:g} s"

    async def _remove_actions(self, *, dry_run: bool) -> list[Removal]:
        old = old_actions(self._journal.actions.values(), self._ages, now=self._clock.now())
        if not old:
            return []
        candidate = GarbageItem(
            Item(Kind.ACTIONS, "", str(len(old))), "actions: older than the retention time"
        )
        if not dry_run:
            await self._journal.commit(JournalChange(actions_removed=old))
            self._metrics.garbage.removed(Kind.ACTIONS, removed=True, count=len(old))
        _log_removal(candidate, dry_run=dry_run)
        return [Removal(candidate.item, candidate.why, removed=not dry_run)]


def _log_removal(candidate: GarbageItem, *, dry_run: bool = False, problem: str = "") -> None:
    event = "garbage.found" if dry_run else "garbage.kept" if problem else "garbage.removed"
    log.info(
        event,
        kind=candidate.item.kind.value,
        name=candidate.item.name,
        workload_id=candidate.item.workload_id,
        why=candidate.why,
        problem=problem,
    )


class AllGarbageSources:
    """Implements agent.ports.GarbageSource."""

    def __init__(self, by_kind: Mapping[frozenset[Kind], GarbageSource]) -> None:
        self._by_kind = by_kind

    async def inventory(self) -> list[Item]:
        return [item for each in self._by_kind.values() for item in await each.inventory()]

    async def images(self, fetched: Mapping[str, Image]) -> list[ImageUse]:
        return [use for each in self._by_kind.values() for use in await each.images(fetched)]

    async def remove(self, item: Item) -> str:
        for kinds, each in self._by_kind.items():
            if item.kind in kinds:
                return await each.remove(item)
        return f"no runtime on this node can remove a {item.kind}"
