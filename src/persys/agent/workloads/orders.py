"""Accepts orders: validates each, compares it with the journal, and stores it before replying."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import assert_never

from msgspec.structs import replace

from persys.agent.journal.recorder import Recorder
from persys.agent.journal.records import DeletionMarker, Entry, JournalChange, ReportedStatus
from persys.agent.journal.shared_commit import Commit
from persys.agent.journal.store import Journal
from persys.agent.networks.controller import NetworkController
from persys.agent.ports import Volumes
from persys.agent.workloads import failpoints
from persys.agent.workloads.admission import Admission
from persys.agent.workloads.node_policy import NodePolicy
from persys.agent.workloads.steps import volumes_of
from persys.agent.workloads.worker import Worker
from persys.core.agent.admission import AcceptedOrder, Draining, Stale, Unchanged, classify_order
from persys.core.agent.next_step import of_repeated_order, of_repeated_run
from persys.core.agent.progress import Progress
from persys.errors import InvalidError, StaleEpochError, UnavailableError
from persys.infra.aio.keyed_lock import KeyedLock
from persys.infra.aio.owned_work import OwnedWork
from persys.infra.clock import Clock
from persys.infra.failpoints import failpoint
from persys.model.action import ActionKind
from persys.model.ids import WorkloadId
from persys.model.placement import Resources
from persys.model.spec import WorkloadType
from persys.model.status import Actual, Failure, FailureReason
from persys.model.workload import Desired, Order
from persys.wire.agent.legacy_agents import RUNTIME_NOT_AVAILABLE
from persys.wire.stored.revision import revision_of

VOLUME_CHECK_SECONDS = 20.0
NETWORKS_NOT_AVAILABLE = "NetworksNotAvailable"
NETWORK_TYPES = frozenset({WorkloadType.CONTAINER, WorkloadType.COMPOSE})  # that can join networks


@dataclass(frozen=True, slots=True)
class Accepted:
    entry: Entry


@dataclass(frozen=True, slots=True)
class Skipped:
    """The order is already applied or in progress."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Refused:
    failure: Failure


