"""Occurrences of cron expressions, in particular at both changes of summer time."""

import zoneinfo
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from persys.core.jobs.cron import Cron, check, zone_of
from persys.errors import InvalidError

NOON = datetime(2030, 6, 1, 12, tzinfo=UTC)
BERLIN = "Europe/Berlin"
# 2025-03-30: 02:00 +01:00 is followed by 03:00 +02:00. 2025-10-26: 02:59 +02:00 is followed by 02:00 +01:00.
SPRING = datetime(2025, 3, 30, tzinfo=UTC)
AUTUMN = datetime(2025, 10, 26, tzinfo=UTC)


def occurrences(expression: str, timezone: str, start: datetime, count: int) -> list[str]:
    """In local time, with the offset."""
    found = islice(Cron(expression, timezone).all_after(start), count)
    return [f"{at.astimezone(zone_of(timezone)):%d %H:%M%z}" for at in found]


def test_a_fixed_time_in_the_missing_hour_occurs_at_its_end() -> None:
    assert occurrences("30 2 * * *", BERLIN, SPRING - timedelta(hours=24), 3) == [
        "29 02:30+0100",
        "30 03:00+0200",
        "31 02:30+0200",
    ]


def test_a_fixed_time_in_the_repeated_hour_occurs_once() -> None:
    assert occurrences("30 2 * * *", BERLIN, AUTUMN - timedelta(hours=24), 3) == [
        "25 02:30+0200",
        "26 02:30+0200",
        "27 02:30+0100",
    ]


def test_a_wildcard_follows_elapsed_time_in_the_missing_hour() -> None:
    assert occurrences("*/30 * * * *", BERLIN, SPRING + timedelta(minutes=15), 3) == [
        "30 01:30+0100",
        "30 03:00+0200",
        "30 03:30+0200",
    ]


def test_a_wildcard_occurs_in_both_repeated_hours() -> None:
    assert occurrences("0 * * * *", BERLIN, AUTUMN - timedelta(minutes=30), 3) == [
        "26 02:00+0200",
        "26 02:00+0100",
        "26 03:00+0100",
    ]


def test_the_search_after_an_instant_of_the_second_repeated_hour_ignores_the_first_one() -> None:
    second_pass = AUTUMN + timedelta(hours=1, minutes=45)  # 02:45 +01:00

    assert occurrences("50 2 * * *", BERLIN, second_pass, 1) == ["27 02:50+0100"]


def test_the_last_occurrence_before_the_second_repeated_hour_is_found_in_the_first_one() -> None:
    second_pass = AUTUMN + timedelta(hours=1, minutes=10)  # 02:10 +01:00

    found = Cron("50 2 * * *", BERLIN).until(second_pass)

    assert found == AUTUMN + timedelta(minutes=50)  # 02:50 +02:00


def test_an_occurrence_is_the_last_one_at_its_own_instant() -> None:
    assert Cron("0 12 * * *", "").until(NOON) == NOON
    assert Cron("0 12 * * *", "").until(NOON - timedelta(microseconds=1)) == NOON - timedelta(
        days=1
    )
    assert Cron("0 12 * * *", "").until(NOON + timedelta(microseconds=1)) == NOON


def test_an_occurrence_is_not_after_itself() -> None:
    assert Cron("0 12 * * *", "").after(NOON) == NOON + timedelta(days=1)
    assert Cron("0 12 * * *", "").after(NOON - timedelta(microseconds=1)) == NOON


def test_a_day_that_a_time_zone_skips_is_skipped() -> None:
    """Samoa had no 2011-12-30."""
    start = datetime(2011, 12, 29, 23, tzinfo=UTC)

    assert occurrences("0 12 * * *", "Pacific/Apia", start, 2)[1] == "31 12:00+1400"


def test_the_end_of_time_has_no_next_occurrence() -> None:
    assert Cron("0 12 * * *", BERLIN).after(datetime(9999, 12, 31, 20, tzinfo=UTC)) is None
    assert Cron("0 12 * * *", BERLIN).until(datetime(1, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "* * * * * *",
        "@daily",
        "60 * * * *",
        "* 24 * * *",
        "a * * * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "R * * * *",
        "* * * * 1,,2",
        "0 0 30 2 *",
        "0 0 31 4,6 *",
        "0 0 * 2 1#6",
        "１ * * * *",
        "1" * 190 + " * * * *",
        "1," * 400 + "1 * * * *",
    ],
)
def test_an_invalid_expression_is_refused_with_its_text(expression: str) -> None:
    with pytest.raises(InvalidError, match=r"^schedule.cron: invalid cron expression '") as refused:
        check(expression, "", now=NOON)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "expression",
    ["* * * * *", "30 2 * * MON-FRI", "0 0 29 2 *", "*/15 8-18 1,15 JAN-MAR *", "0 0 L * *"],
)
def test_a_valid_expression_is_accepted(expression: str) -> None:
    check(expression, BERLIN, now=NOON)


@pytest.mark.parametrize(
    "name",
    [
        "Europe/Nowhere",
        "Europe",
        "../Europe/Berlin",
        "/etc/passwd",
        "right/UTC",
        "localtime",
        "x" * 300,
        "a\0b",
        "Europe/Berlin/",
        " ",
    ],
)
def test_an_unknown_time_zone_is_refused_with_its_name(name: str) -> None:
    with pytest.raises(InvalidError, match=r"^schedule.timezone: invalid time zone"):
        check("* * * * *", name, now=NOON)


def test_no_time_zone_is_utc() -> None:
    assert zone_of("") is UTC
    assert zone_of("UTC") is UTC


def test_time_zones_are_known_on_a_system_without_their_rules() -> None:
    zoneinfo.reset_tzpath(to=())
    try:
        found = zoneinfo.ZoneInfo.no_cache(BERLIN)
    finally:
        zoneinfo.reset_tzpath()

    assert NOON.astimezone(found).hour == 14
