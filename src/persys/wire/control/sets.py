"""Messages of sets: the set of a user, decoded into the model, and its views.

`core/sets/checks.py` checks the values; here only words are parsed.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from google.protobuf.json_format import MessageToDict

from persys.core.sets.checks import parse_every
from persys.errors import InvalidError
from persys.model.sets import (
    OnFailure,
    Rollout,
    ScalePolicy,
    SetRevision,
    Template,
    UpdateOrder,
    UpdatePolicy,
    WorkloadSet,
)
from persys.model.spec import type_of
from persys.model.workload import Desired, Membership
from persys.wire.control.spec_decode import ParsedSpec
from persys.wire.control.spec_encode import spec_message
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.stored.revision import revision_of
from persys.wire.times import timestamp

Word = TypeVar("Word")

DELETING = "Deleting"  # the phase of a set that is being deleted
EVERY_NODE = "node"
_ORDERS: Mapping[str, UpdateOrder | None] = {"": None, **{one.value: one for one in UpdateOrder}}
_ON_FAILURE: Mapping[str, OnFailure] = {
    "": OnFailure.ROLLBACK,
    **{one.value: one for one in OnFailure},
}


def template_of(parsed: ParsedSpec) -> Template:
    return Template(
        parsed.spec,
        revision_of(
            parsed.spec,
            parsed.resources,
            parsed.metadata,
            stop_after_seconds=parsed.stop_after_seconds,
            networks=parsed.networks,
        ),
        parsed.resources,
        parsed.metadata,
        parsed.rules,
        parsed.stop_after_seconds,
        parsed.networks,
    )


def template_message(template: Template) -> control_pb2.WorkloadSpec:
    return spec_message(
        template.spec,
        template.resources,
        template.metadata,
        rules=template.rules,
        stop_after_seconds=template.stop_after_seconds,
        networks=template.networks,
    )


def in_template(err: InvalidError, owner: str) -> InvalidError:
    """The error of a field of a spec, as a field of the template of `owner`: set or job."""
    if err.field != "spec" and not err.field.startswith("spec."):
        return err
    return InvalidError(f"{owner}.template{err.field.removeprefix('spec')}", err.problem)


def every_node_of(message: control_pb2.SetSpec) -> bool:
    return parse_every(message.every)


def update_policy_of(message: control_pb2.UpdatePolicy) -> UpdatePolicy:
    default = UpdatePolicy()
    return UpdatePolicy(
        max_parallel=message.max_parallel or default.max_parallel,
        order=_word(message.order, _ORDERS, "set.update.order"),
        min_healthy_seconds=(
            message.min_healthy_seconds
            if message.HasField("min_healthy_seconds")
            else default.min_healthy_seconds
        ),
        healthy_deadline_seconds=(
            message.healthy_deadline_seconds or default.healthy_deadline_seconds
        ),
        on_failure=_word(message.on_failure, _ON_FAILURE, "set.update.on_failure"),
        canary=message.canary,
        bake_seconds=message.bake_seconds,
    )


def update_policy_message(policy: UpdatePolicy) -> control_pb2.UpdatePolicy:
    return control_pb2.UpdatePolicy(
        max_parallel=policy.max_parallel,
        order=policy.order.value if policy.order is not None else "",
        min_healthy_seconds=policy.min_healthy_seconds,
        healthy_deadline_seconds=policy.healthy_deadline_seconds,
        on_failure=policy.on_failure.value,
        canary=policy.canary,
        bake_seconds=policy.bake_seconds,
    )


def scale_policy_of(message: control_pb2.ScalePolicy) -> ScalePolicy:
    return ScalePolicy(
        message.min,
        message.max,
        cpu_percent=message.cpu_percent,
        memory_percent=message.memory_percent,
        prometheus_url=message.prometheus_url,
        prometheus_query=message.prometheus_query,
        prometheus_target=message.prometheus_target,
        cooldown_seconds=message.cooldown_seconds or ScalePolicy(0, 0).cooldown_seconds,
    )


def scale_policy_message(policy: ScalePolicy) -> control_pb2.ScalePolicy:
    return control_pb2.ScalePolicy(
        min=policy.min_replicas,
        max=policy.max_replicas,
        cpu_percent=policy.cpu_percent,
        memory_percent=policy.memory_percent,
        prometheus_url=policy.prometheus_url,
        prometheus_query=policy.prometheus_query,
        prometheus_target=policy.prometheus_target,
        cooldown_seconds=policy.cooldown_seconds,
    )


def set_message(record: WorkloadSet, template: Template | None) -> control_pb2.SetSpec:
    """`template` None: its record is lost."""
    message = control_pb2.SetSpec(
        set_id=record.set_id,
        every=EVERY_NODE if record.every_node else "",
        update=update_policy_message(record.update),
    )
    if not record.every_node:
        message.replicas = record.replicas
    if template is not None:
        message.template.CopyFrom(template_message(template))
    if record.scale is not None:
        message.scale.CopyFrom(scale_policy_message(record.scale))
    return message


def set_fields(record: WorkloadSet, template: Template | None) -> dict[str, object]:
    """The fields of a set for a comparison, with the names of spec files."""
    message = set_message(record, template)
    fields: dict[str, object] = MessageToDict(message, preserving_proto_field_name=True)
    fields["desired_state"] = record.desired.value.capitalize()
    return fields


def set_view(
    record: WorkloadSet, template: Template | None, *, wanted: int, waits_for: str
) -> control_pb2.SetView:
    """The view without members and revisions. `waits_for`: why the rollout does not continue now."""
    rollout = record.rollout
    view = control_pb2.SetView(
        spec=set_message(record, template),
        type=type_of(template.spec) if template is not None else "",
        desired_state=record.desired.value.capitalize(),
        phase=phase_of(record),
        reason=_reason(rollout, waits_for),
        target_revision=record.target,
        stable_revision=record.stable,
        member_count_wanted=wanted,
        created_at=timestamp(record.created_at),
        updated_at=timestamp(record.updated_at),
        scale_reason=record.scale_reason,
    )
    if rollout.started_at is not None:
        view.rollout_started_at.CopyFrom(timestamp(rollout.started_at))
    return view


def phase_of(record: WorkloadSet) -> str:
    return DELETING if record.desired is Desired.DELETED else record.rollout.phase.value


def _reason(rollout: Rollout, waits_for: str) -> str:
    if rollout.reason and waits_for and waits_for != rollout.reason:
        return f"{rollout.reason}; {waits_for}"
    return rollout.reason or waits_for


def revision_views(revisions: Sequence[SetRevision]) -> list[control_pb2.RevisionView]:
    """The newest first."""
    return [
        control_pb2.RevisionView(
            number=one.number,
            revision_id=one.template.revision,
            created_at=timestamp(one.created_at),
            created_by=one.created_by,
            template=template_message(one.template),
        )
        for one in sorted(revisions, key=lambda one: one.number, reverse=True)
    ]


def membership_message(membership: Membership) -> control_pb2.Membership:
    return control_pb2.Membership(
        owner=membership.owner,
        index=membership.index,
        revision=membership.revision,
        job_id=membership.job_id,
    )


def _word(text: str, words: Mapping[str, Word], field: str) -> Word:
    if text in words:
        return words[text]
    expected = ", ".join(word for word in words if word)
    raise InvalidError(field, f"invalid value {text[:80]!r}: expected {expected}")
