"""The health of workloads that Docker cannot check by itself: by http and by tcp, probed from the host.

The worker shows what it saw of each workload, and gets it back with its health. A change of health wakes the
worker. What would surprise: after a restart of the agent a workload is as healthy as was last written, until
its first probe. The probes of a container end with its run, so that nothing old speaks of a new one.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from persys.agent.journal import Entry
from persys.agent.metrics import Metrics
from persys.agent.probing import probe
from persys.core.convergence import Artefact, Condition
from persys.core.health import (
    HEALTH,
    Timing,
    Vitals,
    after_probe,
    next_probe_after,
    remembered,
    timing_of,
)
from persys.core.report import ID, STARTED_AT, describe
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.spec import ContainerSpec, HealthCheck, HealthType
from persys.model.workload import Desired

PROBES_MAX = 64
_PROBED = (HealthType.HTTP, HealthType.TCP)


@dataclass(frozen=True, slots=True)
class Target:
    """One run of one container."""

    container_id: str
    started_at: datetime
    address: str
    check: HealthCheck


@dataclass(slots=True)
class _Patient:
    target: Target
    vitals: Vitals
    task: asyncio.Task[None] | None = None


class Probes:
    def __init__(
        self,
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
        *,
        wake: Callable[[WorkloadId], None],
    ) -> None:
        """`wake` is called with the id of each workload whose health has changed."""
        self._clock = clock
        self._metrics = metrics
        self._supervisor = supervisor
        self._wake = wake
        self._patients: dict[WorkloadId, _Patient] = {}
        self._group: asyncio.TaskGroup | None = None
        self._room = asyncio.Semaphore(PROBES_MAX)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._group:
            for workload_id, patient in self._patients.items():
                patient.task = None
                self._attend(workload_id, patient)
            await asyncio.Event().wait()

    def seen(self, entry: Entry, artefact: Artefact | None) -> Artefact | None:
        """What was seen, with its health if that is found out here. Probing begins or ends with it."""
        workload_id = entry.order.workload_id
        target = _target(entry, artefact)
        patient = self._patients.get(workload_id)
        if artefact is None or target is None:
            self._dismiss(workload_id)
            return artefact
        if patient is None or patient.target != target:
            self._dismiss(workload_id)
            patient = _Patient(target, _last_known(entry, artefact, timing_of(target.check)))
            self._patients[workload_id] = patient
            self._attend(workload_id, patient)
        return replace(artefact, health=patient.vitals.health, ailment=patient.vitals.ailment)

    def _attend(self, workload_id: WorkloadId, patient: _Patient) -> None:
        if self._group is not None and patient.task is None:
            patient.task = self._group.create_task(self._watch(workload_id, patient))

    def _dismiss(self, workload_id: WorkloadId) -> None:
        patient = self._patients.pop(workload_id, None)
        if patient is not None and patient.task is not None:
            patient.task.cancel()

    async def _watch(self, workload_id: WorkloadId, patient: _Patient) -> None:
        while True:
            errors: list[InternalError] = []
            with self._supervisor.contain("probe", workload_id, failed=errors.append):
                pause = await self._probe(workload_id, patient)
                self._supervisor.resolved("probe", workload_id)
            if errors:
                pause = self._supervisor.retry_after(errors[0])
            await asyncio.sleep(pause.total_seconds())

    async def _probe(self, workload_id: WorkloadId, patient: _Patient) -> timedelta:
        """One probe. Returns how long to wait for the next."""
        target, timing = patient.target, timing_of(patient.target.check)
        async with self._room:
            ailment = await probe(
                target.check, target.address, deadline=timing.timeout.total_seconds()
            )
        self._metrics.probed(target.check.type, well=not ailment)
        before, now = patient.vitals, self._clock.now()
        patient.vitals = after_probe(before, ailment, timing, started_at=target.started_at, now=now)
        if patient.vitals.health is not before.health:
            self._wake(workload_id)
        return next_probe_after(patient.vitals, timing, started_at=target.started_at, now=now)


def _target(entry: Entry, artefact: Artefact | None) -> Target | None:
    order = entry.order
    if (
        artefact is None
        or not isinstance(order.spec, ContainerSpec)
        or order.spec.health.type not in _PROBED
        or order.desired is not Desired.RUNNING
        or artefact.condition is not Condition.RUNNING
        or artefact.revision != order.revision
        or artefact.started_at is None
    ):
        return None
    return Target(artefact.id, artefact.started_at, artefact.address, order.spec.health)


def _last_known(entry: Entry, artefact: Artefact, timing: Timing) -> Vitals:
    told, is_so = entry.standing.metadata, describe(artefact)
    if any(told.get(key) != is_so.get(key) for key in (ID, STARTED_AT)):
        return Vitals()
    return remembered(told.get(HEALTH, ""), timing)
