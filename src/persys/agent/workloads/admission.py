"""Admission control: refuses new workloads while the node is full, and reports the figures."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from operator import add

from persys.agent.journal.records import Entry
from persys.agent.journal.store import Journal
from persys.agent.metrics import Metrics
from persys.agent.node.usage import HOST_INTERVAL_SECONDS, UtilizationSampler
from persys.core.agent.admission import NODE_FULL, Load, demand_of, smoothed, too_busy, too_much
from persys.model.ids import WorkloadId
from persys.model.placement import Resources
from persys.model.status import Failure, FailureReason
from persys.model.workload import Desired, Order

Refusal = Callable[
    [Order], Awaitable[Failure | None]
]  # why a new workload is refused; None: it is not


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Limits above which new workloads are refused."""

    most: Load
    half_life: timedelta
    allocatable: Callable[[], Resources]


class Admission:
    def __init__(
        self,
        bounds: AdmissionLimits,
        journal: Journal,
        host_sampler: UtilizationSampler,
        metrics: Metrics,
        *,
        is_here: Callable[[Order], Awaitable[bool]],
        other: Refusal | None = None,
    ) -> None:
        """`is_here`: whether the runtime has the workload, or does not respond.

        `other`: asked for a workload that fits on the node.
        """
        self._bounds = bounds
        self._journal = journal
        self._host_sampler = host_sampler
        self._metrics = metrics
        self._is_here = is_here
        self._other = other
        self._load: Load | None = None
        self._arriving: dict[WorkloadId, Resources] = {}
        metrics.admission.show_thresholds(bounds.most)

    async def run(self) -> None:
        elapsed = timedelta(seconds=HOST_INTERVAL_SECONDS)
        while True:
            await asyncio.sleep(HOST_INTERVAL_SECONDS)
            used = self._host_sampler.utilization()
            self._load = smoothed(
                self._load,
                Load(used.cpu, used.memory, used.disk),
                elapsed=elapsed,
                half_life=self._bounds.half_life,
            )
            self._metrics.admission.show_load(self._load)

    async def refusal(self, order: Order) -> Failure | None:
        """The reason to refuse a new workload, or None.

        A workload that already runs here is accepted, even if the journal has lost it.
        """
        if order.desired is not Desired.RUNNING:
            return None
        why = too_busy(self._load, self._bounds.most) if self._load is not None else ""
        kind = "load" if why else "allocation"
        why = why or too_much(
            demand_of(order.spec), given=self._allocated(), allocatable=self._bounds.allocatable()
        )
        if not why:
            return await self._other(order) if self._other is not None else None
        if await self._is_here(order):
            return None
        self._metrics.admission.refused(kind)
        text = f"this node is full: {why}"
        return Failure(FailureReason.INSUFFICIENT_RESOURCES, text, code=NODE_FULL)

    @contextmanager
    def arriving(self, order: Order) -> Iterator[None]:
        """Count the order as allocated until it is in the journal: other orders may arrive meanwhile."""
        self._arriving[order.workload_id] = demand_of(order.spec)
        try:
            yield
        finally:
            del self._arriving[order.workload_id]

    def _allocated(self) -> Resources:
        """Allocated resources. A workload that is being deleted counts until it is removed."""
        stored = [
            demand_of(entry.order.spec)
            for workload_id, entry in self._journal.entries.items()
            if workload_id not in self._arriving and _uses_resources(entry)
        ]
        return reduce(add, [*stored, *self._arriving.values()], Resources())


def _uses_resources(entry: Entry) -> bool:
    """A stopped workload uses none, nor does a run that has ended and is not started again."""
    has_ended = entry.order.run_once and entry.progress.final_result is not None
    return entry.order.desired is not Desired.STOPPED and not has_ended
