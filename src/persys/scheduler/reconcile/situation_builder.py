"""Builds the situation of a workload for a decision: its records, observations, node and copies."""

from dataclasses import replace
from datetime import timedelta

from persys.core.nodes import Phase, phase_of
from persys.core.reconcile.situation import Copy, Situation
from persys.infra.clock import Clock
from persys.model import feature
from persys.model.node import NodeStatus
from persys.model.placement import Assignment, Offload, Tombstone
from persys.model.workload import Workload
from persys.scheduler.state.cluster import ClusterState, NodeState, WorkloadState


class SituationBuilder:
    def __init__(
        self,
        cluster: ClusterState,
        clock: Clock,
        *,
        node_lease: timedelta,
        node_grace: float,
        offload_after: timedelta,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._lease = node_lease
        self._node_grace = node_grace
        self._offload_after = offload_after

    def complete_situation(self, situation: Situation) -> Situation:
        if situation.workload.rules.offload is Offload.WHEN_FULL:
            situation = replace(situation, offload_after=self._offload_after)
        return self._with_copies(self._with_node(situation))

    def only_waits(self, situation: Situation) -> bool:
        """Whether only its node can change the situation: it is alive, reports changes and has the only copy.

        Changes of the node wake the workload.
        """
        assert situation.assignment is not None
        workload_id = situation.workload.id
        member = self._cluster.nodes.get(situation.assignment.node_id)
        return (
            member is not None
            and member.node.status is NodeStatus.READY
            and member.node.drain is None
            and feature.PUSHES_STATUS in member.node.capabilities.features
            and workload_id not in self._cluster.waiting
            and workload_id not in self._cluster.may_return
            and not self._cluster.tombstones_of(workload_id)
            and not self._cluster.unassigned_copies.of(workload_id)
        )

    def _with_node(self, situation: Situation) -> Situation:
        if situation.assignment is None:
            return situation
        member = self._cluster.nodes.get(situation.assignment.node_id)
        if member is None:
            return situation
        now = self._clock.monotonic()
        phase = phase_of(lease_until=member.lease_until, grace=self._node_grace, now=now)
        if phase is Phase.ALIVE and member.node.status is NodeStatus.NOT_READY:
            phase = Phase.SUSPECT
        if member.node.confirmed_dead:
            phase = Phase.LOST
        return replace(
            situation,
            phase=phase,
            reports=feature.PUSHES_STATUS in member.node.capabilities.features,
            draining=member.node.drain is not None,
            draining_since=member.node.drain.started_at if member.node.drain else None,
            confirmed_dead=member.node.confirmed_dead,
            tier=member.node.capabilities.tier,
            may_return=situation.workload.id in self._cluster.may_return,
            supports_stop_after=feature.STOP_AFTER in member.node.capabilities.features,
            silent=self._without_heartbeat_for(member),
            in_contact=member.in_contact(lease_seconds=self._lease.total_seconds(), now=now),
            node_workload_count=len(self._cluster.on_node.get(member.node.id, ())),
        )

    def _without_heartbeat_for(self, member: NodeState) -> timedelta:
        over = self._clock.monotonic() - member.lease_until
        return timedelta(seconds=over + member.lease_extra) + self._lease

    def _with_copies(self, situation: Situation) -> Situation:
        workload = situation.workload
        proofs_lost = self._cluster.epochs.proofs_lost
        copies = [
            Copy(
                unassigned.seen.node_id,
                unassigned.seen.epoch,
                counts=unassigned.counts or proofs_lost,
                proven=unassigned.proven,
            )
            for unassigned in self._cluster.unassigned_copies.of(workload.id)
        ]
        copies += [self._old_copy(one) for one in self._cluster.tombstones_of(workload.id)]
        return replace(situation, copies=tuple(copies)) if copies else situation

    def _old_copy(self, tombstone: Tombstone) -> Copy:
        old = tombstone.assignment
        member = self._cluster.nodes.get(old.node_id)
        lost = member is None or member.node.status is NodeStatus.NOT_READY
        dead = member is not None and member.node.confirmed_dead
        has_stopped = (
            lost and tombstone.stops_at is not None and self._clock.now() >= tombstone.stops_at
        )
        return Copy(
            old.node_id,
            old.epoch,
            being_removed=True,
            may_run=not dead and not has_stopped,
            lost=lost,
            draining=member is not None and member.node.drain is not None,
            stops_at=tombstone.stops_at if lost else None,
            kept=tombstone if tombstone.after_running else None,
        )


def situation_of(entry: WorkloadState) -> Situation:
    """A refusal takes precedence over later reports: they may describe the time before the order."""
    refusal = entry.refusal
    return Situation(
        entry.workload,
        entry.assignment,
        entry.workload_status,
        entry.retry,
        refusal or entry.observation,
        refusal.seen_at if refusal is not None else entry.observed_since,
        entry.dispatch,
    )


def fresh_situation(
    entry: WorkloadState | None, workload: Workload, left: Assignment | None
) -> Situation:
    """Only what remains valid for a new intent: the assignment and the status.

    `left` is an assignment whose workload had no readable record until now.
    """
    if entry is None:
        return Situation(workload, left)
    return Situation(workload, entry.assignment, entry.workload_status)
