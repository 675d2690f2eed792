"""Snapshot files: complete, or refused with the problem."""

import gzip
import random
from datetime import UTC, datetime

import pytest

from persys.errors import InvalidError
from persys.wire.stored import snapshot
from persys.wire.stored.snapshot import CHUNK_BYTES_MAX, FORMAT, Header

TAKEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RECORDS = [(f"/workloads/w{number}", b'{"schema":1,"id":"w%d"}' % number) for number in range(50)]


def a_header(form: int = FORMAT) -> Header:
    return Header(form, "uid", TAKEN, 7, "store", snapshot.count(key for key, _ in RECORDS))


def a_file(records: list[tuple[str, bytes]] = RECORDS, form: int = FORMAT) -> bytes:
    return b"".join(snapshot.write(a_header(form), records))


def test_a_snapshot_reads_back_the_same() -> None:
    contents = snapshot.read([a_file()])

    assert contents.header == a_header()
    assert contents.records == RECORDS
    assert contents.header.counts == {"workloads": 50}


def test_a_large_snapshot_is_written_in_small_chunks() -> None:
    noise = random.Random(1)
    many = [(f"/workloads/w{n}", noise.randbytes(400).hex().encode()) for n in range(3000)]
    chunks = list(snapshot.write(a_header(), many))

    assert len(chunks) > 2
    assert max(map(len, chunks)) <= CHUNK_BYTES_MAX
    assert snapshot.read(chunks).records == many


def test_an_empty_cluster_is_a_snapshot_too() -> None:
    assert snapshot.read([a_file([])]).records == []


@pytest.mark.parametrize("kept", [0, 1, 0.5, -1])
def test_a_truncated_snapshot_is_refused(kept: float) -> None:
    complete = a_file()
    cut = complete[: int(len(complete) * kept)] if 0 < kept < 1 else complete[: int(kept)]

    with pytest.raises(InvalidError, match="is truncated"):
        snapshot.read([cut])


def test_an_altered_snapshot_is_refused_unless_its_content_is_equal() -> None:
    complete = a_file()
    refused = 0
    for place in range(len(complete)):
        altered = bytearray(complete)
        altered[place] ^= 0x10
        try:
            contents = snapshot.read([bytes(altered)])
        except InvalidError:
            refused += 1
            continue
        # gzip has a few bits without effect, such as the time in its header.
        assert contents == snapshot.read([complete])
    assert refused > 0.9 * len(complete)


def test_a_record_altered_inside_the_gzip_stream_is_refused() -> None:
    lines = gzip.decompress(a_file()).replace(b"w7", b"w8", 1)

    with pytest.raises(InvalidError, match="checksum does not match"):
        snapshot.read([gzip.compress(lines)])


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidError, match="not a snapshot"):
        snapshot.read([b"PK not gzip at all"])
    with pytest.raises(InvalidError, match="is truncated"):
        snapshot.read([gzip.compress(b"some text\n")])


def test_a_snapshot_of_a_newer_format_is_refused_with_its_number() -> None:
    with pytest.raises(InvalidError, match="unsupported format 2: expected 1"):
        snapshot.read([a_file(form=2)])


def test_data_after_the_end_is_refused() -> None:
    with pytest.raises(InvalidError, match="data after its end"):
        snapshot.read([a_file() + b"more"])
