"""The three ways to end recovery mode: restore a snapshot, rebuild from agents, accept the store as it is.

Each replaces the content of the store and writes the marker last: a crash before that keeps recovery mode on.
Nodes are polled first, so that nothing is started twice and nothing that runs is restarted. Occurrences and
attempts of jobs that may have happened since the records were written are not repeated: the changed records
of jobs are written before the marker, so no scheduler decides about a job in between.
"""

import asyncio
import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

import structlog
from msgspec import Struct
from msgspec.structs import replace

from persys.core.epochs import restart_at
from persys.core.jobs.schedule import recovered_job, recovered_runs
from persys.core.recovery.merge import Merged, NodeReport, Recorded, merge
from persys.core.recovery.mode import RecordsLost, accepted_uids
from persys.errors import AgentUnreachableError, RefusedError
from persys.infra.clock import Clock
from persys.model.cluster import ClusterMarker
from persys.model.ids import NodeId
from persys.model.node import Node
from persys.model.workload import Workload
from persys.scheduler.commit.committer import Committer
from persys.scheduler.commit.store_watch import Restore, StoreWatch
from persys.scheduler.ha.leader_key import LeaderKey
from persys.scheduler.jobs.jobs import job_event
from persys.scheduler.ports import Agents
from persys.scheduler.recovery.pending_nodes import PendingNodes
from persys.scheduler.state.cluster import ClusterState
from persys.scheduler.state.records import type_of
from persys.scheduler.state.sync import in_snapshot, load, rebuilt
from persys.store import keys
from persys.store.port import Record, Snapshot, Store, Unit
from persys.wire.stored import records
from persys.wire.stored.snapshot import Contents

log = structlog.get_logger()

NODES_ASKED_AT_ONCE = 32
UNITS_PER_COMMIT = 2000
UNREADABLE_NAMED_MAX = 100


@dataclass(frozen=True, slots=True)
class Recovered:
    nodes: int
    workloads: int
    left_out: Sequence[str] = ()
    reported: Sequence[tuple[NodeId, Workload]] = ()  # described only by reports of nodes