class OrderService:
    def __init__(
        self,
        journal: Journal,
        locks: KeyedLock[WorkloadId],
        worker: Worker,
        recorder: Recorder,
        clock: Clock,
        *,
        policy: NodePolicy,
        volumes: Volumes,
        admission: Admission,
        types: Collection[WorkloadType],
        report: Callable[[WorkloadId], None],
        is_draining: Callable[[], bool],
        is_established_for: Callable[[Order], Awaitable[bool]],
        owned: OwnedWork,
        networks: NetworkController | None = None,
    ) -> None:
        """`is_established_for`: whether the leader has responded, so that stop_after can be measured.

        Orders are processed in tasks of the process (`owned`): they complete even if the caller disconnects.
        """
        self._journal = journal
        self._locks = locks
        self._worker = worker
        self._recorder = recorder
        self._clock = clock
        self.policy = policy
        self._volumes = volumes
        self._admission = admission
        self._types = types
        self._report = report
        self._is_draining = is_draining
        self._is_established_for = is_established_for
        self._owned = owned
        self._networks = networks

    async def apply(
        self,
        order: Order,
        *,
        intent: bytes = b"",
        commit: Commit | None = None,
        deadline_seconds: float = 0,
    ) -> Accepted | Skipped | Refused:
        """`intent` is stored for the scheduler; `commit` writes to the journal, None: at once.

        Raises StaleEpochError; UnavailableError also at the deadline (0: none), and the order continues.
        """
        return await self._owned.finish(
            "order.apply",
            order.workload_id,
            partial(self._apply, order, intent, commit or self._journal.commit),
            deadline_seconds=deadline_seconds,
        )

    async def delete(self, workload_id: WorkloadId, epoch: int, *, keeps_data: bool = False) -> str:
        """Returns the message for the caller. Raises StaleEpochError, UnavailableError."""
        return await self._owned.finish(
            "order.delete",
            workload_id,
            partial(self._delete, workload_id, epoch, keeps_data=keeps_data),
        )

    async def _apply(
        self, order: Order, intent: bytes, commit: Commit
    ) -> Accepted | Skipped | Refused:
        refusal = await self._refusal(order)
        if refusal is not None:
            return Refused(refusal)
        if not await self._is_established_for(order):
            text = (
                "cannot guarantee stop_after: no leading scheduler has responded to this node yet"
            )
            return Refused(Failure(FailureReason.RUNTIME_ERROR, text, code="NoContact"))
        if not order.revision:
            order = replace(order, revision=revision_of(order.spec, Resources(), {}))
        async with self._locks.hold(order.workload_id):
            known = self._journal.entries.get(order.workload_id)
            match self._receive(order, known):
                case AcceptedOrder(order=order) if known is None:
                    if (full := await self._admission.refusal(order)) is not None:
                        return Refused(full)
                    with self._admission.arriving(order):
                        return await self._accept(order, None, intent, commit)
                case AcceptedOrder(order=order):
                    return await self._accept(order, known, intent, commit)
                case Unchanged(order=order):
                    assert known is not None, "an unchanged order has an entry"
                    return Skipped(await self._renew(known, order, intent or known.intent, commit))
                case Stale() as stale:
                    raise _stale(order.workload_id, order.epoch, stale)
                case Draining():
                    text = "this node is draining and accepts no new workloads"
                    reason = FailureReason.INSUFFICIENT_RESOURCES
                    return Refused(Failure(reason, text, code="Draining"))
                case unreachable:
                    assert_never(unreachable)

    async def _accept(
        self, order: Order, known: Entry | None, intent: bytes, commit: Commit
    ) -> Accepted:
        entry = await self._take(order, known, ActionKind.APPLY, commit, intent=intent)
        failpoint(failpoints.ACCEPTED)
        return Accepted(entry)

    async def _delete(self, workload_id: WorkloadId, epoch: int, *, keeps_data: bool) -> str:
        async with self._locks.hold(workload_id):
            known = self._journal.entries.get(workload_id)
            if known is None:
                await self._fence(workload_id, epoch)
                return f"workload not found: {workload_id}"
            order = replace(
                known.order, desired=Desired.DELETED, epoch=epoch, keeps_data=keeps_data
            )
            match self._receive(order, known):
                case AcceptedOrder(order=order):
                    await self._take(order, known, ActionKind.DELETE, self._journal.commit)
                    failpoint(failpoints.DELETE_ACCEPTED)
                    return "delete accepted"
                case Stale() as stale:
                    raise _stale(workload_id, epoch, stale)
                case _:
                    return "delete is in progress"

    async def _fence(self, workload_id: WorkloadId, epoch: int) -> None:
        """Reject older orders from now on: an apply order may still be in transit."""
        if epoch <= self._journal.deleted_epoch(workload_id):
            return
        known = self._journal.deletion_markers.get(workload_id)
        marker = DeletionMarker(
            workload_id,
            epoch,
            acknowledged=True,
            was_here=known is not None and known.was_here,
            cluster_uid=self._journal.cluster_uid,
        )
        await self._journal.commit(JournalChange(deletion_markers=[marker]))

    def _receive(
        self, order: Order, known: Entry | None
    ) -> AcceptedOrder | Unchanged | Stale | Draining:
        known_order = known.order if known is not None else None
        if known is not None and not self._is_own_cluster(known.cluster_uid):
            known_order = replace(known.order, epoch=0)
        return classify_order(
            order,
            known_order,
            failed=known is not None and _needs_an_order(known),
            deleted_epoch=self._journal.deleted_epoch(order.workload_id),
            draining=self._is_draining(),
        )

    def _is_own_cluster(self, cluster_uid: str) -> bool:
        """Whether an epoch belongs to the present cluster. A cluster that lost its store counts from the
        start again, so epochs of different clusters do not compare."""
        return cluster_uid in ("", self._journal.cluster_uid)

    async def _refusal(self, order: Order) -> Failure | None:
        if order.type not in self._types:
            return Failure(
                FailureReason.RUNTIME_ERROR,
                f"{order.type} runtime not available on this node",
                code=RUNTIME_NOT_AVAILABLE,
            )
        if order.networks and (problem := self._networks_problem(order)):
            text = f"networks are not available on this node: {problem}"
            return Failure(FailureReason.NETWORK_ERROR, text, code=NETWORKS_NOT_AVAILABLE)
        try:
            if not self._runs_already(order):
                self.policy.check(order.spec)
            await self._check_volumes(order)
        except InvalidError as err:
            return Failure(FailureReason.INVALID_SPEC, str(err), retryable=False)
        return None

    def _networks_problem(self, order: Order) -> str:
        if self._networks is None:
            return "it has no Docker"
        if order.type not in NETWORK_TYPES:
            return f"a {order.type} cannot join networks yet"
        return self._networks.host_problem

    async def _check_volumes(self, order: Order) -> None:
        """Orders that are sent again while a file system hangs do not accumulate."""
        try:
            async with asyncio.timeout(VOLUME_CHECK_SECONDS):
                await self._volumes.check(order)
        except TimeoutError:
            raise UnavailableError(
                f"the volumes of {order.workload_id} were not checked within {VOLUME_CHECK_SECONDS:g}s"
            ) from None

    def _runs_already(self, order: Order) -> bool:
        """Running workloads continue under a stricter policy; only new work and new specs are refused."""
        known = self._journal.entries.get(order.workload_id)
        return known is not None and known.order.spec == order.spec and not _needs_an_order(known)

    async def _take(
        self,
        order: Order,
        known: Entry | None,
        kind: ActionKind,
        commit: Commit,
        *,
        intent: bytes = b"",
    ) -> Entry:
        now = self._clock.now()
        action = self._recorder.new_action(order.workload_id, kind)
        entry = Entry(
            order=order,
            generation=known.generation + 1 if known is not None else 1,
            action_id=action.id,
            created_at=known.created_at if known is not None else now,
            updated_at=now,
            status=ReportedStatus(Actual.PENDING, now),
            progress=_first_progress(order, known),
            volumes={**(known.volumes if known is not None else {}), **volumes_of(order.spec)},
            intent=intent,
            cluster_uid=self._journal.cluster_uid,
        )
        ended = self._recorder.superseded(known) if known is not None else []
        change = JournalChange(entry=entry, actions=[*ended, action], undeleted=order.workload_id)
        await commit(change)
        self._report(order.workload_id)
        self._worker.interrupt(order.workload_id)
        return entry

    async def _renew(self, known: Entry, order: Order, intent: bytes, commit: Commit) -> Entry:
        """Store a newer assignment, or new rules, for a workload that is already here."""
        if order == known.order and intent == known.intent:
            return known
        entry = replace(known, order=order, intent=intent, cluster_uid=self._journal.cluster_uid)
        await commit(JournalChange(entry=entry))
        self._report(order.workload_id)
        return entry


def _first_progress(order: Order, known: Entry | None) -> Progress:
    if known is not None and order.run_once and order.revision == known.order.revision:
        return of_repeated_run(known.progress)
    if known is None or order.desired is not Desired.RUNNING:
        return Progress()
    is_repeated = (order.revision, order.desired) == (known.order.revision, known.order.desired)
    return of_repeated_order(known.progress) if is_repeated else Progress()


def _needs_an_order(known: Entry) -> bool:
    """Whether a repeated order is new work: the workload failed, or was stopped because contact was lost."""
    return known.status.actual is Actual.FAILED or known.progress.halted


def _stale(workload_id: WorkloadId, epoch: int, stale: Stale) -> StaleEpochError:
    known = stale.known_epoch
    text = f"workload {workload_id}: stale epoch {epoch}: this node has epoch {known}"
    if stale.deleted:
        text = f"workload {workload_id}: epoch {epoch} was deleted here: expected an epoch above {known}"
    return StaleEpochError(text, known_epoch=known, deleted=stale.deleted)
