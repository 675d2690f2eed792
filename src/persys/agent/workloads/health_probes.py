"""Health checks by HTTP and TCP, probed from the host, and of guest agents: Docker and libvirt have none.

The worker passes each inspected artefact, and gets it back with its health. A change of health wakes the
worker. After a restart of the agent the last stored health applies until the first probe. Probes belong to
one run of a container or VM, so that results of an old run never apply to a new one.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from persys.agent.journal.records import Entry
from persys.agent.metrics import Metrics
from persys.agent.ports import Guests
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
from persys.core.agent.progress import Artefact, Condition
from persys.core.agent.report import ID, STARTED_AT, describe
from persys.errors import RuntimeUnavailableError
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.infra.clock import Clock
from persys.model.ids import WorkloadId
from persys.model.spec import ContainerSpec, HealthCheck, HealthType, VMSpec
from persys.model.workload import Desired

_STATUS_LINE = re.compile(rb"HTTP/\d\.\d (\d{3})\b")
_LINE_BYTES_MAX = 4096
_HEALTHY = range(200, 400)
PROBES_MAX = 64
_PROBED_TYPES = (HealthType.HTTP, HealthType.TCP, HealthType.GUEST_AGENT)


async def probe(check: HealthCheck, address: str, *, deadline: float) -> str:
    where = f"port {check.port}"
    if not address:
        return f"{where}: it has no IP address"
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
    """One run of one container or VM."""

    id: str
    started_at: datetime
    address: str
    check: HealthCheck
    boots: bool  # it is a VM

    @property
    def timing(self) -> Timing:
        return timing_of(self.check, boots=self.boots)


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
        guests: Callable[[], Guests | None],
    ) -> None:
        """`wake` is called with the id of each workload whose health changes.

        `guests` returns None while this node has no libvirt.
        """
        self._clock = clock
        self._metrics = metrics
        self._supervisor = supervisor
        self._wake = wake
        self._guests = guests
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
            probed = _Probed(target, _last_known(entry, artefact, target.timing))
            self._running[workload_id] = probed
            self._start(workload_id, probed)
        state = probed.health_state
        return replace(
            artefact,
            health=state.health,
            health_error=state.health_error,
            health_failures=failures_before_success(state, target.timing),
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
        target, timing = probed.target, probed.target.timing
        try:
            async with self._slots:
                health_error = await self._health_error(target)
        except RuntimeUnavailableError:
            return timing.interval  # nothing is known
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

    async def _health_error(self, target: Target) -> str:
        """Why the check fails; "" if it passes. Raises RuntimeUnavailableError."""
        deadline = target.timing.timeout.total_seconds()
        if target.check.type is not HealthType.GUEST_AGENT:
            return await probe(target.check, target.address, deadline=deadline)
        guests = self._guests()
        if guests is None:
            raise RuntimeUnavailableError("libvirt is not available")
        return await guests.ping(target.id, deadline=deadline)


def _target(entry: Entry, artefact: Artefact | None) -> Target | None:
    order = entry.order
    if (
        artefact is None
        or not isinstance(order.spec, ContainerSpec | VMSpec)
        or order.spec.health.type not in _PROBED_TYPES
        or order.desired is not Desired.RUNNING
        or artefact.condition is not Condition.RUNNING
        or artefact.revision != order.revision
        or artefact.started_at is None
    ):
        return None
    check = order.spec.health
    address = "" if check.type is HealthType.GUEST_AGENT else artefact.address
    return Target(artefact.id, artefact.started_at, address, check, boots=artefact.boots)


def _last_known(entry: Entry, artefact: Artefact, timing: Timing) -> HealthState:
    stored, present = entry.status.metadata, describe(artefact)
    if any(stored.get(key) != present.get(key) for key in (ID, STARTED_AT)):
        return HealthState()
    return restored_health(stored.get(HEALTH, ""), timing)
