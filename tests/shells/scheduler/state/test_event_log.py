"""The event log in memory: which events it holds, and what each watcher gets."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from persys.errors import OutOfRangeError, SettingsError, UnavailableError
from persys.model.event import Event, EventKind, NumberedEvent
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.event_log import BOOKMARK_EVERY, Bookmark, EventLog, Filter
from persys.scheduler.state.sync import load
from persys.store import keys
from persys.store.port import Record, Snapshot
from persys.wire.stored import records
from shells.scheduler.harness import fast_settings

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANY = Filter()


def an_event(number: int, *, workload: str = "web", at: datetime | None = None) -> NumberedEvent:
    moment = at or NOON + timedelta(seconds=number)
    return NumberedEvent(number, Event(moment, EventKind.WORKLOAD_RUNNING, workload_id=workload))


def events(first: int, last: int) -> list[NumberedEvent]:
    return [an_event(number) for number in range(first, last + 1)]


def a_log(*, last: int = 0, trimmed: int = 0) -> EventLog:
    """A log with events up to `last`, of which those up to `trimmed` are no longer stored."""
    log = EventLog()
    log.take(events(1, last), range(1, trimmed + 1))
    return log


def load_events(log: EventLog, snapshot: Snapshot) -> None:
    cluster = ClusterState()
    cluster.events = log
    load(cluster, snapshot, lease_until=0.0, now=NOON)


def a_snapshot(*stored: NumberedEvent) -> Snapshot:
    return Snapshot(
        1,
        tuple(
            Record(keys.event_key(event.at, number), records.encode(event), 1)
            for number, event in stored
        ),
    )


def numbers(found: list[NumberedEvent]) -> list[int]:
    return [numbered.sequence for numbered in found]


async def take(stream: AsyncIterator[NumberedEvent | Bookmark], count: int) -> list[int]:
    async with asyncio.timeout(5):
        return [(await anext(stream)).sequence for _ in range(count)]


def test_events_deleted_by_a_commit_leave_the_log() -> None:
    log = a_log(last=8, trimmed=5)

    assert numbers(log.listed(ANY)) == [6, 7, 8]
    assert (log.first_sequence, log.last_sequence) == (6, 8)


def test_an_event_between_others_is_deleted_alone() -> None:
    log = a_log(last=4)

    log.take([], [2])

    assert numbers(log.listed(ANY)) == [1, 3, 4]


async def test_a_watch_skips_a_deleted_event_between_others() -> None:
    log = a_log(last=4)
    log.take([], [2])

    assert await take(log.watch(ANY, after=1), 2) == [3, 4]


def test_a_limit_means_the_newest_of_those_that_match() -> None:
    log = a_log()
    log.take([an_event(1), an_event(2, workload="db"), an_event(3), an_event(4, workload="db")])

    assert numbers(log.listed(Filter(workload_id="web"), limit=1)) == [3]
    assert numbers(log.listed(ANY, after=2, limit=5)) == [3, 4]


def test_stored_events_are_ordered_by_sequence_not_by_time() -> None:
    log = a_log()

    load_events(log, a_snapshot(an_event(7, at=NOON - timedelta(hours=1)), an_event(6, at=NOON)))

    assert numbers(log.listed(ANY)) == [6, 7]


def test_an_event_kind_of_another_version_still_loads() -> None:
    log = a_log()
    unknown_record = Record(
        keys.event_key(NOON, 1),
        b'{"schema":1,"at":"2026-01-01T12:00:00Z","kind":"NodeSang"}',
        1,
    )

    load_events(log, Snapshot(1, (unknown_record,)))

    assert log.listed(ANY)[0].event.kind == "NodeSang"
    assert "NodeSang" not in list(EventKind)


async def test_a_watch_starts_with_stored_events_and_continues_with_new_ones() -> None:
    log = a_log(last=3)
    stream = log.watch(ANY, after=1)
    assert await take(stream, 2) == [2, 3]

    log.take(events(4, 5))

    assert await take(stream, 2) == [4, 5]


async def test_a_watch_without_a_start_shows_only_new_events() -> None:
    log = a_log(last=3)
    stream = log.watch(ANY)
    waiting = asyncio.ensure_future(take(stream, 1))
    await asyncio.sleep(0)

    log.take([an_event(4)])

    assert await waiting == [4]


async def test_a_number_that_a_failed_commit_used_up_does_not_stop_a_watch() -> None:
    log = a_log(last=3)
    stream = log.watch(ANY, after=0)

    log.take([an_event(6)])

    assert await take(stream, 4) == [1, 2, 3, 6]


async def test_a_watcher_that_is_too_slow_ends_and_another_continues() -> None:
    log = a_log(last=3)
    slow, quick = log.watch(ANY, after=0), log.watch(ANY, after=0)
    assert await take(slow, 3) == [1, 2, 3]
    assert await take(quick, 3) == [1, 2, 3]

    for number in range(4, 9):
        log.take([an_event(number)], [number - 3])
        assert await take(quick, 1) == [number]

    with pytest.raises(OutOfRangeError, match="the oldest is 6"):
        await anext(slow)


async def test_a_watch_of_trimmed_events_is_out_of_range() -> None:
    log = a_log(last=8, trimmed=5)

    with pytest.raises(OutOfRangeError):
        await anext(log.watch(ANY, after=4))

    assert await take(log.watch(ANY, after=5), 3) == [6, 7, 8]


async def test_a_watch_beyond_the_newest_event_is_out_of_range() -> None:
    with pytest.raises(OutOfRangeError, match="expected at most 3"):
        await anext(a_log(last=3).watch(ANY, after=9))


async def test_a_reload_neither_repeats_nor_skips_events_for_watchers() -> None:
    log = a_log(last=3)
    stream = log.watch(ANY, after=0)
    assert await take(stream, 3) == [1, 2, 3]

    load_events(log, a_snapshot(*events(1, 5)))

    assert await take(stream, 2) == [4, 5]


async def test_a_watch_that_matches_little_gets_a_bookmark_now_and_then() -> None:
    log = a_log()
    stream = log.watch(Filter(workload_id="db"), after=0, bookmarks=True)

    log.take(events(1, BOOKMARK_EVERY + 10))

    found = await anext(stream)
    assert isinstance(found, Bookmark)
    assert found.sequence >= BOOKMARK_EVERY


async def test_a_watch_ends_when_the_log_is_closed() -> None:
    log = a_log()
    waiting = asyncio.ensure_future(take(log.watch(ANY), 1))
    await asyncio.sleep(0)

    log.close()

    with pytest.raises(UnavailableError):
        await waiting


@pytest.mark.parametrize("changes", [{"events_max": 0}, {"events_max_age": timedelta()}], ids=str)
def test_an_event_limit_of_zero_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="SCHEDULER_EVENTS_MAX"):
        fast_settings(**changes)
