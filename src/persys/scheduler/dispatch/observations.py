"""The single entry point of observations: apply replies, heartbeats, status polls and full lists.

The newest observation wins. A repeated one wakes no reconciliation. Texts are cut to the size of a record,
because agents are not trusted to bound them.

`TaskHistory` stores what nodes did for a workload: ended tasks, and those in progress at a timeout.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from itertools import islice

import structlog
from msgspec.structs import replace

from persys.core.agent.deviations import DRIFT
from persys.core.agent.health import HEALTH
from persys.core.agent.report import has_moved, has_restarted
from persys.core.reconcile.effects import FetchActions
from persys.core.reconcile.situation import confirms_status
from persys.core.reconcile.task_history import describe_timeout, is_remembered, remember
from persys.errors import ConflictError, StoreUnavailableError
from persys.infra.clock import Clock
from persys.model.action import Action
from persys.model.event import Event, EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.status import Actual, Observation
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.reconcile.reconciler import Reconciler
from persys.scheduler.state.cluster import ClusterState, WorkloadState
from persys.store import keys

TEXT_LENGTH_MAX = 4 * 1024
METADATA_COUNT_MAX = 32
METADATA_KEY_LENGTH_MAX = 256
log = structlog.get_logger()


class Observations:
    def __init__(
        self,
        cluster: ClusterState,
        *,
        wake: Callable[[WorkloadId], None],
        removed: Callable[[NodeId, WorkloadId], None],
        replaced: Callable[[NodeId, WorkloadId], None],
        listed: Callable[[NodeId, Sequence[Observation]], None],
        ignored: Callable[[], None] = lambda: None,
        changed: Callable[[NodeId], None] = lambda _node_id: None,
    ) -> None:
        """`ignored` is called for a report about a workload that is assigned to another node.

        `changed` is called for a change on a node that no order caused.
        """
        self._changed = changed
        self._cluster = cluster
        self._wake = wake
        self._removed = removed
        self._replaced = replaced
        self._listed = listed
        self._ignored = ignored

    def take(
        self,
        seen: Observation,
        *,
        from_heartbeat: bool = False,
        polled_at: datetime | None = None,
        wakes: bool = True,
    ) -> None:
        """`polled_at`: when the node was asked, if it was. Without `wakes` the caller wakes the workload."""
        entry = self._cluster.workloads.get(seen.workload_id)
        if entry is None or entry.assignment is None or entry.assignment.node_id != seen.node_id:
            if seen.actual is Actual.ABSENT:
                self._removed(seen.node_id, seen.workload_id)
            elif self._is_newer_copy(seen):
                self._replaced(seen.node_id, seen.workload_id)
            elif entry is not None and not self._is_left_copy(seen):
                self._ignored()
            return
        old = entry.observation
        if old is not None and seen.seen_at < old.seen_at:
            return
        if polled_at is not None and entry.dispatch and polled_at < entry.dispatch.sent_at:
            return  # it may describe the copy before the order; it is polled again
        if from_heartbeat and _lacks_revision(seen, entry):
            return
        seen = _with_known_action(_with_known_revision(seen, entry), entry)
        if old is None or not _has_texts_of(old, seen):
            seen = _bounded(seen)
        entry.observation = seen
        if old is None or _differs(old, seen):
            entry.observed_since = seen.seen_at
            if wakes and (old is not None or not self._is_expected(seen, entry)):
                self._wake(seen.workload_id)
            if old is not None and entry.dispatch is None and old.actual is not seen.actual:
                self._changed(seen.node_id)

    def _is_left_copy(self, seen: Observation) -> bool:
        """Whether it is a stale copy of an earlier assignment, with a tombstone."""
        return seen.workload_id in self._cluster.tombstones.get(seen.node_id, {})

    def _is_newer_copy(self, seen: Observation) -> bool:
        """The node has a copy with a newer epoch than the tombstone, so the copy of the tombstone is gone."""
        tombstone = self._cluster.tombstones.get(seen.node_id, {}).get(seen.workload_id)
        return tombstone is not None and 0 < tombstone.assignment.epoch < seen.epoch

    def _is_expected(self, seen: Observation, entry: WorkloadState) -> bool:
        """Whether it confirms the records: after a start every node reports all it has, mostly unchanged.

        An ended action that the previous leader did not store is not expected: it is stored now.
        """
        return (
            entry.workload_status is not None
            and entry.assignment is not None
            and entry.dispatch is None
            and entry.retry is None
            and confirms_status(seen, entry.workload_status, entry.workload, entry.assignment)
            and not self._cluster.drifts.of(seen.node_id, seen.workload_id)
            and (seen.action is None or is_remembered(entry.history, seen.node_id, seen.action))
        )

    def take_all(self, node_id: NodeId, listed: Sequence[Observation], seen_at: datetime) -> None:
        """A full list of a node: every other workload assigned to it is absent."""
        for seen in listed:
            self.take(seen, polled_at=seen_at)
        self._take_absences(node_id, {seen.workload_id for seen in listed}, seen_at)
        self._listed(node_id, listed)

    def _take_absences(
        self, node_id: NodeId, present: Collection[WorkloadId], seen_at: datetime
    ) -> None:
        assigned = self._cluster.on_node.get(node_id, set())
        stale = self._cluster.tombstones.get(node_id, {})
        for workload_id in [*assigned, *stale]:
            if workload_id not in present:
                self.take(Observation(workload_id, node_id, Actual.ABSENT, seen_at))


def _lacks_revision(seen: Observation, entry: WorkloadState) -> bool:
    """Heartbeats of some agents have no revisions: during an update they may describe the old one.

    The node reports the revision when it is polled, so only polls count while an order is in progress.
    """
    return (
        entry.dispatch is not None
        and not seen.revision
        and seen.actual is not Actual.ABSENT
        and entry.revision_from == seen.node_id
    )


def _with_known_revision(seen: Observation, entry: WorkloadState) -> Observation:
    """Heartbeats of some agents have no revisions: the last reported revision of the copy still applies."""
    old = entry.observation
    if seen.revision or old is None or not old.revision or seen.actual is Actual.ABSENT:
        return seen
    return replace(seen, revision=old.revision) if old.node_id == seen.node_id else seen


def _with_known_action(seen: Observation, entry: WorkloadState) -> Observation:
    """A full list has no actions: the last reported action of an unchanged copy still applies."""
    old = entry.observation
    if seen.action is not None or old is None or old.action is None:
        return seen
    is_unchanged = (old.node_id, old.actual, old.revision, old.epoch) == (
        seen.node_id,
        seen.actual,
        seen.revision,
        seen.epoch,
    )
    return replace(seen, action=old.action) if is_unchanged else seen


def _has_texts_of(old: Observation, seen: Observation) -> bool:
    """Whether it is an unchanged report, whose texts were checked before."""
    return (
        seen.metadata is old.metadata
        and seen.message is old.message
        and seen.failure is old.failure
    )


def _bounded(seen: Observation) -> Observation:
    failure = seen.failure
    if _is_short(seen.message) and failure is None and _are_short(seen.metadata):
        return seen
    return replace(
        seen,
        message=seen.message[:TEXT_LENGTH_MAX],
        failure=failure and replace(failure, message=failure.message[:TEXT_LENGTH_MAX]),
        metadata={
            key: value[:TEXT_LENGTH_MAX]
            for key, value in islice(seen.metadata.items(), METADATA_COUNT_MAX)
            if len(key) <= METADATA_KEY_LENGTH_MAX
        },
    )


def _is_short(text: str) -> bool:
    return len(text) <= TEXT_LENGTH_MAX


def _are_short(metadata: Mapping[str, str]) -> bool:
    return (
        len(metadata) <= METADATA_COUNT_MAX
        and max(map(len, metadata), default=0) <= METADATA_KEY_LENGTH_MAX
        and max(map(len, metadata.values()), default=0) <= TEXT_LENGTH_MAX
    )


def _differs(old: Observation, new: Observation) -> bool:
    return (
        old.actual is not new.actual
        or old.revision != new.revision
        or old.epoch != new.epoch
        or old.failure != new.failure
        or old.action != new.action
        or old.node_id != new.node_id
        or (old.metadata is not new.metadata and _reports_change(old.metadata, new.metadata))
    )


def _reports_change(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    return (
        old.get(HEALTH) != new.get(HEALTH)
        or old.get(DRIFT) != new.get(DRIFT)
        or has_restarted(old, new)
        or has_moved(old, new)
    )


class TaskHistory:
    def __init__(
        self, cluster: ClusterState, committer: Committer, reconciler: Reconciler, clock: Clock
    ) -> None:
        self._cluster = cluster
        self._committer = committer
        self._reconciler = reconciler
        self._clock = clock

    async def note(
        self, inquiry: FetchActions, actions: Sequence[Action], problem: str, health: str
    ) -> None:
        """Store the reply of the node. `problem`: why there is none. `health`: problems of the node."""

        async def commit() -> None:
            await self._committer.commit(self._change(inquiry, actions, problem, health))

        try:
            await self._reconciler.run_exclusive(inquiry.workload_id, commit)
        except (StoreUnavailableError, ConflictError) as err:
            # The timeout itself is stored; only the node's reply about it is lost.
            log.warning("history.lost", workload_id=inquiry.workload_id, reason=str(err))

    async def keep(
        self, node_id: NodeId, workload_id: WorkloadId, actions: Sequence[Action]
    ) -> None:
        """Store tasks that have ended, for later queries."""

        async def commit() -> None:
            entry, now = self._cluster.workloads.get(workload_id), self._clock.now()
            if entry is None:
                return
            history = remember(entry.history, workload_id, node_id, actions, now=now)

            def done() -> None:
                entry.history = history

            await self._committer.commit(
                Transaction(done=done, puts={keys.history_key(workload_id): history})
            )

        try:
            await self._reconciler.run_exclusive(workload_id, commit)
        except (StoreUnavailableError, ConflictError) as err:
            log.warning("history.lost", workload_id=workload_id, reason=str(err))

    def _change(
        self, inquiry: FetchActions, actions: Sequence[Action], problem: str, health: str
    ) -> Transaction:
        now = self._clock.now()
        entry = self._cluster.workloads.get(inquiry.workload_id)
        change = Transaction(done=lambda: None)
        if entry is None:
            return change  # it was deleted with its history
        change.events.append(
            Event(
                now,
                EventKind.OPERATION_TIMED_OUT,
                describe_timeout(inquiry.about, actions, problem, health),
                workload_id=inquiry.workload_id,
                node_id=inquiry.node_id,
                revision=entry.workload.revision,
                epoch=inquiry.epoch,
            )
        )
        if actions:
            history = remember(
                entry.history, inquiry.workload_id, inquiry.node_id, actions, now=now
            )

            def update() -> None:
                entry.history = history

            change.puts[keys.history_key(inquiry.workload_id)] = history
            change.also_when_done(update)
        return change
