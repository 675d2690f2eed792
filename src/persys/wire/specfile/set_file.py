"""Sets in spec files: a workload with `replicas`, `every`, `update` or `scale`, or with `kind: set`.

The keys of the workload are those of a plain one; they become the template of the members.
`core/sets/checks.py` has the limits of all values.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from persys.core.bounded_yaml import MappingNode
from persys.errors import InvalidError
from persys.model.sets import OnFailure, SetId, UpdateOrder, WorkloadSet
from persys.wire.control.spec_decode import parse_spec
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile.value_readers import (
    Reader,
    duration,
    fill_by,
    key_in_file,
    mapping,
    percent,
    real,
    text,
    whole,
    word,
)

KIND = "set"
EVERY = ("node",)
MIN_DEFAULT = 1
_STATES = ("running", "stopped")
_ANY_TIME = datetime(1970, 1, 1, tzinfo=UTC)

UPDATE: Mapping[str, Reader] = {
    "max_parallel": whole("max_parallel", least=1),
    "order": word("order", UpdateOrder),
    "min_healthy": duration("min_healthy_seconds"),
    "healthy_deadline": duration("healthy_deadline_seconds", least=1),
    "on_failure": word("on_failure", OnFailure),
    "canary": whole("canary"),
    "bake": duration("bake_seconds"),
}
PROMETHEUS: Mapping[str, Reader] = {
    "url": text("prometheus_url"),
    "query": text("prometheus_query"),
    "target": real("prometheus_target"),
}
SCALE: Mapping[str, Reader] = {
    "min": whole("min", least=1),
    "max": whole("max", least=1),
    "cpu": percent("cpu_percent"),
    "memory": percent("memory_percent"),
    "prometheus": mapping("", PROMETHEUS),
    "cooldown": duration("cooldown_seconds", least=1),
}
KEYS: Mapping[str, Reader] = {
    "replicas": whole("replicas"),
    "every": word("every", EVERY),
    "update": mapping("update", UPDATE),
    "scale": mapping("scale", SCALE),
}
# Fields of the contract whose key in a file has another name.
RENAMED: Mapping[str, str] = {
    "set_id": "id",
    "scale.cpu_percent": "scale.cpu",
    "scale.memory_percent": "scale.memory",
    "scale.prometheus_url": "scale.prometheus.url",
    "scale.prometheus_query": "scale.prometheus.query",
    "scale.prometheus_target": "scale.prometheus.target",
}


def key_of(field: str) -> str:
    return key_in_file(field, RENAMED, KEYS)


def read_set(
    own: MappingNode, workload: control_pb2.ApplyWorkloadRequest
) -> control_pb2.ApplySetRequest:
    """`own` has the keys of the set, `workload` is made of the others. Raises InvalidError."""
    if workload.desired_state and workload.desired_state.lower() not in _STATES:
        problem = f"invalid desired state {workload.desired_state!r} of a set: expected Running or Stopped"
        raise InvalidError("desired_state", problem)
    request = control_pb2.ApplySetRequest(desired_state=workload.desired_state)
    spec = request.set
    spec.set_id = workload.workload_id
    if workload.HasField("spec"):
        spec.template.CopyFrom(workload.spec)
    fill_by(KEYS, spec, own, "")
    if spec.every and spec.HasField("replicas"):
        raise InvalidError("every", "conflicts with replicas; set only one of them")
    if spec.HasField("scale"):
        _complete(spec.scale)
    if spec.HasField("template"):
        _check(spec)
    return request


def _complete(scale: control_pb2.ScalePolicy) -> None:
    scale.min = scale.min or MIN_DEFAULT
    prometheus = (scale.prometheus_url, scale.prometheus_query, scale.prometheus_target)
    if any(prometheus) and not all(prometheus):
        raise InvalidError("scale.prometheus", "is incomplete: expected url, query and target")
    if not (scale.cpu_percent or scale.memory_percent or any(prometheus)):
        raise InvalidError("scale", "has no metric: expected cpu, memory or prometheus")


def _check(spec: control_pb2.SetSpec) -> None:
    """Run the checks of the scheduler, so that a file is applied completely or not at all."""
    from persys.core.sets.checks import check_set  # only for sets: start-up time
    from persys.wire.control.sets import scale_policy_of, template_of, update_policy_of

    update = update_policy_of(spec.update)
    scale = scale_policy_of(spec.scale) if spec.HasField("scale") else None
    # Of an existing set the number is not known here.
    assumed = max(MIN_DEFAULT, update.canary, scale.min_replicas if scale else 0)
    record = WorkloadSet(
        SetId(spec.set_id),
        replicas=0 if spec.every else spec.replicas if spec.HasField("replicas") else assumed,
        target=1,
        created_at=_ANY_TIME,
        updated_at=_ANY_TIME,
        every_node=bool(spec.every),
        update=update,
        scale=scale,
    )
    try:
        check_set(record, template_of(parse_spec(spec.template)))
    except InvalidError as err:
        raise InvalidError(key_of(err.field), err.problem) from None
