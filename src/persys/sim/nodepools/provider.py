"""A simulated provider of machines. The caller decides which fault each call has."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from persys.core.nodepools.steps import PoolInstance
from persys.errors import PersysError


class CreateFault(StrEnum):
    NONE = "none"
    THROTTLED = "throttled"  # nothing is created, and the caller is told so
    NO_ANSWER = "no-answer"  # created, but the answer is lost
    LATE = "late"  # no answer, and created some time later
    NOT_CREATED = "not-created"  # no answer, and never created
    HALF_CREATED = "half-created"  # exists, and never boots
    SLOW = "slow"  # boots late


class SimulatedThrottleError(PersysError):
    """The call was refused: nothing happened."""


class SimulatedOutageError(PersysError):
    """The call was not answered: its outcome is unknown."""


@dataclass(slots=True)
class SimulatedInstance:
    provider_id: str
    name: str
    size: str
    created_at: datetime
    boots_at: datetime | None  # None: never
    ended_at: datetime | None = None


class SimulatedProvider:
    def __init__(self, *, boot: timedelta, slow_boot: timedelta) -> None:
        self._boot = boot
        self._slow_boot = slow_boot
        self._omit: set[str] = set()
        self._omitted: set[str] = set()
        self._alive: list[SimulatedInstance] = []
        self.created_count = 0

    def create(
        self, name: str, size: str, now: datetime, fault: CreateFault, late: timedelta
    ) -> str:
        """Returns the id. `late`: when an instance without an answer comes into existence."""
        if fault is CreateFault.THROTTLED:
            raise SimulatedThrottleError("request limit exceeded")
        if fault is CreateFault.NOT_CREATED:
            raise SimulatedOutageError("no answer")
        at = now + late if fault is CreateFault.LATE else now
        boot = self._slow_boot if fault is CreateFault.SLOW else self._boot
        boots_at = None if fault is CreateFault.HALF_CREATED else at + boot
        self.created_count += 1
        instance = SimulatedInstance(f"i-{self.created_count}", name, size, at, boots_at)
        self._alive.append(instance)
        if fault in (CreateFault.NO_ANSWER, CreateFault.LATE):
            raise SimulatedOutageError("no answer")
        return instance.provider_id

    def existing(self, now: datetime) -> list[SimulatedInstance]:
        self._alive = [one for one in self._alive if one.ended_at is None]
        return [one for one in self._alive if one.created_at <= now]

    def omit_once(self, instance: SimulatedInstance) -> None:
        """The next list is incomplete. No instance is missing from two lists in a row."""
        self._omit.add(instance.provider_id)

    def listed(self, now: datetime) -> list[PoolInstance]:
        self._omitted, self._omit = self._omit - self._omitted, set()
        return [
            PoolInstance(one.provider_id, one.name, one.size, one.created_at)
            for one in self.existing(now)
            if one.provider_id not in self._omitted
        ]

    def destroy(self, provider_id: str, now: datetime) -> None:
        """Repeating it has no effect."""
        for one in self.existing(now):
            if one.provider_id == provider_id:
                one.ended_at = now

    def booted(self, now: datetime) -> list[SimulatedInstance]:
        return [one for one in self.existing(now) if one.boots_at and one.boots_at <= now]
