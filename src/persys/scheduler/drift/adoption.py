"""Adopts or deletes an orphan on request of an operator.

Adopting assigns the copy to its node with a higher epoch and the same revision, so that nothing is restarted.
Deleting writes a tombstone; the copy is then removed like any other. Both refuse copies that are not orphans.
"""

import dataclasses
from collections.abc import Collection

from msgspec.structs import replace

from persys.core.drift import UnassignedCopy
from persys.core.epochs import credible
from persys.core.intent.apply import Accepted
from persys.core.secrets import secret_names
from persys.errors import NotFoundError, RefusedError
from persys.infra.clock import Clock
from persys.model.event import Event, EventKind
from persys.model.ids import NodeId, WorkloadId
from persys.model.placement import Assignment, Tombstone
from persys.model.workload import Membership, Workload
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.transaction import Transaction
from persys.scheduler.drift.records import key_of
from persys.scheduler.drift.tombstones import TombstoneCleaner
from persys.scheduler.ports import Agents
from persys.scheduler.reconcile.reconciler import Reconciler
from persys.scheduler.state.cluster import ClusterState, NodeState
from persys.store import keys


class Adoption:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        reconciler: Reconciler,
        tombstone_cleaner: TombstoneCleaner,
        agents: Agents,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._committer = committer
        self._reconciler = reconciler
        self._tombstone_cleaner = tombstone_cleaner
        self._agents = agents
        self._clock = clock

    async def reported(self, node_id: NodeId, workload_id: WorkloadId) -> Workload | None:
        """The orphan as its node reports it. None: the node does not store the spec."""
        member = self._member(node_id)
        self._orphan(node_id, workload_id)
        intents = await self._agents.intents(node_id, member.node.endpoint)
        kept = next((kept for kept in intents if kept.workload.id == workload_id), None)
        return kept.workload if kept is not None else None

    async def adopt(
        self, node_id: NodeId, workload_id: WorkloadId, *, allow_secrets: Collection[str]
    ) -> None:
        """Raises RefusedError with the reason and what to do instead.

        Secrets named in the reported spec are sent to the node only if they are in `allow_secrets`.
        """
        workload = await self.reported(node_id, workload_id)
        if workload is None:
            raise RefusedError(
                f"node {node_id} does not store the spec of {workload_id}; apply its spec "
                f"under this id with the constraint `node.id = {node_id}`, or delete the orphan"
            )
        if unapproved := sorted(secret_names(workload.spec) - set(allow_secrets)):
            names = ",".join(unapproved)
            raise RefusedError(
                f"the spec that node {node_id} reports refers to the secrets {names}; check it with "
                f"`persysctl orphans get {node_id} {workload_id}`, then adopt it with "
                f"--allow-secrets {names}"
            )

        def transition(old: Workload | None) -> Accepted:
            self._check(old, workload, node_id)
            adopted = replace(workload, updated_at=self._clock.now())
            return Accepted(adopted, EventKind.ORPHAN_ADOPTED)

        orphan = self._orphan(node_id, workload_id)
        if orphan.seen.epoch >= self._cluster.epochs.next:
            self._reconciler.skip_epochs()
        # The operator confirms the copy, so it counts without a proof.
        self._cluster.unassigned_copies.put(dataclasses.replace(orphan, counts=True))
        await self._reconciler.submit(workload_id, transition)

    async def delete(self, node_id: NodeId, workload_id: WorkloadId) -> None:
        self._member(node_id)

        async def attempt() -> Tombstone:
            orphan = self._orphan(node_id, workload_id)
            now = self._clock.now()
            # The epoch fences late repetitions of the removal. An epoch that was never assigned cannot.
            epoch = credible(orphan.seen.epoch, self._cluster.epochs.reserved_until)
            tombstone = Tombstone(Assignment(workload_id, node_id, epoch, now), now)

            def done() -> None:
                self._cluster.put_tombstone(tombstone)
                self._cluster.unassigned_copies.drop(node_id, workload_id)
                for drift in drifts:
                    self._cluster.drifts.drop(drift)

            drifts = self._cluster.drifts.of(node_id, workload_id)
            event = Event(
                now,
                EventKind.ORPHAN_DELETE_ASKED,
                workload_id=workload_id,
                node_id=node_id,
                revision=orphan.seen.revision,
                epoch=orphan.seen.epoch,
            )
            await self._committer.commit(
                Transaction(
                    done=done,
                    puts={keys.tombstone_key(node_id, workload_id): tombstone},
                    drops=[key_of(drift) for drift in drifts],
                    events=[event],
                )
            )
            return tombstone

        self._tombstone_cleaner.request_removal(
            await self._reconciler.run_exclusive(workload_id, attempt)
        )

    def _check(self, old: Workload | None, workload: Workload, node_id: NodeId) -> None:
        self._orphan(node_id, workload.id)
        if old is not None:
            raise RefusedError(f"workload {workload.id} {self._where(workload.id)}")
        found = self._cluster.unassigned_copies.of(workload.id)
        copies = [one.seen.node_id for one in found if one.counts]
        if len(copies) > 1:
            raise RefusedError(
                f"nodes {', '.join(copies)} have a copy of {workload.id}; delete all except one first"
            )
        if workload.membership is not None:
            self._check_owner(workload, workload.membership)
        if why := self._reconciler.refusal(workload, node_id):
            raise RefusedError(f"node {node_id} cannot take {workload.id}: {why}")

    def _check_owner(self, workload: Workload, membership: Membership) -> None:
        """Its owner must keep it: otherwise it would be deleted at once, with its data."""
        if membership.job_id:
            raise RefusedError(
                f"{workload.id} is a member of run {membership.owner} of job {membership.job_id}: "
                "delete the orphan; the retries of the job run it again"
            )
        record = self._cluster.sets.get(membership.owner)
        if record is None:
            return
        index = membership.index
        if not record.every_node and not 0 <= index < record.replicas:
            raise RefusedError(
                f"{workload.id} has index {index} of set {record.set_id}, which has {record.replicas} "
                "replicas: scale the set first, or delete the orphan"
            )
        others = (
            self._cluster.workloads[one].workload
            for one in self._cluster.members.of(membership.owner)
        )
        for other in others:
            if other.membership is not None and other.membership.index == index:
                raise RefusedError(
                    f"set {record.set_id} has the member {other.id} with index {index}: delete the orphan"
                )

    def _where(self, workload_id: WorkloadId) -> str:
        assignment = self._cluster.workloads[workload_id].assignment
        if assignment is None:
            return "exists and waits for a node; it adopts this copy as soon as it fits on the node"
        return (
            f"exists and is assigned to {assignment.node_id} with epoch {assignment.epoch}; "
            "this copy is outdated: delete it"
        )

    def _member(self, node_id: NodeId) -> NodeState:
        member = self._cluster.nodes.get(node_id)
        if member is None:
            raise NotFoundError("node", node_id)
        return member

    def _orphan(self, node_id: NodeId, workload_id: WorkloadId) -> UnassignedCopy:
        found = self._cluster.unassigned_copies.on(node_id).get(workload_id)
        if found is not None:
            return found
        if workload_id in self._cluster.on_node.get(node_id, ()):
            raise RefusedError(
                f"{workload_id} is not an orphan: it is assigned to {node_id}; "
                "to remove it, delete the workload"
            )
        if workload_id in self._cluster.tombstones.get(node_id, {}):
            raise RefusedError(f"{workload_id} on {node_id} is already being removed")
        raise NotFoundError("orphan", f"{workload_id} on {node_id}")
