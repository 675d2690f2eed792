"""The attempts of a run: what the records and reports about their workloads say.

A result that was stored counts, also if the node is lost afterwards. Only a node that has not sent heartbeats
for its lease and the grace is lost; until then its attempts are in progress.
"""

from dataclasses import dataclass

from persys.core.agent.report import EXIT_CODE
from persys.core.jobs.members import member_id, membership
from persys.core.jobs.situation import Attempt, AttemptKey, AttemptState, RunSituation
from persys.core.nodes import Phase, phase_of
from persys.core.numbers import whole_number
from persys.core.reconcile.situation import COMPLETED
from persys.infra.clock import Clock
from persys.model.ids import NodeId, WorkloadId
from persys.model.job import Run
from persys.model.status import Status, WorkloadStatus
from persys.model.workload import Desired
from persys.scheduler.state.cluster import ClusterState, WorkloadState
from persys.store import keys

_ABSENT = Attempt(AttemptState.ABSENT)
_WAITING = Attempt(AttemptState.WAITING)
_RUNNING = Attempt(AttemptState.RUNNING)
_DELETING = Attempt(AttemptState.DELETING)
_SUCCEEDED = Attempt(AttemptState.SUCCEEDED)


@dataclass(frozen=True, slots=True)
class Observed:
    """`look_again_after`: seconds until a silent node counts as lost. None: all nodes send heartbeats."""

    situation: RunSituation
    look_again_after: float | None = None


class AttemptStates:
    def __init__(self, cluster: ClusterState, clock: Clock, *, node_grace: float) -> None:
        """`node_grace`: seconds after the lease of a node until it is lost."""
        self._cluster = cluster
        self._clock = clock
        self._node_grace = node_grace

    def observed(self, run: Run) -> Observed:
        attempts: dict[int, Attempt] = {}
        silent: set[NodeId] = set()
        for member in run.members:
            key = AttemptKey(member.index, member.attempts)
            attempts[member.index] = self._attempt(run, key, silent)
        return Observed(RunSituation(run, attempts), self._lost_after(silent))

    def lost_because(self, workload_id: WorkloadId) -> str:
        """Why the attempt is lost with its node; "" if it is not."""
        entry = self._cluster.workloads.get(workload_id)
        return self._lost(entry, set()) if entry is not None else ""

    def _attempt(self, run: Run, key: AttemptKey, silent: set[NodeId]) -> Attempt:
        """Adds its node to `silent` if the attempt may be lost with it soon."""
        workload_id = member_id(run, key)
        entry = self._cluster.workloads.get(workload_id)
        if entry is None:
            unreadable = self._cluster.quarantine.reason(keys.workload_key(workload_id))
            return _RUNNING if unreadable else _ABSENT
        if entry.workload.membership != membership(run, key):
            why = f"workload {workload_id} exists and is not a member of this run"
            return Attempt(AttemptState.FAILED, reason=why)
        if entry.workload.desired is Desired.DELETED:
            return _DELETING
        ended = _result(entry)
        if ended is not None:
            return ended
        lost = self._lost(entry, silent)
        if entry.workload.desired is Desired.STOPPED:
            return Attempt(AttemptState.STOPPED, reason=lost or entry.workload.stopped_because)
        if lost:
            return Attempt(AttemptState.LOST, reason=lost)
        return _RUNNING if _has_started(entry) else _WAITING

    def _lost(self, entry: WorkloadState, silent: set[NodeId]) -> str:
        """Why the attempt is lost; "" if it is not."""
        assignment = entry.assignment
        if assignment is None:
            return ""
        node_id = assignment.node_id
        member = self._cluster.nodes.get(node_id)
        if member is None:
            return f"node {node_id} was removed"
        if member.node.confirmed_dead:
            return f"node {node_id} is confirmed dead"
        now = self._clock.monotonic()
        phase = phase_of(lease_until=member.lease_until, grace=self._node_grace, now=now)
        if phase is Phase.LOST:
            return f"node {node_id} is lost"
        if phase is Phase.SUSPECT:
            silent.add(node_id)
        return ""

    def _lost_after(self, silent: set[NodeId]) -> float | None:
        if not silent:
            return None
        ends = min(self._cluster.nodes[node_id].lease_until for node_id in silent)
        return max(0.0, ends + self._node_grace - self._clock.monotonic())


def _result(entry: WorkloadState) -> Attempt | None:
    """How the attempt has ended. None: it has not, as far as known."""
    status = entry.workload_status
    if status is None or status.revision != entry.workload.revision:
        return None
    if status.code == COMPLETED:
        return _SUCCEEDED
    if status.status is not Status.FAILED or not _is_final(entry, status):
        return None
    code = whole_number(status.metadata.get(EXIT_CODE, ""))
    return Attempt(AttemptState.FAILED, exit_code=code, reason=status.message)


def _is_final(entry: WorkloadState, status: WorkloadStatus) -> bool:
    """Whether the scheduler does not retry it automatically."""
    retry, failure = entry.retry, status.failure
    gave_up = (
        retry is not None and retry.next_at is None and retry.revision == entry.workload.revision
    )
    return gave_up or (failure is not None and not failure.retryable)


def _has_started(entry: WorkloadState) -> bool:
    """Whether its node has reported this revision for this assignment, in any state but pending."""
    status, assignment = entry.workload_status, entry.assignment
    return (
        status is not None
        and assignment is not None
        and status.epoch == assignment.epoch
        and status.revision == entry.workload.revision
        and status.status in (Status.RUNNING, Status.UNKNOWN, Status.STOPPED)
    )
