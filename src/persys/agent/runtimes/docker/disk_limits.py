"""Measures how much the containers of each workload wrote outside of volumes, and applies the disk limit."""

import asyncio
import json
from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

import structlog

from persys.agent.journal.store import Journal
from persys.agent.runtimes.docker.engine import (
    Engine,
    EngineError,
    as_unavailable,
    parsing_response,
)
from persys.agent.runtimes.docker.mapping import WORKLOAD_LABEL, OwnerLabels
from persys.agent.workloads.work_queue import WorkQueue
from persys.core.agent.run_limits import exceeded, limit_gb
from persys.errors import RuntimeUnavailableError
from persys.infra.aio.supervisor import InternalError, Supervisor
from persys.model.ids import WorkloadId
from persys.model.status import Actual, Failure
from persys.model.workload import Order

log = structlog.get_logger()

# Docker walks all files of a container.
_MEASURE_SECONDS = 120.0


class _Measured(NamedTuple):
    container_ids: frozenset[str]
    written_bytes: int


async def watch_disks(
    limits: "DiskLimits",
    journal: Journal,
    queue: WorkQueue,
    interval: timedelta,
    supervisor: Supervisor,
) -> None:
    """Measure running workloads periodically and queue those that exceed their limit."""
    while True:
        await asyncio.sleep(interval.total_seconds())
        entries = list(journal.entries.values())
        running = [one.order for one in entries if one.status.actual is Actual.RUNNING]
        for workload_id in await limits.measure(running, supervisor):
            queue.wake(workload_id)


class DiskLimits:
    def __init__(self, engine: Engine, owner: OwnerLabels, *, stops: bool) -> None:
        """`stops`: stop a workload over its limit; otherwise only add a note to its status."""
        self._engine = engine
        self._owner = owner
        self._stops = stops
        self._measured: dict[WorkloadId, _Measured] = {}

    async def measure(self, orders: Iterable[Order], supervisor: Supervisor) -> list[WorkloadId]:
        """Measure workloads with a limit, one at a time. Returns those that exceed it."""
        limited = [order for order in orders if limit_gb(order)]
        known = {order.workload_id for order in limited}
        self._measured = {name: one for name, one in self._measured.items() if name in known}
        over = []
        for order in limited:
            with supervisor.contain("disk.measure", order.workload_id, failed=_not_measured):
                if await self._is_over(order):
                    over.append(order.workload_id)
                supervisor.resolved("disk.measure", order.workload_id)
        return over

    async def _is_over(self, order: Order) -> bool:
        try:
            measured = await self._measure(order.workload_id)
        except RuntimeUnavailableError as err:
            log.debug("disk.not_measured", workload_id=order.workload_id, reason=str(err))
            return False
        self._measured[order.workload_id] = measured
        return exceeded(order, measured.written_bytes) is not None

    def overrun(self, order: Order, container_ids: Iterable[str]) -> Failure | None:
        """Why the workload must be stopped. Old measurements do not apply to new containers."""
        return self._exceeded(order, container_ids) if self._stops else None

    def notes(self, order: Order, container_ids: Iterable[str]) -> tuple[str, ...]:
        failure = None if self._stops else self._exceeded(order, container_ids)
        return (failure.message,) if failure is not None else ()

    def _exceeded(self, order: Order, container_ids: Iterable[str]) -> Failure | None:
        measured = self._measured.get(order.workload_id)
        if measured is None or not measured.container_ids <= set(container_ids):
            return None
        return exceeded(order, measured.written_bytes)

    async def _measure(self, workload_id: WorkloadId) -> _Measured:
        """Raises RuntimeUnavailableError."""
        filters = {"label": self._owner.filters(**{WORKLOAD_LABEL: workload_id})}
        params = {"all": "true", "size": "true", "filters": json.dumps(filters)}
        try:
            found = await self._engine.call(
                "GET", "containers/json", params=params, deadline=_MEASURE_SECONDS
            )
        except EngineError as err:
            raise as_unavailable(err) from err
        with parsing_response(f"the size of {workload_id}"):
            return _Measured(
                frozenset(str(one["Id"]) for one in found),
                sum(int(one.get("SizeRw") or 0) for one in found),
            )


def _not_measured(_error: InternalError) -> None:
    """The supervisor records the error; the previous measurement stays valid."""
