"""Which sets are valid. An error names the field, the value and what is expected."""

import math

from persys.core.agent.cloud_init import YAML_LIMITS
from persys.core.bounded_yaml import YamlError, load_mapping
from persys.core.duration import format_duration
from persys.core.sets.members import holds_data
from persys.errors import InvalidError
from persys.model import ids
from persys.model.sets import (
    INDEX_VARIABLE,
    REPLICAS_MAX,
    ScalePolicy,
    Template,
    UpdateOrder,
    UpdatePolicy,
    WorkloadSet,
)
from persys.model.spec import ComposeSpec, ContainerSpec, RestartPolicy, Spec, VMSpec

SET_ID_LENGTH_MAX = 57
PERCENT_MAX = 1000
URL_LENGTH_MAX = 2048
QUERY_LENGTH_MAX = 4096
HOUR_SECONDS = 3600
DAY_SECONDS = 24 * HOUR_SECONDS
BAKE_SECONDS_MAX = 30 * DAY_SECONDS
EVERY_NODE = "node"


def check_set_id(set_id: str) -> None:
    """Its members have longer ids, which must be valid too."""
    ids.workload_id(set_id, field="set_id")
    if len(set_id) > SET_ID_LENGTH_MAX:
        raise InvalidError(
            "set_id",
            f"invalid set id {set_id!r}: expected at most {SET_ID_LENGTH_MAX} characters, because its"
            " members have longer ids",
        )


def parse_every(text: str) -> bool:
    """Whether the set has one member per node."""
    if text not in ("", EVERY_NODE):
        raise InvalidError("every", f"invalid every {text[:80]!r}: expected {EVERY_NODE}")
    return text == EVERY_NODE


def check_replicas(replicas: int, scale: ScalePolicy | None) -> None:
    if not 0 <= replicas <= REPLICAS_MAX:
        raise InvalidError("replicas", f"invalid replicas {replicas}: expected 0 to {REPLICAS_MAX}")
    if scale and not scale.min_replicas <= replicas <= scale.max_replicas:
        raise InvalidError(
            "replicas",
            f"invalid replicas {replicas}: the set is scaled automatically, expected"
            f" {scale.min_replicas} to {scale.max_replicas}",
        )


def check_set(record: WorkloadSet, template: Template) -> None:
    """`template` is that of the target revision. Raises InvalidError."""
    check_set_id(record.set_id)
    if record.scale is not None:
        _check_scale(record.scale, template)
    if record.every_node:
        _check_every_node(record)
    else:
        check_replicas(record.replicas, record.scale)
    _check_update(record, template)
    _check_spec(template.spec)


def _check_every_node(record: WorkloadSet) -> None:
    if record.replicas:
        raise InvalidError(
            "replicas", f"invalid replicas {record.replicas}: a set with every: node has none"
        )
    if record.scale is not None:
        raise InvalidError("scale", "a set with every: node is not scaled: expected no scale")


def _check_update(record: WorkloadSet, template: Template) -> None:
    update = record.update
    if not 1 <= update.max_parallel <= REPLICAS_MAX:
        raise InvalidError(
            "update.max_parallel",
            f"invalid max_parallel {update.max_parallel}: expected 1 to {REPLICAS_MAX}",
        )
    if update.order is UpdateOrder.START_FIRST and holds_data(template):
        raise InvalidError(
            "update.order",
            f"invalid order '{update.order}': the template has data that a second member would miss or"
            f" damage, expected {UpdateOrder.IN_PLACE}",
        )
    _check_canary(record)
    _check_durations(update)


def _check_canary(record: WorkloadSet) -> None:
    update = record.update
    most = REPLICAS_MAX if record.every_node else record.replicas
    if not 0 <= update.canary <= most:
        raise InvalidError(
            "update.canary",
            f"invalid canary {update.canary}: expected 0 to the number of replicas, {most}",
        )
    if update.bake_seconds and not update.canary:
        raise InvalidError(
            "update.bake", "is only used with canary members: expected canary above 0"
        )


def _check_durations(update: UpdatePolicy) -> None:
    _check_seconds("update.min_healthy", update.min_healthy_seconds, 0, HOUR_SECONDS)
    _check_seconds("update.healthy_deadline", update.healthy_deadline_seconds, 1, DAY_SECONDS)
    _check_seconds("update.bake", update.bake_seconds, 0, BAKE_SECONDS_MAX)
    if update.healthy_deadline <= update.min_healthy:
        raise InvalidError(
            "update.healthy_deadline",
            f"invalid duration {format_duration(update.healthy_deadline)}: expected more than min_healthy,"
            f" {format_duration(update.min_healthy)}",
        )


