"""Log frames, log tails, and the border between two runs of a container."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys.agent.access.logs import LogTail
from persys.agent.runtimes.docker.exec_logs import ContainerPart, unix_nanos, unix_seconds
from persys.agent.runtimes.docker.log_frames import (
    Frame,
    Frames,
    encode_frames,
    merge_frames,
    timestamp,
    without_timestamp,
)

some_frames = st.lists(
    st.builds(Frame, st.sampled_from(["stdout", "stderr"]), st.binary(max_size=50)), max_size=20
)


@given(some_frames, st.lists(st.integers(1, 30)))
def test_frames_are_parsed_from_any_split_of_the_bytes(
    frames: list[Frame], cuts: list[int]
) -> None:
    content, reader, found = encode_frames(frames), Frames(), list[Frame]()
    for cut in cuts:
        found += reader.feed(content[:cut])
        content = content[cut:]
    found += reader.feed(content)

    assert found == frames


@given(some_frames)
def test_joined_frames_keep_both_outputs(frames: list[Frame]) -> None:
    together = list(merge_frames(frames))

    for stream in ("stdout", "stderr"):
        wrote = b"".join(one.data for one in frames if one.stream == stream)
        assert b"".join(one.data for one in together if one.stream == stream) == wrote
    assert all(one.stream != other.stream for one, other in pairwise(together))


def test_a_timestamp_is_the_first_word_of_a_frame() -> None:
    frame = Frame("stdout", b"2030-01-01T00:00:00.000000001Z two words\n")

    assert timestamp(frame) == b"2030-01-01T00:00:00.000000001Z"
    assert without_timestamp(frame) == Frame("stdout", b"two words\n")


def test_a_log_tail_is_limited_in_lines_and_bytes() -> None:
    few, small = LogTail(2, 1000), LogTail(1000, 10)
    for end in (few, small):
        end.add(Frame("stdout", b"%d234" % number) for number in range(9))

    assert [frame.data for frame in few.frames] == [b"7234", b"8234"]
    assert [frame.data for frame in small.frames] == [b"7234", b"8234"]


def test_instants_keep_their_nanoseconds() -> None:
    assert unix_seconds(unix_nanos("1970-01-01T00:00:01.000000009Z") + 1) == "1.000000010"
    assert unix_seconds(unix_nanos("1970-01-01T00:00:02Z")) == "2.000000000"
    assert unix_nanos("1970-01-01T00:00:00.5Z") == 500_000_000


@pytest.mark.parametrize(
    ("started", "finished", "border"),
    [
        ("1970-01-01T00:01:00Z", "0001-01-01T00:00:00Z", ""),
        ("1970-01-01T00:01:00Z", "1970-01-01T00:00:50Z", "50.090000000"),
        ("1970-01-01T00:01:00Z", "1970-01-01T00:00:59.9Z", "59.950000000"),
        ("1970-01-01T00:01:00Z", "1970-01-01T00:01:30Z", "59.910000000"),
    ],
    ids=["never before", "runs again", "runs again at once", "has ended"],
)
def test_the_previous_run_ends_between_an_end_and_a_start(
    started: str, finished: str, border: str
) -> None:
    part = ContainerPart(
        "c", "", tty=False, status="running", started_at=started, finished_at=finished
    )

    assert part.before_current_run() == border