class Recovery:
    def __init__(
        self,
        cluster: ClusterState,
        committer: Committer,
        watch: StoreWatch,
        agents: Agents,
        pending_nodes: PendingNodes,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._committer = committer
        self._watch = watch
        self._agents = agents
        self._pending_nodes = pending_nodes
        self._clock = clock
        self._busy = False

    async def restore(self, contents: Contents) -> Recovered:
        self._check_may_restore()
        header = contents.header
        kept = [(key, value) for key, value in contents.records if in_snapshot(key)]
        base, now = ClusterState(), self._clock.now()
        await asyncio.to_thread(load, base, _snapshot(kept), lease_until=0.0, now=now)
        merged = await self._merged(base, await self._reports(base), ())
        merged.left_out.extend(str(one) for one in base.quarantined[:UNREADABLE_NAMED_MAX])
        why = f"a snapshot of {header.taken_at:%Y-%m-%d %H:%M:%S} UTC was restored"
        if not self._committer.modes.in_recovery:
            self._check_may_restore()
            self._committer.modes.take(
                RecordsLost("a snapshot is being restored", header.cluster_uid)
            )
        marker = self._marker(header.cluster_uid)
        encoded = await asyncio.to_thread(rebuilt, merged, base)
        encoded |= await self._recovered_jobs(base)
        return await self._replace(encoded, merged, marker, why)

    async def rebuild(self, *, allow_secrets: Collection[str], dry_run: bool) -> Recovered:
        """Rebuild from the records in memory, if any, and from what every node reports and stores.

        A workload that only its node describes is left out if it refers to secrets that are not in
        `allow_secrets`. With `dry_run` nothing is changed.
        """
        self._check_in_recovery()
        reports = await self._reports(self._cluster)
        merged = await self._merged(self._cluster, reports, allow_secrets)
        if not merged.nodes:
            raise RefusedError(
                "no node is known yet: agents retry registration every few seconds; check "
                "`persysctl recovery status` and try again"
            )
        reported = _reported(reports, self._cluster)
        if dry_run:
            return Recovered(len(merged.nodes), len(merged.workloads), merged.left_out, reported)
        condition, known = self._committer.modes.condition, self._committer.leader_key.marker
        marker = self._marker(condition.awaits or (known.uid if known else ""))
        encoded = await asyncio.to_thread(rebuilt, merged, self._cluster)
        encoded |= await self._recovered_jobs(self._cluster)
        done = await self._replace(encoded, merged, marker, "rebuilt from the agents")
        return dataclasses.replace(done, reported=reported)

    async def accept(self) -> Recovered:
        """Continue with the present content of the store. Other copies on nodes become orphans."""
        self._check_in_recovery()

        async def write(store: Store, leader_key: LeaderKey) -> str:
            await leader_key.check_marker_replaceable()
            stored = await leader_key.stored_marker()
            marker = self._marker(stored.uid if stored else "")
            # The discarded records may have had another proof key.
            counter = self._cluster.epochs.restarted(self._epochs_used(self._cluster))
            counter = replace(counter, proofs_lost=True)
            await _put(store, leader_key, {keys.EPOCHS: records.encode(counter)})
            await _put(
                store, leader_key, await self._recovered_jobs(await self._stored_jobs(store))
            )
            await _put(store, leader_key, {keys.CLUSTER: records.encode(marker)})
            leader_key.marker = marker
            return "the content of the store was accepted"

        await self._restore_exclusively(write)
        return Recovered(len(self._cluster.nodes), len(self._cluster.workloads))

    async def _recovered_jobs(self, base: ClusterState) -> dict[str, bytes]:
        """The records of jobs that replace those of `base`."""
        return await asyncio.to_thread(_recovered_jobs, base, self._clock.now())

    async def _stored_jobs(self, store: Store) -> ClusterState:
        """The jobs, runs and events in the store."""
        found = [await store.read(prefix) for prefix in (keys.JOBS, keys.RUNS, keys.EVENTS)]
        kept = [(one.key, one.value) for snapshot in found for one in snapshot.records]
        base, now = ClusterState(), self._clock.now()
        await asyncio.to_thread(load, base, _snapshot(kept), lease_until=0.0, now=now)
        return base

    def _check_in_recovery(self) -> None:
        modes = self._committer.modes
        if not modes.in_recovery:
            raise RefusedError(
                f"the control plane is in {modes.state.mode} mode: expected recovery mode"
            )

    def _check_may_restore(self) -> None:
        modes, entries = self._committer.modes, self._cluster.workloads
        if modes.in_recovery:
            return
        if modes.is_frozen:
            raise modes.refusal()
        if entries:
            raise RefusedError(
                f"the cluster is in normal mode and has {len(entries)} workloads, such as {min(entries)}; "
                "a restore would replace them: delete them first, or restore into an empty cluster"
            )

    def _marker(self, uid: str) -> ClusterMarker:
        """A marker that accepts every other cluster uid that agents reported: their loss is acknowledged."""
        committer = self._committer
        marker = committer.leader_key.new_marker()
        marker = replace(marker, uid=uid or marker.uid)
        known = committer.leader_key.marker
        ours = [committer.modes.condition.awaits]
        if known is not None:
            ours += [known.uid, *known.accepted]
        accepted = accepted_uids(marker.uid, ours, self._pending_nodes.uids())
        return replace(marker, accepted=accepted)

    async def _reports(self, base: ClusterState) -> list[NodeReport]:
        nodes = {node_id: member.node for node_id, member in base.nodes.items()}
        for node_id, member in self._cluster.nodes.items():
            nodes[node_id] = _with_operator_settings(nodes.get(node_id), member.node)
        for pending_node in self._pending_nodes.all():
            node = pending_node.node
            nodes[node.id] = _with_operator_settings(nodes.get(node.id), node)
        return await self._poll_nodes(nodes.values())

    async def _merged(
        self, base: ClusterState, reports: Sequence[NodeReport], allow_secrets: Collection[str]
    ) -> Merged:
        """In a thread: 100,000 workloads take seconds, and heartbeats are served meanwhile."""
        return await asyncio.to_thread(
            merge,
            _recorded(base),
            reports,
            epochs_used=self._epochs_used(base),
            allow_secrets=allow_secrets,
            now=self._clock.now(),
        )

    def _epochs_used(self, base: ClusterState) -> int:
        known = (base.epochs.reserved_until, self._cluster.epochs.reserved_until)
        return restart_at(known, now=self._clock.now())

    async def _poll_nodes(self, nodes: Iterable[Node]) -> list[NodeReport]:
        slots = asyncio.Semaphore(NODES_ASKED_AT_ONCE)

        async def poll(node: Node) -> NodeReport:
            async with slots:
                try:
                    return NodeReport(
                        node,
                        await self._agents.list_workloads(node.id, node.endpoint),
                        await self._agents.intents(node.id, node.endpoint),
                    )
                except AgentUnreachableError as err:
                    return NodeReport(node, problem=str(err))

        async with asyncio.TaskGroup() as group:
            polls = [group.create_task(poll(node)) for node in nodes]
        return [one.result() for one in polls]

    async def _replace(
        self, kept: Mapping[str, bytes], merged: Merged, marker: ClusterMarker, why: str
    ) -> Recovered:
        async def write(store: Store, leader_key: LeaderKey) -> str:
            await leader_key.check_marker_replaceable()
            found = await store.read("/")
            stale = [one.key for one in found.records if type_of(one.key) is not None]
            await _remove(store, leader_key, [keys.CLUSTER])
            await _remove(store, leader_key, [key for key in stale if key not in kept])
            await _put(store, leader_key, kept)
            await _put(store, leader_key, {keys.CLUSTER: records.encode(marker)})
            leader_key.marker = marker
            return why

        await self._restore_exclusively(write)
        log.info("cluster.recovered", nodes=len(merged.nodes), workloads=len(merged.workloads))
        return Recovered(len(merged.nodes), len(merged.workloads), merged.left_out)

    async def _restore_exclusively(self, write: Restore) -> None:
        if self._busy:
            raise RefusedError("another recovery is in progress; wait until it has ended")
        self._busy = True
        try:
            await self._watch.restore(write)
        finally:
            self._busy = False


def _recovered_jobs(base: ClusterState, now: datetime) -> dict[str, bytes]:
    """Jobs and runs that replace those of `base`, and new events: see core/jobs/schedule.py."""
    found: dict[str, Struct] = {}
    number = base.events.last_sequence
    for job in list(base.jobs.values()):
        recovered, event = recovered_job(job, now)
        if recovered is not job:
            found[keys.job_key(job.job_id)] = recovered
        if event is not None:
            number += 1
            found[keys.event_key(now, number)] = job_event(job.job_id, event, now=now)
    known = list(base.runs.all())
    for run, marked in zip(known, recovered_runs(known, now), strict=True):
        if marked is not run:
            found[keys.run_key(run.job_id, run.run_id)] = marked
    return {key: records.encode(record) for key, record in found.items()}


def _reported(reports: Iterable[NodeReport], base: ClusterState) -> list[tuple[NodeId, Workload]]:
    return [
        (report.node.id, intent.workload)
        for report in reports
        for intent in report.intents
        if intent.workload.id not in base.workloads
    ]


def _recorded(base: ClusterState) -> Recorded:
    return Recorded(
        {node_id: member.node for node_id, member in base.nodes.items()},
        {workload_id: entry.workload for workload_id, entry in base.workloads.items()},
        {
            workload_id: entry.assignment
            for workload_id, entry in base.workloads.items()
            if entry.assignment is not None
        },
        tuple(one for stale in base.tombstones.values() for one in stale.values()),
    )


def _with_operator_settings(old: Node | None, new: Node) -> Node:
    """The newest registration of the node, with cordon, drain and taints of the operator."""
    if old is None:
        return new
    return replace(new, cordoned=old.cordoned, drain=old.drain, taints=old.taints)


def _snapshot(kept: Iterable[tuple[str, bytes]]) -> Snapshot:
    return Snapshot(0, tuple(Record(key, value, 0) for key, value in sorted(kept)))


async def _put(store: Store, leader_key: LeaderKey, values: Mapping[str, bytes]) -> None:
    await _commit(store, leader_key, (Unit(puts={key: value}) for key, value in values.items()))


async def _remove(store: Store, leader_key: LeaderKey, gone: Sequence[str]) -> None:
    await _commit(store, leader_key, (Unit(deletes=[key]) for key in gone))


async def _commit(store: Store, leader_key: LeaderKey, units: Iterable[Unit]) -> None:
    waiting = iter(units)
    while together := list(islice(waiting, UNITS_PER_COMMIT)):
        await store.commit(together, fence=leader_key.fence)
