"""One counter for all epochs: reserved in the store before use, never repeated, never raised by reports."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from builders import NOON
from persys.core.epochs import BLOCK, EPOCH_MAX, Epochs, credible, restart_at
from persys.model.placement import EpochCounter


def next_of(epochs: Epochs, stored: list[EpochCounter]) -> int:
    """As a leader uses one: reserved in the store first."""
    epoch = epochs.next
    if not epochs.covers(epoch):
        counter = epochs.after_next_block(epoch, new_key="")
        stored.append(counter)
        epochs.reserve(counter)
    epochs.use(epoch)
    return epoch


def test_the_first_epoch_is_1_and_one_reservation_covers_a_block() -> None:
    epochs, stored = Epochs(), list[EpochCounter]()

    taken = [next_of(epochs, stored) for _ in range(BLOCK)]

    assert taken == list(range(1, BLOCK + 1))
    assert stored == [EpochCounter(BLOCK)]


@given(st.lists(st.tuples(st.integers(1, 2 * BLOCK), st.booleans()), max_size=8))
def test_no_leader_repeats_an_epoch_of_another(lives: list[tuple[int, bool]]) -> None:
    """Each leader uses some. A commit whose response is lost may or may not be stored."""
    record, used = EpochCounter(0), 0
    for count, answer_lost in lives:
        epochs = Epochs()
        epochs.skip_reserved(record)
        if answer_lost:
            record = epochs.after_next_block(epochs.next, new_key="")  # stored, and not known to be
            epochs.skip_reserved(record)
        stored = [record]
        for _ in range(count % 7 + 1):
            epoch = next_of(epochs, stored)
            assert used < epoch <= stored[-1].reserved_until
            used = epoch
        record = stored[-1]


@given(
    st.lists(st.tuples(st.integers(1, 7), st.integers(10, 10**6), st.integers(0, 10)), max_size=8)
)
def test_no_leader_repeats_an_epoch_after_a_rollback_of_the_record(
    lives: list[tuple[int, int, int]],
) -> None:
    """Each leader uses some. After the time of one block any earlier record may be restored."""
    records, used, now = [EpochCounter(0)], 0, NOON
    for count, apart_ms, restored in lives:
        now += timedelta(milliseconds=apart_ms)
        epochs = Epochs()
        epochs.skip_reserved(records[restored % len(records)])
        epochs.skip(now=now)
        for _ in range(count):
            epoch = next_of(epochs, records)
            assert epoch > used
            used = epoch


@given(st.datetimes())
def test_no_clock_exhausts_the_counter(clock: datetime) -> None:
    epochs = Epochs()
    epochs.skip(now=clock.replace(tzinfo=UTC))

    assert 0 < epochs.next <= EPOCH_MAX // 2


def test_a_clock_that_is_behind_does_not_lower_the_counter() -> None:
    epochs = Epochs()
    epochs.skip_reserved(EpochCounter(4 * 10**15))
    epochs.skip(now=NOON)
    epochs.skip_reserved(EpochCounter(BLOCK))

    assert epochs.next == 4 * 10**15 + 1


@given(st.integers(0, 10**9), st.integers(0, 10**15))
def test_two_restores_of_one_snapshot_continue_with_different_epochs(
    apart_ms: int, known: int
) -> None:
    first = restart_at([known], now=NOON)
    second = restart_at([first], now=NOON + timedelta(milliseconds=apart_ms))

    assert second >= first >= known
    assert first <= EPOCH_MAX


def test_a_reported_epoch_counts_only_if_it_was_assigned() -> None:
    assert credible(5, 10) == 5
    assert credible(11, 10) == 0
    assert credible(2**63 - 1, 10) == 0
    assert credible(-1, 10) == 0