def _check_scale(scale: ScalePolicy, template: Template) -> None:
    if not 1 <= scale.max_replicas <= REPLICAS_MAX:
        raise InvalidError(
            "scale.max", f"invalid max {scale.max_replicas}: expected 1 to {REPLICAS_MAX}"
        )
    if not 1 <= scale.min_replicas <= scale.max_replicas:
        raise InvalidError(
            "scale.min",
            f"invalid min {scale.min_replicas}: expected 1 to max, {scale.max_replicas}",
        )
    _check_seconds("scale.cooldown", scale.cooldown_seconds, 0, DAY_SECONDS)
    requested = template.resources
    _check_percent("scale.cpu_percent", scale.cpu_percent, requested.cpu_millicores)
    _check_percent("scale.memory_percent", scale.memory_percent, requested.memory_mb)
    _check_prometheus(scale)
    if not (scale.cpu_percent or scale.memory_percent or scale.prometheus_url):
        raise InvalidError(
            "scale",
            "has no metric: expected cpu_percent, memory_percent or a Prometheus query with its target",
        )


def _check_percent(field: str, percent: int, requested: int) -> None:
    if not 0 <= percent <= PERCENT_MAX:
        raise InvalidError(field, f"invalid percentage {percent}: expected 1 to {PERCENT_MAX}")
    if percent and not requested:
        raise InvalidError(
            field, "is a percentage of the request, and the template has none: expected resources"
        )


def _check_prometheus(scale: ScalePolicy) -> None:
    given = (bool(scale.prometheus_url), bool(scale.prometheus_query), scale.prometheus_target != 0)
    if not any(given):
        return
    if not scale.prometheus_url.startswith(("http://", "https://")):
        raise InvalidError(
            "scale.prometheus_url",
            f"invalid URL {scale.prometheus_url[:80]!r}: expected http or https,"
            " for example http://prometheus:9090",
        )
    if len(scale.prometheus_url) > URL_LENGTH_MAX:
        raise InvalidError(
            "scale.prometheus_url",
            f"{len(scale.prometheus_url)} characters: expected at most {URL_LENGTH_MAX}",
        )
    if not 1 <= len(scale.prometheus_query) <= QUERY_LENGTH_MAX:
        raise InvalidError(
            "scale.prometheus_query",
            f"{len(scale.prometheus_query)} characters: expected 1 to {QUERY_LENGTH_MAX}",
        )
    if not (math.isfinite(scale.prometheus_target) and scale.prometheus_target > 0):
        raise InvalidError(
            "scale.prometheus_target",
            f"invalid target {scale.prometheus_target:g}: expected a number above 0",
        )


def _check_spec(spec: Spec) -> None:
    match spec:
        case ContainerSpec():
            _check_env("template.container.env", spec.env)
            _check_restart("template.container.restart_policy", spec.restart)
        case ComposeSpec():
            _check_env("template.compose.env", spec.env)
        case VMSpec():
            _check_restart("template.vm.restart_policy", spec.restart)
            _check_machine(spec)


def _check_env(field: str, env: dict[str, str]) -> None:
    if INDEX_VARIABLE in env:
        raise InvalidError(
            field,
            f"invalid variable {INDEX_VARIABLE}: it is set for each member, expected another name",
        )


def _check_restart(field: str, restart: RestartPolicy) -> None:
    if restart.runs_to_completion:
        raise InvalidError(
            field,
            f"invalid restart policy '{restart.name}': members of a set run continuously, expected always or"
            " unless-stopped; use a job for what runs to completion",
        )


def _check_machine(spec: VMSpec) -> None:
    for network in spec.networks:
        if network.ip_address or network.mac_address:
            raise InvalidError(
                "template.vm.networks",
                f"invalid address {network.ip_address or network.mac_address!r}: all members would have"
                " the same one, expected dhcp and no MAC address",
            )
    try:
        load_mapping(spec.cloud_init.meta_data, YAML_LIMITS)
    except YamlError as err:
        raise InvalidError("template.vm.cloud_init.meta_data", str(err)) from err


def _check_seconds(field: str, seconds: int, least: int, most: int) -> None:
    if not least <= seconds <= most:
        raise InvalidError(
            field, f"invalid duration {seconds} s: expected {least} to {most} seconds"
        )
