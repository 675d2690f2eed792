"""Stores what nodes did for a workload: ended tasks, and tasks in progress when an operation timed out."""

from collections.abc import Sequence

import structlog

from persys.core.reconcile.effects import FetchActions
from persys.core.reconcile.task_history import describe_timeout, remember
from persys.errors import ConflictError, StoreUnavailableError
from persys.infra.clock import Clock
from persys.model.action import Action
from persys.model.event import Event, EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.reconcile.reconciler import Reconciler
from persys.scheduler.state.cluster import ClusterState
from persys.store import keys

log = structlog.get_logger()


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

            def done() -> None:
                entry.history = history

            change.puts[keys.history_key(inquiry.workload_id)] = history
            change.done = done
        return change
