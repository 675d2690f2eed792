"""HTTP and TCP health checks, probed from the host: Docker itself has no such checks.

The worker passes each inspected artefact, and gets it back with its health. A change of health wakes the
worker. After a restart of the agent the last stored health applies until the first probe. Probes belong to
one run of a container, so that results of an old run never apply to a new one.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from persys.agent.journal.records import Entry
from persys.agent.metrics import Metrics
from persys.core.agent.health import (
    HEALTH,
    HealthState,
    Timing,
    after_probe,
    failures_before_success,
    next_probe_after,
    restored_health,
    timing_of,
)
from persys.core.agent.next_step import Artefact, Condition
from persys.core.agent.report import ID, STARTED_AT, describe
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.spec import ContainerSpec, HealthCheck, HealthType
from persys.model.workload import Desired

_STATUS_LINE = re.compile(rb"HTTP/\d\.\d (\d{3})\b")
_LINE_BYTES_MAX = 4096
_HEALTHY = range(200, 400)
PROBES_MAX = 64
_PROBED_TYPES = (HealthType.HTTP, HealthType.TCP)


async def probe(check: HealthCheck, address: str, *, deadline: float) -> str:
    where = f"port {check.port}"
    if not address:
        return f"{where}: the container has no IP address"
    try:
        async with asyncio.timeout(deadline):
            reader, writer = await asyncio.open_connection(
                address, check.port, limit=_LINE_BYTES_MAX
            )
            try:
                if check.type is HealthType.HTTP:
                    return await _probe_http(check, address, reader, writer)
            finally:
                writer.close()
    except TimeoutError:
        return f"{where}: no response within {deadline:g} s"
    except OSError as err:
        return f"{where}: {err.strerror or 'the connection was lost'}"
    return ""


async def _probe_http(
    check: HealthCheck,
    address: str,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> str:
    request = f"GET {check.path}"
    writer.write(
        f"{request} HTTP/1.1\r\nHost: {address}:{check.port}\r\nUser-Agent: persys-agent\r\n"
        "Accept: */*\r\nConnection: close\r\n\r\n".encode()
    )
    await writer.drain()
    try:
        line = await reader.readline()
    except ValueError:  # longer than any status line
        line = b""
    found = _STATUS_LINE.match(line)
    if found is None:
        return f"{request} on port {check.port}: the response is not HTTP"
    status = int(found[1])
    return "" if status in _HEALTHY else f"{request} on port {check.port}: status {status}"


@dataclass(frozen=True, slots=True)
class Target:
    """One run of one container."""

    container_id: str
    started_at: datetime
    address: str
    check: HealthCheck


@dataclass(slots=True)
class _Probed:
    target: Target
    health_state: HealthState
    task: asyncio.Task[None] | None = None


class HealthProbes:
    def __init__(
        self,
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
        *,
        wake: Callable[[WorkloadId], None],
    ) -> None:
        """`wake` is called with the id of each workload whose health changes."""
        self._clock = clock
        self._metrics = metrics
        self._supervisor = supervisor
        self._wake = wake
        self._running: dict[WorkloadId, _Probed] = {}
        self._group: asyncio.TaskGroup | None = None
        self._slots = asyncio.Semaphore(PROBES_MAX)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._group:
            for workload_id, probed in self._running.items():
                probed.task = None
                self._start(workload_id, probed)
            await asyncio.Event().wait()

    def seen(self, entry: Entry, artefact: Artefact | None) -> Artefact | None:
        """The artefact with its probed health. Starts or stops the probes of the workload."""
        workload_id = entry.order.workload_id
        target = _target(entry, artefact)
        probed = self._running.get(workload_id)
        if artefact is None or target is None:
            self._stop(workload_id)
            return artefact
        if probed is None or probed.target != target:
            self._stop(workload_id)
            probed = _Probed(target, _last_known(entry, artefact, timing_of(target.check)))
            self._running[workload_id] = probed
            self._start(workload_id, probed)
        state = probed.health_state
        return replace(
            artefact,
            health=state.health,
            health_error=state.health_error,
            health_failures=failures_before_success(state, timing_of(target.check)),
        )

    def _start(self, workload_id: WorkloadId, probed: _Probed) -> None:
        if self._group is not None and probed.task is None:
            probed.task = self._group.create_task(self._watch(workload_id, probed))

    def _stop(self, workload_id: WorkloadId) -> None:
        probed = self._running.pop(workload_id, None)
        if probed is not None and probed.task is not None:
            probed.task.cancel()

    async def _watch(self, workload_id: WorkloadId, probed: _Probed) -> None:
        while True:
            errors: list[InternalError] = []
            with self._supervisor.contain("probe", workload_id, failed=errors.append):
                pause = await self._probe(workload_id, probed)
                self._supervisor.resolved("probe", workload_id)
            if errors:
                pause = self._supervisor.retry_after(errors[0])
            await asyncio.sleep(pause.total_seconds())

    async def _probe(self, workload_id: WorkloadId, probed: _Probed) -> timedelta:
        """Run one probe. Returns the time until the next one."""
        target, timing = probed.target, timing_of(probed.target.check)
        async with self._slots:
            health_error = await probe(
                target.check, target.address, deadline=timing.timeout.total_seconds()
            )
        self._metrics.health.probed(target.check.type, passed=not health_error)
        before, now = probed.health_state, self._clock.now()
        probed.health_state = after_probe(
            before, health_error, timing, started_at=target.started_at, now=now
        )
        after = probed.health_state
        failures = [failures_before_success(state, timing) for state in (before, after)]
        if after.health is not before.health or failures[0] != failures[1]:
            self._wake(workload_id)
        return next_probe_after(probed.health_state, timing, started_at=target.started_at, now=now)


def _target(entry: Entry, artefact: Artefact | None) -> Target | None:
    order = entry.order
    if (
        artefact is None
        or not isinstance(order.spec, ContainerSpec)
        or order.spec.health.type not in _PROBED_TYPES
        or order.desired is not Desired.RUNNING
        or artefact.condition is not Condition.RUNNING
        or artefact.revision != order.revision
        or artefact.started_at is None
    ):
        return None
    return Target(artefact.id, artefact.started_at, artefact.address, order.spec.health)


def _last_known(entry: Entry, artefact: Artefact, timing: Timing) -> HealthState:
    stored, present = entry.status.metadata, describe(artefact)
    if any(stored.get(key) != present.get(key) for key in (ID, STARTED_AT)):
        return HealthState()
    return restored_health(stored.get(HEALTH, ""), timing)
