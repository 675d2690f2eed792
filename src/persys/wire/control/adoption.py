"""Views of workloads as nodes report them. Operators review them before an adoption or a rebuild."""

from persys.core.secrets import secret_names
from persys.model.ids import NodeId
from persys.model.workload import Workload
from persys.wire.control.spec_encode import spec_message
from persys.wire.gen.control.v1 import control_pb2


def orphan_view(
    reported: Workload | None, drift: control_pb2.DriftView | None
) -> control_pb2.OrphanView:
    """`reported` is None when the node does not store the spec."""
    view = control_pb2.OrphanView(drift=drift)
    if reported is not None:
        view.spec.CopyFrom(_spec(reported))
        view.secrets.extend(sorted(secret_names(reported.spec)))
    return view


def recovered_view(node_id: NodeId, workload: Workload) -> control_pb2.RecoveredWorkload:
    return control_pb2.RecoveredWorkload(
        workload_id=workload.id,
        node_id=node_id,
        spec=_spec(workload),
        secrets=sorted(secret_names(workload.spec)),
    )


def _spec(workload: Workload) -> control_pb2.WorkloadSpec:
    return spec_message(workload.spec, workload.resources, workload.metadata, rules=workload.rules)
