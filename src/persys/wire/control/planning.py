"""Messages of explain, plan and capacity."""

from collections.abc import Iterable, Sequence

from google.protobuf.json_format import MessageToDict

from persys.core.intent.field_changes import FieldChange
from persys.core.placement.capacity import NodeCapacity, NodeLoss, total_of
from persys.core.placement.explain import UNITS, Explanation, Verdict
from persys.model.workload import Workload
from persys.wire.agent import vm
from persys.wire.control.messages import desired_word
from persys.wire.control.spec_decode import VM_SPEC_KEY
from persys.wire.control.spec_encode import spec_message
from persys.wire.gen.control.v1 import control_pb2


def fields_of(workload: Workload) -> dict[str, object]:
    """The fields that the user set, with the names of spec files."""
    message = spec_message(
        workload.spec,
        workload.resources,
        workload.metadata,
        rules=workload.rules,
        stop_after_seconds=workload.stop_after_seconds,
        networks=workload.networks,
    )
    encoded_vm = message.metadata.pop(VM_SPEC_KEY, "")
    fields: dict[str, object] = MessageToDict(message, preserving_proto_field_name=True)
    if encoded_vm:
        # Field 12 cannot represent all of this VM; the agent's form can, and is readable.
        complete = vm.vm_message(vm.from_base64(encoded_vm, VM_SPEC_KEY))
        fields["vm"] = MessageToDict(complete, preserving_proto_field_name=True)
    fields["desired_state"] = desired_word(workload.desired)
    return fields


def change_messages(changes: Iterable[FieldChange]) -> list[control_pb2.FieldChange]:
    return [
        control_pb2.FieldChange(field=change.field, before=change.before, after=change.after)
        for change in changes
    ]


def explanation_message(
    found: Explanation,
    *,
    workload_id: str,
    node_id: str,
    summary: str,
    rule: str,
    changes: Sequence[str],
    copies: Sequence[str],
) -> control_pb2.ExplainWorkloadResponse:
    return control_pb2.ExplainWorkloadResponse(
        workload_id=workload_id,
        assigned_node_id=node_id,
        summary=summary,
        rule=rule,
        # The assigned node first.
        nodes=[
            _verdict(verdict)
            for verdict in sorted(found.verdicts, key=lambda each: each.node_id != node_id)
        ],
        changes=changes,
        counts=[
            control_pb2.ReasonCount(filter=kind, detail=detail, nodes=count)
            for (kind, detail), count in sorted(
                found.counts.items(), key=lambda item: (-item[1], item[0])
            )
        ],
        node_count=found.node_count,
        fit_count=found.fit_count,
        copies=copies,
    )


def _verdict(verdict: Verdict) -> control_pb2.NodeVerdict:
    message = control_pb2.NodeVerdict(
        node_id=verdict.node_id,
        fits=verdict.rejection is None,
        change=verdict.change,
        tier=verdict.tier,
        core_hour_price=verdict.price,
        score=[
            control_pb2.ScorePart(name=part.name, value=part.value, detail=part.detail)
            for part in verdict.score
        ],
    )
    if verdict.rejection is not None:
        message.filter = verdict.rejection.filter
        message.detail = verdict.rejection.detail
        message.missing = verdict.rejection.missing
        message.unit = UNITS.get(verdict.rejection.filter, "").strip()
    return message


def capacity_message(
    capacities: Iterable[NodeCapacity], losses: Iterable[control_pb2.LossView], *, survives: bool
) -> control_pb2.GetCapacityResponse:
    most_free = sorted(
        capacities,
        key=lambda capacity: (
            capacity.tier,
            capacity.fits is not None,
            -(capacity.fits or 0),
            capacity.node_id,
        ),
    )
    worst: list[control_pb2.LossView] = sorted(losses, key=_severity)
    total = total_of(capacity for capacity in most_free if not capacity.tier)
    offload_total = total_of(capacity for capacity in most_free if capacity.tier)
    return control_pb2.GetCapacityResponse(
        fits=total or 0,
        unlimited=total is None,
        offload_fits=offload_total or 0,
        offload_unlimited=offload_total is None,
        nodes=[
            control_pb2.NodeRoom(
                node_id=capacity.node_id,
                fits=capacity.fits or 0,
                unlimited=capacity.fits is None,
                limited_by=capacity.limited_by,
                tier=capacity.tier,
            )
            for capacity in most_free
        ],
        survives_any_loss=survives,
        losses=worst,
    )


def loss_message(loss: NodeLoss, bound: Iterable[str]) -> control_pb2.LossView:
    return control_pb2.LossView(
        node_id=loss.node_id, stranded=loss.stranded, bound=sorted(bound), moved=loss.moved
    )


def _severity(loss: control_pb2.LossView) -> tuple[int, int, str]:
    return -len(loss.stranded), -len(loss.bound), loss.node_id
