"""Drift: list where nodes differ from the records, show, adopt and delete orphans."""

from persys.errors import InvalidError
from persys.model.ids import node_id, workload_id
from persys.model.status import Drift, DriftType
from persys.scheduler.api.methods import Context, need
from persys.scheduler.drift.adoption import Adoption
from persys.scheduler.state.cluster import ClusterState
from persys.wire.control.views import orphan_view
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.times import timestamp


class DriftApi:
    def __init__(self, cluster: ClusterState, adoption: Adoption) -> None:
        self._cluster = cluster
        self._adoption = adoption

    async def ListDrifts(
        self, request: control_pb2.ListDriftsRequest, context: Context
    ) -> control_pb2.ListDriftsResponse:
        wanted = _drift_type(request.type) if request.type else None
        unrecorded = self._cluster.unassigned_copies.unrecorded
        return control_pb2.ListDriftsResponse(
            drifts=[
                self._view(drift)
                for drift in self._cluster.drifts
                if request.node_id in ("", drift.node_id)
                and request.workload_id in ("", drift.workload_id)
                and wanted in (None, drift.type)
            ],
            orphans_unrecorded=sum(
                count for name, count in unrecorded.items() if request.node_id in ("", name)
            ),
        )

    async def GetOrphan(
        self, request: control_pb2.OrphanRequest, context: Context
    ) -> control_pb2.OrphanView:
        need(request.node_id, "node_id")
        where, name = node_id(request.node_id), workload_id(request.workload_id)
        reported = await self._adoption.reported(where, name)
        drift = next(
            (one for one in self._cluster.drifts.of(where, name) if one.type is DriftType.ORPHAN),
            None,
        )
        return orphan_view(reported, self._view(drift) if drift is not None else None)

    async def AdoptOrphan(
        self, request: control_pb2.OrphanRequest, context: Context
    ) -> control_pb2.OrphanAnswer:
        need(request.node_id, "node_id")
        await self._adoption.adopt(
            node_id(request.node_id),
            workload_id(request.workload_id),
            allow_secrets=request.allow_secrets,
        )
        return control_pb2.OrphanAnswer(accepted=True)

    async def DeleteOrphan(
        self, request: control_pb2.OrphanRequest, context: Context
    ) -> control_pb2.OrphanAnswer:
        need(request.node_id, "node_id")
        await self._adoption.delete(node_id(request.node_id), workload_id(request.workload_id))
        return control_pb2.OrphanAnswer(accepted=True)

    def _view(self, drift: Drift) -> control_pb2.DriftView:
        unassigned = self._cluster.unassigned_copies.on(drift.node_id).get(drift.workload_id)
        actual = unassigned.seen.actual if unassigned is not None else drift.actual
        return control_pb2.DriftView(
            node_id=drift.node_id,
            workload_id=drift.workload_id,
            type=drift.type,
            detail=drift.detail,
            detected_at=timestamp(drift.detected_at),
            revision_id=drift.revision,
            epoch=drift.epoch,
            state=actual.value.title(),
            adoptable=unassigned is not None and bool(unassigned.adoptable),
        )


def _drift_type(text: str) -> DriftType:
    try:
        return DriftType(text.lower())
    except ValueError as err:
        raise InvalidError("type", f"{text!r}: expected one of {', '.join(DriftType)}") from err
