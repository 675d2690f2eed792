"""The occurrences of a cron expression in a time zone, as instants in UTC.

Changes of summer time are handled as by Debian cron. A fixed time in the missing hour occurs once, at the end
of that hour; a fixed time in the repeated hour occurs once, the first time. Expressions with a `*` for the
minute or the hour follow elapsed time: they occur in both repeated hours, and not in the missing one.

cronsim loses which of the repeated hours an instant is in, so both searches check each result against the
instant. The rules of time zones are constant data: reading them counts as pure.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from persys.errors import InvalidError

EXPRESSION_LENGTH_MAX = 200
TIMEZONE_LENGTH_MAX = 64
FIELDS = 5
_EXAMPLE = "minute, hour, day of month, month, day of week, for example '30 2 * * 1-5'"
# Copies with leap seconds, and links whose meaning depends on the machine.
_UNSUITABLE = ("posix/", "right/", "localtime", "Factory")
_SECOND = timedelta(seconds=1)


class Cron:
    """`expression` is one that `check` has accepted."""

    def __init__(self, expression: str, timezone: str) -> None:
        self._expression = expression
        self._zone = zone_of(timezone)

    def after(self, at: datetime) -> datetime | None:
        """The first occurrence after an instant. None: there is none in 50 years."""
        return next(self.all_after(at), None)

    def all_after(self, at: datetime) -> Iterator[datetime]:
        for found in self._search(at):
            if found > at:  # not the first of two equal local times
                yield found

    def until(self, at: datetime) -> datetime | None:
        """The last occurrence up to and including an instant. None: there is none in 50 years."""
        local = at.astimezone(self._zone)
        first = local.replace(fold=0).utcoffset()
        offset = local.utcoffset()
        assert first is not None
        assert offset is not None
        # In the second of two equal hours: occurrences of the first one that are later on the local clock.
        repeated = max(first - offset, timedelta())
        for found in self._search(at + repeated + _SECOND, reverse=True):
            if found <= at:
                return found
        return None

    def _search(self, at: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        try:
            local = at.replace(microsecond=0).astimezone(self._zone)
            for found in CronSim(self._expression, local, reverse=reverse):
                yield found.astimezone(UTC)
        except (OverflowError, ValueError):
            return  # outside the years of datetime


def check(expression: str, timezone: str, *, now: datetime) -> None:
    """Raises InvalidError for an expression or a time zone that cannot be used."""
    shown = expression[:EXPRESSION_LENGTH_MAX]
    if len(expression) > EXPRESSION_LENGTH_MAX or len(expression.split()) != FIELDS:
        raise InvalidError(
            "schedule.cron",
            f"invalid cron expression {shown!r}: expected {FIELDS} fields, {_EXAMPLE}",
        )
    zone_of(timezone)
    try:
        CronSim(expression, now)
    except (CronSimError, ValueError) as err:
        raise InvalidError(
            "schedule.cron", f"invalid cron expression {shown!r}: {err}; expected {_EXAMPLE}"
        ) from err
    if Cron(expression, timezone).after(now) is None:
        raise InvalidError(
            "schedule.cron", f"invalid cron expression {shown!r}: it has no occurrence in 50 years"
        )


@lru_cache(maxsize=1024)
def zone_of(name: str) -> tzinfo:
    """The time zone with this name of the time zone database; "" is UTC. Raises InvalidError."""
    if name in ("", "UTC"):
        return UTC
    try:
        if len(name) > TIMEZONE_LENGTH_MAX or name.startswith(_UNSUITABLE):
            raise ZoneInfoNotFoundError(name[:TIMEZONE_LENGTH_MAX])
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as err:
        raise InvalidError(
            "schedule.timezone",
            f"invalid time zone {name[:TIMEZONE_LENGTH_MAX]!r}: expected a name of the time zone"
            " database, for example Europe/Berlin",
        ) from err
