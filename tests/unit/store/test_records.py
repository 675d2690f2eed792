"""Records of a read: packed into blocks, they are the same records."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from persys.store.port import PackedRecords, Record, RecordBlock, Snapshot

rows = st.lists(
    st.tuples(st.text(max_size=12), st.binary(max_size=40), st.integers(1, 2**40)),
    max_size=30,
    unique_by=lambda row: row[0],
).map(sorted)


def packed(found: Sequence[tuple[str, bytes, int]], size: int) -> PackedRecords:
    blocks = [RecordBlock(found[at : at + size]) for at in range(0, len(found), size)]
    return PackedRecords(blocks)


@given(rows, st.integers(1, 7))
def test_packed_records_are_the_records_that_were_read(
    found: list[tuple[str, bytes, int]], size: int
) -> None:
    records = packed(found, size)

    assert records == tuple(records)
    assert list(records) == [Record(*row) for row in found]
    assert [records[index] for index in range(len(records))] == list(records)
    assert records[1:-1] == tuple(records)[1:-1]


@given(rows, st.text(max_size=12), st.integers(1, 7))
def test_a_snapshot_finds_a_record_by_its_key(
    found: list[tuple[str, bytes, int]], other: str, size: int
) -> None:
    snapshot = Snapshot(1, packed(found, size))
    by_key = {row[0]: Record(*row) for row in found}

    assert all(snapshot.get(key) == record for key, record in by_key.items())
    assert snapshot.get(other) == by_key.get(other)
