"""How a running container differs from its configuration at creation.

`docker network disconnect`, `docker rename` and `docker update` change a container without the agent, and a
restart of Docker may lose its endpoints. Differences that Docker can repair in place, or Compose by
recreating the container with its data, are repaired. The rest is only reported.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from persys.core.backoff import doubled
from persys.model.status import Failure

DRIFT = "container.drift"  # the key in the metadata of a status
DRIFTED = "Drifted"  # the code of a running workload that differs from its configuration


# Reported for a moment before each repair; the delay between repairs grows.
SHOWN_FOR = timedelta(seconds=1)
REPAIR_AGAIN_AFTER = timedelta(seconds=10)
REPAIR_LONGEST_AFTER = timedelta(minutes=5)
REPAIRS_MAX = (
    3  # after so many without success an unreachable workload is failed, and still repaired
)


class DeviationKind(StrEnum):
    NETWORK = "network"
    PORT = "port"
    LIMIT = "limit"
    NAME = "name"


class Deviation(Struct, frozen=True):
    kind: DeviationKind
    text: str
    repairable: bool = True
    part: str = ""  # the service of a stack

    @property
    def cuts_off(self) -> bool:
        """The container runs but is disconnected from a network or port."""
        return self.kind in (DeviationKind.NETWORK, DeviationKind.PORT)


class Repairs(Struct, frozen=True):
    """Consecutive repairs of one workload since it last matched its configuration."""

    count: int = 0
    last_at: datetime | None = None
    problem: str = ""  # why the last one failed
    shown: bool = False  # the difference has been reported

    def next_at(self, now: datetime) -> datetime:
        if not self.shown:
            return now + SHOWN_FOR
        if self.last_at is None:
            return now
        pause = doubled(REPAIR_AGAIN_AFTER, self.count - 1, longest=REPAIR_LONGEST_AFTER)
        return self.last_at + pause

    def begun(self, now: datetime) -> "Repairs":
        return Repairs(self.count + 1, now, shown=self.shown)

    def ended(self, now: datetime, failure: Failure | None) -> "Repairs":
        """The delay until the next repair starts now, so that the difference is reported in between.

        The workload still runs: a failed repair is reported with the difference, and repeated.
        """
        problem = failure.message if failure is not None else ""
        return Repairs(self.count, now, problem, shown=self.shown)


class Shape(Struct, frozen=True):
    """The part of a container's configuration that can be changed while it runs."""

    name: str = ""
    networks: tuple[str, ...] = ()  # that it is attached to
    ports: tuple[str, ...] = ()  # of the container, that are published: 80/tcp
    limits: dict[str, int | str] = {}  # by the names of Docker


def deviations(wanted: Shape, seen: Shape, *, part: str = "") -> tuple[Deviation, ...]:
    """Additional networks and ports are allowed. Limits that are not in `seen` are not compared."""
    return (
        *_missing(DeviationKind.NETWORK, wanted.networks, seen.networks, "is not attached", part),
        *_missing(DeviationKind.PORT, wanted.ports, seen.ports, "is not published", part),
        *_changed_limits(wanted.limits, seen.limits, part),
        *_changed_name(wanted.name, seen.name, part),
    )


def summary(found: Iterable[Deviation]) -> str:
    """One line for the status."""
    return "; ".join(f"{one.part}: {one.text}" if one.part else one.text for one in found)


def _missing(
    kind: DeviationKind, wanted: Iterable[str], seen: Collection[str], problem: str, part: str
) -> Iterator[Deviation]:
    for name in wanted:
        if name not in seen:
            yield Deviation(kind, f"{kind} {name} {problem}", part=part)


def _changed_limits(
    wanted: Mapping[str, int | str], seen: Mapping[str, int | str], part: str
) -> Iterator[Deviation]:
    for name, value in wanted.items():
        if name in seen and seen[name] != value:
            # Docker treats 0 and "" as unchanged, so a limit cannot be removed from a running container.
            text = f"{name} is {_shown(seen[name])}, created with {_shown(value)}"
            yield Deviation(DeviationKind.LIMIT, text, repairable=bool(value), part=part)


def _changed_name(wanted: str, seen: str, part: str) -> Iterator[Deviation]:
    if wanted and seen != wanted:
        yield Deviation(DeviationKind.NAME, f"name is {seen}, created as {wanted}", part=part)


def _shown(value: int | str) -> str:
    return str(value) if value else "no limit"
