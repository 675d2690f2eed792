"""Checks after a loss of all data in the store, until an operator has chosen a recovery.

A scheduler with the records in memory writes only the leader key, and no copy is deleted without a record.
A rebuild restores all workloads of reachable agents and of the scheduler's memory; a restore also those of
the snapshot.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from persys.model.ids import NodeId, WorkloadId
from persys.sim.checks.acknowledged import AllowedStates, State, UserRequest, state_of
from persys.sim.checks.store_mirror import StoreMirror
from persys.sim.engine.process import SimProcess
from persys.store import keys
from persys.store.port import Unit
from persys.wire.gen.control.v1 import control_pb2

# An order from before the loss may arrive this much later.
STALE_ORDER_SECONDS = 60.0
RECOVERY_CALLS = frozenset({"RebuildFromAgents", "AcceptEmpty", "RestoreSnapshot"})


@dataclass(slots=True)
class StoreLoss:
    """`kept_by` returns the workloads that the agent of a node must keep by its journal."""

    mirror: StoreMirror
    intents: AllowedStates
    time: Callable[[], float]
    fail: Callable[[str, str], None]
    kept_by: Callable[[NodeId], Iterable[WorkloadId]]
    open: bool = False  # no recovery has completed yet
    recovery_requested: bool = False  # an operator has requested a recovery
    lost_at: float = float("-inf")
    last_requests: dict[WorkloadId, UserRequest] = field(
        default_factory=dict
    )  # the last request for each workload
    with_records: frozenset[str] = frozenset()  # titles of schedulers with the records in memory
    snapshot: frozenset[WorkloadId] = frozenset()  # the workloads in the last snapshot
    _before: dict[WorkloadId, frozenset[State]] = field(default_factory=dict)

    def lose(self, with_records: frozenset[str]) -> None:
        """The store lost all data. A requested recovery may be in progress, and continues."""
        if not self.open:
            self.recovery_requested = False
            self._before = {
                workload_id: self.intents.of(workload_id)
                for workload_id in (each.id for each in self.mirror.workloads.values())
            }
            self.with_records = with_records
        self.with_records &= with_records
        self.open, self.lost_at = True, self.time()
        self.mirror.lose()
        self.intents.allow_stored(self.mirror.stored)

    def reopen(self) -> None:
        """A restarted scheduler has detected the loss only now."""
        if not self.open:
            self.open = True
            self.intents.allow_stored(self.mirror.stored)

    def committed(self, process: SimProcess, units: Sequence[Unit]) -> None:
        if not self.open or self.recovery_requested or process.title not in self.with_records:
            return
        written = {key for unit in units for key in (*unit.puts, *unit.deletes)} - {keys.LEADER}
        if written:
            text = f"{process.title} wrote {min(written)} to a store that had lost its data"
            self.fail("11 recovery", text)

    def check_delete(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        """A delete order requires a record that was written after the loss."""
        removed_since = self.mirror.removed_at.get((node_id, workload_id))
        stale = self.time() < self.lost_at + STALE_ORDER_SECONDS
        if removed_since is None or (removed_since < self.lost_at and not stale):
            text = f"{node_id} received delete of {workload_id} without a record"
            self.fail("11 recovery", text)

    def recovered(
        self, process: SimProcess, method: str, answer: control_pb2.RecoveryAnswer
    ) -> None:
        """A recovery completed: everything recoverable must be restored."""
        if not self.open or not answer.accepted:
            return
        if method != "AcceptEmpty":
            missing = self._missing(process, method, answer.left_out)
            for workload_id, why in sorted(missing.items()):
                self.fail("1 recovered", f"{workload_id} was not restored, although {why}")
            if method == "RebuildFromAgents" and process.title in self.with_records:
                self._check_remembered()
        self.close()

    def _check_remembered(self) -> None:
        for workload_id, states in sorted(self._before.items()):
            state = state_of(self.mirror.workload(workload_id))
            if workload_id in self.mirror.memberships:
                continue  # its set or run changes it
            if state is not None and state not in states:
                text = f"{workload_id} was restored as {state}, but acknowledged differently"
                self.fail("1 recovered", text)

    def close(self) -> None:
        """The recovery is complete: from now on requests apply to the restored state."""
        self.open = self.recovery_requested = False
        for workload_id in list(self.intents.allowed):
            now = state_of(self.mirror.workload(workload_id))
            change = self.last_requests.get(workload_id, UserRequest())
            self.intents.reset(workload_id, {now, None}, change)

    @property
    def ever(self) -> bool:
        return self.lost_at > float("-inf")

    def _missing(
        self, process: SimProcess, method: str, left_out: Sequence[str]
    ) -> dict[WorkloadId, str]:
        """Workloads that should be restored and are not, unless the response lists them as left out."""
        listed = " ".join(left_out)
        found: dict[WorkloadId, str] = {}
        for node in self.mirror.nodes.values():
            if f"node {node.id} did not respond" not in listed:
                found |= dict.fromkeys(self.kept_by(node.id), f"{node.id} has it")
        if method == "RestoreSnapshot":
            found |= dict.fromkeys(self.snapshot, "the snapshot has it")
        elif process.title in self.with_records:
            for workload_id, states in self._before.items():
                if None not in states:
                    found[workload_id] = f"{process.title} has it in memory"
        return {
            workload_id: why
            for workload_id, why in found.items()
            if self.mirror.workload(workload_id) is None
            and not self._is_listed(workload_id, listed)
        }

    def _is_listed(self, workload_id: WorkloadId, listed: str) -> bool:
        """Members of runs that no node reports are listed by their run."""
        membership = self.mirror.memberships.get(workload_id)
        if membership is not None and membership.job_id and f"run {membership.owner}:" in listed:
            return True
        return workload_id in listed
