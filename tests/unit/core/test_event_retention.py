"""Which events are kept, per source."""

from collections import Counter
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from builders import NOON, after
from persys.core.event_retention import EventLimits, EventRetention, Repeats, source_of
from persys.model.event import Event, EventKind

ALL = 1_000_000


def an_event(node_id: str = "", *, at: datetime = NOON) -> Event:
    return Event(at, EventKind.NODE_REGISTERED_AGAIN, node_id=node_id)


def kept_after(
    sources: list[str], *, count_max: int = 10, per_event: int = 8
) -> tuple[EventRetention, dict[int, str]]:
    """Events of these sources in order, with `per_event` deletions for each."""
    retention = EventRetention(EventLimits(count_max))
    kept: dict[int, str] = {}
    for sequence, source in enumerate(sources, 1):
        retention.add(sequence, an_event(source))
        kept[sequence] = source
        for gone in retention.take_excess(NOON, limit=per_event, stored_until=ALL):
            del kept[gone]
    return retention, kept


def test_below_the_limit_all_events_are_kept() -> None:
    _, kept = kept_after(["n1"] * 10)

    assert list(kept) == list(range(1, 11))


def test_above_the_limit_the_oldest_event_of_the_only_source_is_deleted() -> None:
    _, kept = kept_after(["n1"] * 15)

    assert list(kept) == list(range(6, 16))


def test_a_source_with_many_events_does_not_shorten_the_history_of_others() -> None:
    _, kept = kept_after(["n2", "n3", "", "n2"] + ["n1"] * 500)

    assert Counter(kept.values()) == {"n1": 6, "n2": 2, "n3": 1, "": 1}


def test_sources_with_many_events_get_equal_shares() -> None:
    _, kept = kept_after(["n1"] * 100 + ["n2"] * 100)

    assert Counter(kept.values()) == {"n1": 5, "n2": 5}


def test_events_above_the_age_limit_are_deleted_for_every_source() -> None:
    retention = EventRetention(EventLimits(10, timedelta(seconds=60)))
    for sequence, second in enumerate((0, 10, 50, 55), 1):
        retention.add(sequence, an_event(at=after(second)))

    assert retention.take_excess(after(80), limit=ALL, stored_until=ALL) == [1, 2]


def test_the_newest_is_kept_however_old_it_is() -> None:
    retention = EventRetention(EventLimits(1, timedelta(seconds=60)))
    retention.add(1, an_event("n1"))
    retention.add(2, an_event("n2"))

    assert retention.take_excess(after(1_000_000), limit=ALL, stored_until=ALL) == [1]


def test_an_event_that_was_deleted_elsewhere_is_not_returned() -> None:
    retention = EventRetention(EventLimits(2))
    for sequence in (1, 2, 3, 4):
        retention.add(sequence, an_event("n1"))

    retention.discard(1)

    assert retention.take_excess(NOON, limit=ALL, stored_until=ALL) == [2]


@given(st.lists(st.sampled_from(["", "n1", "n2", "n3"]), max_size=60), st.integers(1, 12))
def test_the_limit_holds_and_no_source_loses_more_than_its_share(
    sources: list[str], count_max: int
) -> None:
    retention, kept = kept_after(sources, count_max=count_max)

    written, left = Counter(sources), Counter(kept.values())
    assert len(retention) == len(kept) == min(len(sources), count_max)
    share = count_max // max(1, len(written))
    assert all(left[source] >= min(count, share) - 1 for source, count in written.items())
    assert not sources or len(sources) in kept


@given(st.permutations(list(range(1, 9))))
def test_the_order_in_which_events_arrive_does_not_matter(order: list[int]) -> None:
    retention = EventRetention(EventLimits(3))

    for sequence in order:
        retention.add(sequence, an_event("n1"))

    assert sorted(retention.take_excess(NOON, limit=ALL, stored_until=ALL)) == [1, 2, 3, 4, 5]


def test_the_source_is_the_caller_or_the_node_or_the_scheduler() -> None:
    def source(identity: str = "", node_id: str = "") -> str:
        return source_of(Event(NOON, EventKind.NODE_READY, identity=identity, node_id=node_id))

    assert source("operator/ann via gateway/g1", "n1") == source("operator/ann") == "operator/ann"
    assert source(node_id="n1") == source("agent/n1", "n1") == source("agent/n1") == "agent/n1"
    assert source() == "scheduler"


def test_a_repeated_event_is_written_once_per_window_with_the_suppressed_count() -> None:
    repeats = Repeats(timedelta(seconds=60))

    taken = [repeats.take("n1", after(second)) for second in (0, 1, 59, 60, 61, 125)]

    assert taken == [0, None, None, 2, None, 1]
    assert repeats.take("n2", after(126)) == 0


def test_old_repetitions_are_released_from_memory() -> None:
    repeats = Repeats(timedelta(seconds=60))
    for number in range(1_000):
        repeats.take(f"n{number}", after(number))

    assert len(repeats) <= 121


def test_an_event_that_is_being_written_is_not_deleted_before_it_is_stored() -> None:
    retention = EventRetention(EventLimits(3))
    for sequence, source in enumerate(("n1", "n2", "n3", "n4", "n4"), 1):
        retention.add(sequence, an_event(source))

    assert retention.take_excess(NOON, limit=8, stored_until=3) == []
    assert retention.take_excess(NOON, limit=8, stored_until=5) == [4, 1]
