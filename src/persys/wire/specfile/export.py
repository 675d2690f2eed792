"""What `get -o yaml` prints and `apply` accepts: workloads, sets, jobs, services and node pools
as documents.

A document has the fields that are set, and the rest of the view as `status`, which `apply` ignores. Applied
unedited, it changes nothing.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from persys.core import bounded_yaml
from persys.core.duration import format_duration
from persys.model.job import KEEP_DEFAULT, START_WITHIN_SECONDS_DEFAULT, Overlap
from persys.model.sets import OnFailure, ScalePolicy, UpdatePolicy
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile import job_file, pool_file, service_file, set_file
from persys.wire.specfile.strict import OCTAL_FIELDS

_DESIRED_STATES = ("Running", "Stopped")
_OF_INTENT = ("workload_id", "spec", "desired_state", "type")
# Revisions contain whole templates; `rollout history` shows them.
_OF_SET = ("spec", "desired_state", "type", "revisions")
_OF_JOB = ("spec", "type")
_UPDATE = UpdatePolicy()
_SCALE = ScalePolicy(0, 0)


def workload_text(view: control_pb2.WorkloadView, *, status: bool = True) -> str:
    """The YAML of one workload. Without `status` it has only what a user can change."""
    return _text(workload_document(view), view, _OF_INTENT if status else None)


def workload_document(view: control_pb2.WorkloadView) -> dict[str, object]:
    """In the flat format. A workload that is being deleted has no desired state that could be applied."""
    document: dict[str, object] = {"id": view.workload_id}
    if view.desired_state in _DESIRED_STATES:
        document["desired_state"] = view.desired_state
    return document | fields_of(view.spec)


def set_text(view: control_pb2.SetView, *, status: bool = True) -> str:
    return _text(set_document(view), view, _OF_SET if status else None)


def set_document(view: control_pb2.SetView) -> dict[str, object]:
    """The number of members is left to automatic scaling, if the set has it."""
    spec = view.spec
    document: dict[str, object] = {"kind": set_file.KIND, "id": spec.set_id}
    if spec.HasField("replicas") and not spec.every and not spec.HasField("scale"):
        document["replicas"] = spec.replicas
    if spec.every:
        document["every"] = spec.every
    if view.desired_state in _DESIRED_STATES:
        document["desired_state"] = view.desired_state
    if update := update_document(spec.update):
        document["update"] = update
    if spec.HasField("scale"):
        document["scale"] = _scale(spec.scale)
    return document | fields_of(spec.template)


def update_document(policy: control_pb2.UpdatePolicy) -> dict[str, object]:
    """Without values that are defaults."""
    min_healthy = policy.min_healthy_seconds
    return _given(
        max_parallel=_unless(policy.max_parallel, _UPDATE.max_parallel),
        order=policy.order,
        min_healthy=_span(min_healthy)
        if policy.HasField("min_healthy_seconds") and min_healthy != _UPDATE.min_healthy_seconds
        else "",
        healthy_deadline=_seconds(
            policy.healthy_deadline_seconds, _UPDATE.healthy_deadline_seconds
        ),
        on_failure=_unless(policy.on_failure, OnFailure.ROLLBACK.value),
        canary=policy.canary,
        bake=_seconds(policy.bake_seconds),
    )


def _scale(policy: control_pb2.ScalePolicy) -> dict[str, object]:
    found: dict[str, object] = {"min": policy.min, "max": policy.max}
    return found | _given(
        cpu=policy.cpu_percent and f"{policy.cpu_percent}%",
        memory=policy.memory_percent and f"{policy.memory_percent}%",
        prometheus=_given(
            url=policy.prometheus_url,
            query=policy.prometheus_query,
            target=policy.prometheus_target,
        ),
        cooldown=_seconds(policy.cooldown_seconds, _SCALE.cooldown_seconds),
    )


def job_text(view: control_pb2.JobView, *, status: bool = True) -> str:
    return _text(job_document(view.spec), view, _OF_JOB if status else None)


def job_document(spec: control_pb2.JobSpec) -> dict[str, object]:
    document: dict[str, object] = {"kind": job_file.KIND, "id": spec.job_id}
    document |= _given(
        job=_given(
            completions=_unless(spec.completions, 1),
            parallelism=_unless(spec.parallelism, 1),
            retries=spec.retries,
            deadline=_seconds(spec.deadline_seconds),
            keep=_unless(spec.keep, KEEP_DEFAULT),
            fail_on=list(spec.fail_on),
        ),
        schedule=_schedule(spec.schedule) if spec.HasField("schedule") else "",
    )
    return document | fields_of(spec.template)


def _schedule(schedule: control_pb2.JobSchedule) -> object:
    """Only the text of cron, if all other values are defaults."""
    others = _given(
        timezone=schedule.timezone,
        overlap=_unless(schedule.overlap, Overlap.FORBID.value),
        start_within=_seconds(schedule.start_within_seconds, START_WITHIN_SECONDS_DEFAULT),
    )
    return {"cron": schedule.cron, **others} if others else schedule.cron


def _given(**values: object) -> dict[str, object]:
    return {name: value for name, value in values.items() if value}


def _unless(value: str | int, default: str | int) -> str | int:
    return "" if value == default else value


def _seconds(value: int, default: int = 0) -> str:
    return "" if value in (0, default) else _span(value)


def _span(seconds: int) -> str:
    return format_duration(timedelta(seconds=seconds))


def pool_text(view: control_pb2.NodePoolView, *, status: bool = True) -> str:
    return _text(pool_document(view.spec), view, ("spec",) if status else None)


def pool_document(spec: control_pb2.NodePoolSpec) -> dict[str, object]:
    fields = fields_of(spec)
    document: dict[str, object] = {"kind": pool_file.KIND}
    software: dict[str, object] = {}
    for name, value in fields.items():
        if name.endswith("_seconds"):
            document[name.removesuffix("_seconds")] = f"{value}s"
        elif name.startswith("software_"):
            software[name.removeprefix("software_")] = value
            document["software"] = software
        else:
            document[name] = value
    return document


def service_text(view: control_pb2.ServiceView, *, status: bool = True) -> str:
    return _text(service_document(view.spec), view, ("spec",) if status else None)


def service_document(spec: control_pb2.ServiceSpec) -> dict[str, object]:
    fields = fields_of(spec)
    service_id = fields.pop("service_id", "")
    return {"kind": service_file.KIND, "id": service_id, **fields}


def fields_of(message: Message) -> dict[str, Any]:
    """The fields that are set, with the names and types of spec files."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            found[field.name] = dict(sorted(value.items()))
        elif field.is_repeated:
            found[field.name] = [_plain(field.full_name, item) for item in value]
        else:
            found[field.name] = _plain(field.full_name, value)
    return found


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Message):
        return fields_of(value)
    return f"0{value:o}" if name in OCTAL_FIELDS else value


def _text(document: Mapping[str, object], view: Message, of_intent: tuple[str, ...] | None) -> str:
    text = bounded_yaml.dump(document, blocks=True)
    if of_intent is None:
        return text
    rest = {
        name: value
        for name, value in MessageToDict(view, preserving_proto_field_name=True).items()
        if name not in of_intent
    }
    return text + bounded_yaml.dump({"status": rest}, blocks=True)
