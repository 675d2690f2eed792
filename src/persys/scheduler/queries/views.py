"""Builds the views of nodes and workloads from memory. Reads never access the store."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import nsmallest
from typing import TypeVar

from persys.core.federation.home_contacts import SILENT
from persys.core.placement.select import Placed, Unplaceable, place
from persys.core.placement.tiers import needs_on_any_tier
from persys.core.reconcile.evacuate import stays_because
from persys.core.reconcile.situation import is_about, satisfies
from persys.errors import InvalidError, NotFoundError
from persys.infra.clock import Clock
from persys.model import feature
from persys.model.ids import NodeId, WorkloadId
from persys.model.node import Drain, NodeStatus
from persys.model.spec import type_of
from persys.model.status import Actual, FailureReason, Observation, Status
from persys.model.workload import Desired
from persys.scheduler.state.cluster import (
    INTERNAL_ERROR,
    BackOff,
    ClusterState,
    NodeState,
    WorkloadState,
)
from persys.wire.agent.messages import REASON_CODE
from persys.wire.control import messages as control_messages
from persys.wire.control.messages import sighting_message
from persys.wire.control.sets import membership_message
from persys.wire.control.spec_encode import spec_message
from persys.wire.control.views import shown_spec
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import timestamp

T = TypeVar("T", bound=str)

VIEWS_BYTES_MAX = 4 * 1024 * 1024  # of full views in one response
DRAIN_BLOCKS_MAX = (
    1000  # of what is left on a draining node: each costs a decision where it could go
)

_NODE_STATUSES = {status.lower(): status for status in NodeStatus}
_WORKLOAD_STATUSES = {status.lower(): status for status in Status}


class Queries:
    def __init__(self, cluster: ClusterState, clock: Clock, *, attempts_max: int) -> None:
        self._cluster = cluster
        self._clock = clock
        self._attempts_max = attempts_max

    def list_nodes(self, status: str) -> list[control_pb2.NodeView]:
        wanted = _status_named(status, _NODE_STATUSES) if status else None
        return [
            self._node_view(member)
            for _, member in sorted(self._cluster.nodes.items())
            if wanted is None or member.node.status is wanted
        ]

    def get_node(self, node_id: str) -> control_pb2.NodeView:
        member = self._cluster.nodes.get(NodeId(node_id))
        if member is None:
            raise NotFoundError("node", node_id)
        return self._node_view(member)

    def list_workloads(self, *, node_id: str, status: str) -> list[control_pb2.WorkloadView]:
        wanted = _status_named(status, _WORKLOAD_STATUSES) if status else None
        return [
            self._workload_view(entry)
            for _, entry in sorted(self._cluster.workloads.items())
            if (wanted is None or _status(entry) is wanted)
            and (not node_id or (entry.assignment and entry.assignment.node_id == node_id))
        ]

    def get_workload(self, workload_id: str) -> control_pb2.WorkloadView:
        entry = self._cluster.workloads.get(WorkloadId(workload_id))
        if entry is None:
            raise NotFoundError("workload", workload_id)
        return self._complete_view(entry)

    def get_workloads(self, workload_ids: Iterable[str]) -> Iterator[control_pb2.WorkloadView]:
        """The existing ones, until the response is full."""
        size = 0
        for workload_id in workload_ids:
            entry = self._cluster.workloads.get(WorkloadId(workload_id))
            if entry is None:
                continue
            view = self._complete_view(entry)
            size += view.ByteSize()
            if size > VIEWS_BYTES_MAX:
                return
            yield view

    def _complete_view(self, entry: WorkloadState) -> control_pb2.WorkloadView:
        view = self._workload_view(entry)
        workload = entry.workload
        if entry.history is not None:
            view.history.extend(map(sighting_message, entry.history.sightings))
        view.spec.CopyFrom(
            spec_message(
                shown_spec(workload),
                workload.resources,
                workload.metadata,
                rules=workload.rules,
                stop_after_seconds=workload.stop_after_seconds,
                networks=workload.networks,
            )
        )
        return view

    def summary(self) -> control_pb2.GetClusterSummaryResponse:
        nodes = Counter(member.node.status for member in self._cluster.nodes.values())
        statuses = Counter(_status(entry) for entry in self._cluster.workloads.values())
        return control_pb2.GetClusterSummaryResponse(
            total_nodes=nodes.total(),
            ready_nodes=nodes[NodeStatus.READY],
            not_ready_nodes=nodes[NodeStatus.NOT_READY],
            total_workloads=statuses.total(),
            running_workloads=statuses[Status.RUNNING],
            pending_workloads=statuses[Status.PENDING],
            failed_workloads=statuses[Status.FAILED],
            deleted_workloads=statuses[Status.DELETING],
            generated_at=timestamp(self._clock.now()),
        )

    def _node_view(self, member: NodeState) -> control_pb2.NodeView:
        node = member.node
        slot = self._cluster.node_index.slots[node.id]
        total = node.capabilities.total
        view = control_pb2.NodeView(
            node_id=node.id,
            status=node.status,
            status_reason=_status_reason(member),
            problems=_problems(member),
            status_updated_by=node.status_by,
            grpc_endpoint=node.endpoint,
            total_cpu_cores=total.cpu_millicores / 1000,
            available_cpu_cores=slot.free.cpu_millicores / 1000,
            total_memory_mb=total.memory_mb,
            available_memory_mb=slot.free.memory_mb,
            supported_workload_types=sorted(node.capabilities.types - member.refused_types),
            labels=node.labels,
            total_disk_gb=total.disk_gb,
            available_disk_gb=slot.free.disk_gb,
            workload_count=len(self._cluster.bound_to(node.id)),
            agent_version=node.agent_version,
            cordoned=node.cordoned,
            confirmed_dead=node.confirmed_dead,
            taints=sorted(node.taints),
            clock_skew_ms=round(member.clock_skew.total_seconds() * 1000),
            tier=node.capabilities.tier,
            core_hour_price=node.capabilities.core_hour_price,
            remote=node.capabilities.remote,
        )
        if member.usage is not None:
            view.usage.CopyFrom(control_messages.usage_message(member.usage))
        if node.drain is not None:
            view.drain.CopyFrom(self._drain_view(member, node.drain))
        if node.status_at is not None:
            view.status_updated_at.CopyFrom(timestamp(node.status_at))
        if member.last_heartbeat is not None:
            view.last_heartbeat.CopyFrom(timestamp(member.last_heartbeat))
        return view

    def _drain_view(self, member: NodeState, drain: Drain) -> control_pb2.DrainView:
        """Drained means empty: no assignment, no tombstone, and no other copy in the list of the node."""
        node_id = member.node.id
        bound = self._cluster.bound_to(node_id)
        # A copy is recorded as an orphan only after a while.
        orphans = {
            *self._cluster.drifts.orphans_on(node_id),
            *self._cluster.unassigned_copies.on(node_id),
        }
        shown = nsmallest(DRAIN_BLOCKS_MAX, bound)
        stale = self._cluster.tombstones.get(node_id, {})
        kept = (name for name, tombstone in stale.items() if tombstone.after_running)
        remaining = len(bound) + len(stale) + len(orphans)
        late = drain.deadline_at is not None and self._clock.now() >= drain.deadline_at
        is_drained = not remaining and _has_listed(member)
        view = control_pb2.DrainView(
            state="drained" if is_drained else "overdue" if late else "draining",
            started_at=timestamp(drain.started_at),
            remaining=remaining,
            blocked=[
                *(self._drain_block(workload_id) for workload_id in shown),
                *(
                    self._kept_block(workload_id)
                    for workload_id in nsmallest(DRAIN_BLOCKS_MAX - len(shown), kept)
                ),
                *(
                    control_pb2.DrainBlock(
                        workload_id=name, reason="is an orphan: adopt or delete it", stays=True
                    )
                    for name in nsmallest(DRAIN_BLOCKS_MAX - len(shown), orphans)
                ),
            ],
        )
        if drain.deadline_at is not None:
            view.deadline_at.CopyFrom(timestamp(drain.deadline_at))
        return view

    def _kept_block(self, workload_id: WorkloadId) -> control_pb2.DrainBlock:
        """A copy that is removed when the workload runs on its next node."""
        entry = self._cluster.workloads.get(workload_id)
        assignment = entry.assignment if entry is not None else None
        where = f" on {assignment.node_id}" if assignment is not None else " on another node"
        return control_pb2.DrainBlock(
            workload_id=workload_id, reason=f"runs here until it is healthy{where}"
        )

    def _drain_block(self, workload_id: WorkloadId) -> control_pb2.DrainBlock:
        block = control_pb2.DrainBlock(workload_id=workload_id)
        if workload_id in self._cluster.detached:
            block.reason, block.stays = "its record is unreadable or missing", True
            return block
        workload = self._cluster.workloads[workload_id].workload
        if workload.desired is Desired.DELETED:
            block.reason = "is being deleted"
        elif because := stays_because(workload):
            block.reason, block.stays = because, not workload.runs_once
        else:
            match place(needs_on_any_tier(workload), self._cluster.node_index):
                case Placed(node_id=elsewhere):
                    block.reason = f"is about to move to {elsewhere}"
                case Unplaceable() as nowhere:
                    block.reason, block.stays = f"fits on no other node: {nowhere.explain()}", True
        return block

    def _workload_view(self, entry: WorkloadState) -> control_pb2.WorkloadView:
        workload, workload_status, retry = entry.workload, entry.workload_status, entry.retry
        view = control_pb2.WorkloadView(
            workload_id=workload.id,
            type=type_of(workload.spec),
            desired_state=_DESIRED[workload.desired],
            status=_status(entry),
            revision_id=workload.revision,
            retry_max_attempts=self._attempts_max,
            last_updated=timestamp(max(workload.updated_at, _changed_at(entry))),
        )
        if entry.assignment is not None:
            view.assigned_node_id = entry.assignment.node_id
            view.epoch = entry.assignment.epoch
            view.placement = entry.assignment.why
            view.admitted_on_node = is_admitted(entry)
            view.dispatch_failed = entry.dispatch is not None and bool(entry.dispatch.problem)
        # After convergence the retry is obsolete, although its record is not deleted yet.
        if retry is not None and not (
            workload_status is not None and satisfies(workload_status, workload)
        ):
            view.retry_attempts = retry.attempts
            if retry.next_at is not None:
                view.retry_next_at.CopyFrom(timestamp(retry.next_at))
                view.reason.next_retry_at.CopyFrom(timestamp(retry.next_at))
        if workload.membership is not None:
            view.membership.CopyFrom(membership_message(workload.membership))
        if workload_status is not None:
            _set_reason(view, entry)
            if workload_status.healthy_since is not None:
                view.healthy_since.CopyFrom(timestamp(workload_status.healthy_since))
        if workload.stopped_because and workload.desired is Desired.STOPPED:
            view.reason.code, view.reason.message = SILENT, workload.stopped_because
        if entry.back_off is not None:
            _set_internal_error(view, entry.back_off)
        if entry.usage is not None:
            view.usage.CopyFrom(control_messages.workload_usage_message(entry.usage))
        return view


def is_admitted(entry: WorkloadState) -> bool:
    """Whether its node has accepted the assignment, by its reply, its reports or the stored status."""
    assignment, dispatch, seen = entry.assignment, entry.dispatch, entry.observation
    if assignment is None or entry.refusal is not None:
        return False
    if dispatch is not None and dispatch.goal.epoch == assignment.epoch and dispatch.answered_at:
        return not dispatch.refused
    if seen is not None:
        return seen.actual is not Actual.ABSENT and is_about(
            seen, entry.workload.revision, assignment
        )
    workload_status = entry.workload_status
    return (
        workload_status is not None
        and workload_status.status in (Status.RUNNING, Status.STOPPED)
        and (workload_status.epoch, workload_status.revision)
        == (assignment.epoch, entry.workload.revision)
    )


def _has_listed(member: NodeState) -> bool:
    """Whether this scheduler has a full list of the node, if its agent sends one."""
    sends_lists = feature.PUSHES_STATUS in member.node.capabilities.features
    return member.has_listed or not sends_lists or member.node.confirmed_dead


def _status_reason(member: NodeState) -> str:
    """The reason of the node status; for a live node the first problem that blocks new work."""
    return next(iter(_problems(member)), member.node.status_reason)


def _problems(member: NodeState) -> list[str]:
    """The problems that block new work on a live node."""
    if member.node.status is NodeStatus.NOT_READY:
        return []
    found = []
    if member.unreachable:
        found.append(f"does not reply to orders: {member.unreachable}")
    if member.journal_problem:
        found.append(f"accepts no orders: {member.journal_problem}")
    elif member.unavailable_types:
        silent = ", ".join(sorted(member.unavailable_types))
        why = f": {member.runtime_problem}" if member.runtime_problem else ""
        found.append(f"runtime does not respond: {silent}{why}")
    if member.unhealthy_types:
        found.append(f"runtime is unhealthy: {', '.join(sorted(member.unhealthy_types))}")
    return found


_DESIRED = {Desired.RUNNING: "Running", Desired.STOPPED: "Stopped", Desired.DELETED: "Deleted"}


def _set_reason(view: control_pb2.WorkloadView, entry: WorkloadState) -> None:
    workload_status = entry.workload_status
    assert workload_status is not None
    if workload_status.code or workload_status.message:
        view.reason.code = workload_status.code
        view.reason.message = workload_status.message
        view.reason.last_transition.CopyFrom(timestamp(workload_status.changed_at))
    if workload_status.status is Status.PENDING and (seen := _progress(entry)) is not None:
        # Progress changes every second: it is shown as last reported, and never stored.
        view.reason.code, view.reason.message = seen.metadata[REASON_CODE], seen.message
    if workload_status.failure is not None:
        view.failure_reason = workload_status.failure.reason
        gave_up = entry.retry is not None and entry.retry.next_at is None
        view.reason.retryable = workload_status.failure.retryable and not gave_up
    seen = entry.observation
    view.metadata.update(seen.metadata if seen is not None else workload_status.metadata)


def _set_internal_error(view: control_pb2.WorkloadView, back_off: BackOff) -> None:
    """Shown instead of the last decision while the workload is not reconciled."""
    view.failure_reason = FailureReason.RUNTIME_ERROR
    view.reason.code = INTERNAL_ERROR
    view.reason.message = back_off.text
    view.reason.retryable = True
    view.reason.next_retry_at.CopyFrom(timestamp(back_off.until))


def _progress(entry: WorkloadState) -> Observation | None:
    """The last observation of a step in progress."""
    seen, assignment = entry.observation, entry.assignment
    if (
        seen is None
        or assignment is None
        or seen.actual is not Actual.PENDING
        or not is_about(seen, entry.workload.revision, assignment)
        or not (seen.message and seen.metadata.get(REASON_CODE))
    ):
        return None
    return seen


def _status(entry: WorkloadState) -> Status:
    return entry.workload_status.status if entry.workload_status is not None else Status.PENDING


def _changed_at(entry: WorkloadState) -> datetime:
    return (
        entry.workload_status.changed_at
        if entry.workload_status is not None
        else entry.workload.updated_at
    )


def _status_named(text: str, known: dict[str, T]) -> T:
    found = known.get(text.lower())
    if found is None:
        raise InvalidError("status", f"{text!r}: expected one of {', '.join(known.values())}")
    return found
