from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persys.core.duration import format_duration, parse_duration

spans = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=3650))


@given(spans)
def test_a_written_value_round_trips(span: timedelta) -> None:
    assert parse_duration(format_duration(span)) == span


@given(st.integers(0, 10_000), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_parts_add_up(hours: int, minutes: int, seconds: int, millis: int) -> None:
    read = parse_duration(f"{hours}h{minutes}m{seconds}s{millis}ms")

    assert read == timedelta(hours=hours, minutes=minutes, seconds=seconds, milliseconds=millis)


@given(st.text())
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    try:
        span = parse_duration(text)
    except ValueError as err:
        assert "expected a duration" in str(err)  # noqa: PT017
    else:
        assert span >= timedelta(0)


@pytest.mark.parametrize(
    "text", ["", "s", "5 s", "5S", "-5s", "1e3", "5s3", "9" * 30, "9" * 30 + "d"]
)
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.5, "500ms"),
        (15, "15s"),
        (90, "90s"),
        (180, "3m"),
        (86400, "1d"),
        (1.5, "1.5s"),
    ],
)
def test_durations_are_shown_in_the_largest_whole_unit(seconds: float, text: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == text
