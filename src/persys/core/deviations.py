"""How a container that runs differs from what it was created as. Pure.

It can be changed behind the agent: `docker network disconnect`, `docker rename` and `docker update` do so,
and a Docker that restarts under it may lose its endpoints. What Docker can put right in place, or Compose by
making the container again with its data, is repaired. The rest is only reported.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from persys.core.backoff import doubled
from persys.model.failure import Failure

DRIFT = "container.drift"  # in the metadata of a status: how it differs
DRIFTED = "Drifted"  # why what runs is not as it should be


# Shown for a moment before it is repaired; if that does not help, it gets longer each time.
SHOWN_FOR = timedelta(seconds=1)
REPAIR_AGAIN_AFTER = timedelta(seconds=10)
REPAIR_LONGEST_AFTER = timedelta(minutes=5)
REPAIRS_MAX = 3  # in vain: a workload that cannot be reached has failed then, and is still repaired


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
        """It cannot be reached, or cannot reach others: it runs and does not do its work."""
        return self.kind in (DeviationKind.NETWORK, DeviationKind.PORT)


class Repairs(Struct, frozen=True):
    """Of one workload, in a row since it was last as it was created."""

    count: int = 0
    last_at: datetime | None = None
    problem: str = ""  # why the last one did not help
    shown: bool = False  # that it differs

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
        """The pause until the next one begins now: also a repair that takes long is shown before it.

        What is repaired still runs: a failure is told with what differs, and the repair is repeated.
        """
        problem = failure.message if failure is not None else ""
        return Repairs(self.count, now, problem, shown=self.shown)


class Shape(Struct, frozen=True):
    """What of a container others can change while it runs."""

    name: str = ""
    networks: tuple[str, ...] = ()  # that it is attached to
    ports: tuple[str, ...] = ()  # of the container, that are published: 80/tcp
    limits: dict[str, int | str] = {}  # by the names of Docker


def deviations(wanted: Shape, seen: Shape, *, part: str = "") -> tuple[Deviation, ...]:
    """More networks and ports than wanted are no deviation. Limits that are not in `seen` are not judged."""
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
    kind: DeviationKind, wanted: Iterable[str], seen: Collection[str], how: str, part: str
) -> Iterator[Deviation]:
    for name in wanted:
        if name not in seen:
            yield Deviation(kind, f"{kind} {name} {how}", part=part)


def _changed_limits(
    wanted: Mapping[str, int | str], seen: Mapping[str, int | str], part: str
) -> Iterator[Deviation]:
    for name, value in wanted.items():
        if name in seen and seen[name] != value:
            # Docker takes 0 and "" for "leave it as it is", so a limit cannot be taken away again.
            text = f"{name} is {_shown(seen[name])}, created with {_shown(value)}"
            yield Deviation(DeviationKind.LIMIT, text, repairable=bool(value), part=part)


def _changed_name(wanted: str, seen: str, part: str) -> Iterator[Deviation]:
    if wanted and seen != wanted:
        yield Deviation(DeviationKind.NAME, f"name is {seen}, created as {wanted}", part=part)


def _shown(value: int | str) -> str:
    return str(value) if value else "no limit"
