"""The checks of a cluster with sets and jobs, in addition to all others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from persys.model.ids import NodeId
from persys.model.workload import Order
from persys.sim.checks.context import Probe, Violation
from persys.sim.checks.jobs import JobChecks, unsettled_jobs
from persys.sim.checks.safety import Invariants
from persys.sim.checks.sets import SetChecks, unsettled_sets
from persys.sim.engine.process import SimProcess
from persys.sim.engine.trace import Trace
from persys.sim.fakes.docker import Container
from persys.store import keys
from persys.store.port import Record, Unit
from persys.wire.gen.control.v1 import control_pb2


class OwnerInvariants(Invariants):
    def __init__(
        self,
        probe: Probe,
        trace: Trace,
        *,
        lease_seconds: float,
        failed: Callable[[Violation], None],
    ) -> None:
        super().__init__(probe, trace, lease_seconds=lease_seconds, failed=failed)
        self._sets = SetChecks(self._facts)
        self._jobs = JobChecks(self._facts)
        self.container_starts = self._container_starts
        self.container_stops = self._container_stops
        self.look = self._sets.look

    def owner_requested(self, name: str, method: str, request: Any) -> None:
        self._sets.requested(name, method, request)

    def unsettled(self) -> list[str]:
        return [*unsettled_sets(self._facts), *unsettled_jobs(self._facts)]

    def committed(self, process: SimProcess, units: Sequence[Unit], leader: Record | None) -> None:
        mirror = self.mirror
        touched = sorted({key for unit in units for key in (*unit.puts, *unit.deletes)})
        sets = {key: mirror.sets.get(key) for key in touched if key.startswith(keys.SETS)}
        runs = {key: mirror.runs.get(key) for key in touched if key.startswith(keys.RUNS)}
        workloads = {
            key: mirror.workloads.get(key) for key in touched if key.startswith(keys.WORKLOADS)
        }
        super().committed(process, units, leader)
        self._sets.committed(sets, workloads)
        self._jobs.committed(runs)

    def store_lost(self, nodes: Any, with_records: frozenset[str]) -> None:
        super().store_lost(nodes, with_records)
        self._sets.forget()

    def answered(
        self,
        process: SimProcess,
        method: str,
        request: Any,
        answer: Any,
        metadata: Mapping[str, str],
    ) -> None:
        super().answered(process, method, request, answer, metadata)
        if isinstance(answer, control_pb2.SetAnswer):
            self._sets.answered(method, request, answer)

    def _container_starts(self, node_id: NodeId, container: Container, *, by_agent: bool) -> None:
        self._containers.container_starts(node_id, container, by_agent=by_agent)
        self._jobs.container_starts(node_id, container)

    def _container_stops(self, node_id: NodeId, container: Container, order: Order) -> None:
        self._containers.container_stops(node_id, container, order)
        self._sets.container_stops(container)
