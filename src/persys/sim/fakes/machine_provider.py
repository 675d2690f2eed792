"""A provider of machines in virtual time. A machine boots some time after it exists.

A scheduler that crashes or loses its leadership during a call leaves the call as it is.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from persys.errors import ProviderThrottledError, ProviderUnavailableError
from persys.model.nodepool import NodePool
from persys.providers.port import (
    Instance,
    InstanceState,
    MachineRequest,
    Provider,
    WorkloadApi,
)
from persys.sim.engine.virtual_loop import later

PROVISION_DEADLINE_SECONDS = 180
CALL_SECONDS = (0.2, 6.0)
BOOT_SECONDS = (5.0, 60.0)
SLOW_BOOT_SECONDS = (60.0, 300.0)
# A machine that exists after the deadline costs in addition to the one that replaced it.
LATE_SECONDS = (5.0, PROVISION_DEADLINE_SECONDS - 30.0)
START = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class ProviderFaults:
    """Shares of the calls or of the machines that are created."""

    out: bool = False  # no call is answered
    lists_fail: float = 0.0
    throttled: float = 0.0
    answers_lost: float = 0.0  # of calls that create or destroy a machine
    late: float = 0.0  # the create call is not answered, and the machine exists later
    dead: float = 0.0  # the machine never boots
    slow: float = 0.0  # the machine boots around the deadline, or after it


class SimProvider:
    """Implements Provider. One account for all schedulers of a world."""

    def __init__(
        self,
        random: Random,
        *,
        created: Callable[[Instance, float | None], None],
        destroyed: Callable[[Instance], None],
    ) -> None:
        """`created` also gets the seconds until the machine boots; None: it never boots."""
        self._random = random
        self._created = created
        self._destroyed = destroyed
        self._count = 0
        self.existing: dict[str, Instance] = {}  # by the id of the provider
        self.faults = ProviderFaults()

    def open(
        self, pool: NodePool, credentials: Mapping[str, str], workloads: WorkloadApi | None
    ) -> Provider:
        return self

    async def check(self) -> None:
        """It is always usable."""

    async def create(self, request: MachineRequest) -> Instance:
        await self._receive()
        if self._occurs(self.faults.throttled):
            raise ProviderThrottledError("throttled", retry_after=timedelta(seconds=30))
        self._count += 1
        instance = Instance(
            f"i-{self._count}", request.name, request.tags, InstanceState.RUNNING, self._now()
        )
        if self._occurs(self.faults.late):
            later(self._random.uniform(*LATE_SECONDS), lambda: self._add(instance))
            raise ProviderUnavailableError("no answer")
        self._add(instance)
        await self._answer()
        return instance

    def _add(self, instance: Instance) -> None:
        self.existing[instance.provider_id] = instance
        boots_within = SLOW_BOOT_SECONDS if self._occurs(self.faults.slow) else BOOT_SECONDS
        boot_seconds = self._random.uniform(*boots_within)
        self._created(instance, None if self._occurs(self.faults.dead) else boot_seconds)

    async def instances(self, tags: Mapping[str, str]) -> list[Instance]:
        await self._receive()
        if self._occurs(self.faults.lists_fail):
            raise ProviderUnavailableError("no answer")
        return [one for one in self.existing.values() if tags.items() <= one.tags.items()]

    async def destroy(self, provider_id: str) -> None:
        await self._receive()
        instance = self.existing.pop(provider_id, None)
        if instance is not None:
            self._destroyed(instance)
        await self._answer()

    async def close(self) -> None:
        """There is nothing to release."""

    async def _receive(self) -> None:
        await self._delay()
        if self.faults.out:
            raise ProviderUnavailableError("no answer")

    async def _answer(self) -> None:
        await self._delay()
        if self.faults.out or self._occurs(self.faults.answers_lost):
            raise ProviderUnavailableError("no answer")

    async def _delay(self) -> None:
        low, high = CALL_SECONDS
        await asyncio.sleep(self._random.uniform(low, high) / 2)  # each way

    def _occurs(self, share: float) -> bool:
        return self._random.random() < share

    def _now(self) -> datetime:
        return START + timedelta(seconds=asyncio.get_running_loop().time())
