"""The mode, snapshots, and the commands that end recovery mode. They refuse with OK and a reason."""

import asyncio
from collections.abc import AsyncIterator

from persys import __version__
from persys.core.recovery.mode import ModeCondition
from persys.model.cluster import Mode
from persys.scheduler.api.methods import Context
from persys.scheduler.commit.committer import Committer
from persys.scheduler.recovery.pending_nodes import PendingNodes
from persys.scheduler.recovery.recovery import Recovered, Recovery
from persys.scheduler.recovery.snapshots import Snapshots
from persys.scheduler.state.cluster import ClusterState
from persys.wire.control.views import recovered_view
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.stored import snapshot
from persys.wire.times import timestamp

LEFT_OUT_SHOWN_MAX = 1000
RECOVERED_SHOWN_MAX = 500
_COUNT_MAX = 2**31 - 1  # of an int32 field

_NEXT_STEPS = {
    Mode.NORMAL: (),
    Mode.DEGRADED: (
        "running workloads are not affected; changes are refused",
        "persysctl snapshot save FILE    save the scheduler's memory before it restarts",
        "restore the store with its data: the control plane resumes automatically",
    ),
    Mode.RECOVERY: (
        "running workloads are not affected; changes are refused, nothing is deleted",
        "persysctl snapshot save FILE    save the scheduler's memory before anything else",
        "restore the store's data if possible: the control plane resumes automatically",
        "persysctl snapshot restore FILE    restore a snapshot; newer data of agents takes precedence",
        "persysctl recovery rebuild-from-agents    rebuild from the scheduler's memory and the agents",
        "persysctl recovery accept-empty    continue with the present store; copies on agents become orphans",
    ),
}


class RecoveryApi:
    def __init__(
        self,
        recovery: Recovery,
        snapshots: Snapshots,
        committer: Committer,
        cluster: ClusterState,
        pending_nodes: PendingNodes,
        *,
        store: str,
        cluster_id: str,
    ) -> None:
        self._recovery = recovery
        self._snapshots = snapshots
        self._committer = committer
        self._cluster = cluster
        self._pending_nodes = pending_nodes
        self._store = store
        self._cluster_id = cluster_id

    async def GetMode(
        self, request: control_pb2.GetModeRequest, context: Context
    ) -> control_pb2.ModeView:
        modes, leader_key = self._committer.modes, self._committer.leader_key
        state = modes.state
        view = control_pb2.ModeView(
            mode=state.mode,
            reason=state.reason,
            since=timestamp(state.since),
            store=self._store,
            role="leader",
            leader=leader_key.name,
            leader_endpoint=leader_key.endpoint,
            version=__version__,
            cluster_id=self._cluster_id,
            data_age_ms=round(modes.data_age().total_seconds() * 1000),
            cluster_uid=_uid(modes.condition, leader_key.marker.uid if leader_key.marker else ""),
            nodes=len(self._cluster.nodes),
            workloads=len(self._cluster.workloads),
            next_steps=_NEXT_STEPS[state.mode],
        )
        if modes.in_recovery:
            view.workloads_on_agents = self._on_agents()
        return view

    async def SaveSnapshot(
        self, request: control_pb2.SaveSnapshotRequest, context: Context
    ) -> AsyncIterator[control_pb2.SnapshotChunk]:
        chunks = await self._snapshots.take()
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            yield control_pb2.SnapshotChunk(data=chunk)

    async def RestoreSnapshot(
        self, request: AsyncIterator[control_pb2.SnapshotChunk], context: Context
    ) -> control_pb2.RecoveryAnswer:
        chunks = [chunk.data async for chunk in request]
        contents = await asyncio.to_thread(snapshot.read, chunks)
        return _answer(await self._recovery.restore(contents))

    async def RebuildFromAgents(
        self, request: control_pb2.RebuildFromAgentsRequest, context: Context
    ) -> control_pb2.RecoveryAnswer:
        return _answer(
            await self._recovery.rebuild(
                allow_secrets=request.allow_secrets, dry_run=request.dry_run
            )
        )

    async def AcceptEmpty(
        self, request: control_pb2.AcceptEmptyRequest, context: Context
    ) -> control_pb2.RecoveryAnswer:
        return _answer(await self._recovery.accept())

    def _on_agents(self) -> int:
        """Workloads on agents: as reported at registration, else as assigned. Reports may be false."""
        reported = {one.node.id: one.workload_count for one in self._pending_nodes.all()}
        bound = {node_id: len(there) for node_id, there in self._cluster.on_node.items()}
        return min(sum({**bound, **reported}.values()), _COUNT_MAX)


def _uid(condition: ModeCondition, known: str) -> str:
    """The uid of the cluster whose store is awaited, if any."""
    return condition.awaits or known


def _answer(done: Recovered) -> control_pb2.RecoveryAnswer:
    shown = list(done.left_out[:LEFT_OUT_SHOWN_MAX])
    if len(done.left_out) > len(shown):
        shown.append(f"and {len(done.left_out) - len(shown)} more")
    return control_pb2.RecoveryAnswer(
        accepted=True,
        nodes=done.nodes,
        workloads=done.workloads,
        left_out=shown,
        recovered=[recovered_view(*one) for one in done.reported[:RECOVERED_SHOWN_MAX]],
    )
