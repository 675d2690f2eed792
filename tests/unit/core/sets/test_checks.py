"""Which sets are refused, and with which field."""

import pytest
from msgspec.structs import replace

from persys.core.sets.checks import check_replicas, check_set, check_set_id, parse_every
from persys.errors import InvalidError
from persys.model.placement import Resources
from persys.model.sets import (
    ScalePolicy,
    SetId,
    Template,
    UpdateOrder,
    UpdatePolicy,
    WorkloadSet,
)
from persys.model.spec import (
    CloudInit,
    ComposeSpec,
    ContainerSpec,
    Network,
    RestartPolicy,
    VMSpec,
)
from set_builders import a_set, a_template

CPU = ScalePolicy(1, 5, cpu_percent=70)
QUEUE = ScalePolicy(
    1,
    5,
    prometheus_url="http://prometheus:9090",
    prometheus_query="queue_length",
    prometheus_target=10.0,
)
MACHINE = VMSpec(1, 512)


@pytest.mark.parametrize(
    "record",
    [
        a_set(),
        a_set(0),
        a_set(10_000),
        a_set(0, every_node=True, update=UpdatePolicy(canary=1)),
        a_set(scale=CPU),
        a_set(scale=QUEUE),
        a_set(update=UpdatePolicy(min_healthy_seconds=0, canary=3, bake_seconds=60)),
    ],
)
def test_a_valid_set_is_accepted(record: WorkloadSet) -> None:
    check_set(record, a_template())


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (a_set(set_id=SetId("Web")), "set_id"),
        (a_set(set_id=SetId("")), "set_id"),
        (a_set(set_id=SetId("a" * 58)), "set_id"),
        (a_set(-1), "replicas"),
        (a_set(10_001), "replicas"),
        (a_set(1, every_node=True), "replicas"),
        (a_set(0, every_node=True, scale=CPU), "scale"),
        (a_set(6, scale=CPU), "replicas"),
        (a_set(update=UpdatePolicy(max_parallel=0)), "update.max_parallel"),
        (a_set(update=UpdatePolicy(canary=4)), "update.canary"),
        (a_set(update=UpdatePolicy(canary=-1)), "update.canary"),
        (a_set(update=UpdatePolicy(bake_seconds=60)), "update.bake"),
        (a_set(update=UpdatePolicy(canary=1, bake_seconds=-1)), "update.bake"),
        (a_set(update=UpdatePolicy(min_healthy_seconds=-1)), "update.min_healthy"),
        (a_set(update=UpdatePolicy(min_healthy_seconds=4000)), "update.min_healthy"),
        (a_set(update=UpdatePolicy(healthy_deadline_seconds=0)), "update.healthy_deadline"),
        (a_set(update=UpdatePolicy(healthy_deadline_seconds=10)), "update.healthy_deadline"),
        (a_set(scale=replace(CPU, max_replicas=10_001)), "scale.max"),
        (a_set(scale=replace(CPU, min_replicas=6)), "scale.min"),
        (a_set(scale=replace(CPU, min_replicas=0)), "scale.min"),
        (a_set(scale=replace(CPU, cpu_percent=0)), "scale"),
        (a_set(scale=replace(CPU, cpu_percent=-1)), "scale.cpu_percent"),
        (a_set(scale=replace(CPU, memory_percent=1001)), "scale.memory_percent"),
        (a_set(scale=replace(CPU, cooldown_seconds=-1)), "scale.cooldown"),
        (a_set(scale=replace(QUEUE, prometheus_url="")), "scale.prometheus_url"),
        (a_set(scale=replace(QUEUE, prometheus_url="ftp://a")), "scale.prometheus_url"),
        (
            a_set(scale=replace(QUEUE, prometheus_url="http://" + "a" * 2048)),
            "scale.prometheus_url",
        ),
        (a_set(scale=replace(QUEUE, prometheus_query="")), "scale.prometheus_query"),
        (a_set(scale=replace(QUEUE, prometheus_query="a" * 4097)), "scale.prometheus_query"),
        (a_set(scale=replace(QUEUE, prometheus_target=0.0)), "scale.prometheus_target"),
        (a_set(scale=replace(QUEUE, prometheus_target=float("nan"))), "scale.prometheus_target"),
    ],
)
def test_an_invalid_set_is_refused_with_its_field(record: WorkloadSet, field: str) -> None:
    with pytest.raises(InvalidError) as refused:
        check_set(record, a_template())

    assert refused.value.field == field


@pytest.mark.parametrize(
    ("template", "field"),
    [
        (a_template(spec=ContainerSpec("a", env={"PERSYS_INDEX": "1"})), "template.container.env"),
        (a_template(spec=ComposeSpec(env={"PERSYS_INDEX": "1"})), "template.compose.env"),
        (
            a_template(spec=ContainerSpec("a", restart=RestartPolicy("no"))),
            "template.container.restart_policy",
        ),
        (
            a_template(spec=replace(MACHINE, restart=RestartPolicy("on-failure"))),
            "template.vm.restart_policy",
        ),
        (
            a_template(spec=replace(MACHINE, networks=(Network(ip_address="10.0.0.5"),))),
            "template.vm.networks",
        ),
        (
            a_template(spec=replace(MACHINE, networks=(Network(mac_address="52:54:00:0:0:1"),))),
            "template.vm.networks",
        ),
        (
            a_template(spec=replace(MACHINE, cloud_init=CloudInit(meta_data="- a"))),
            "template.vm.cloud_init.meta_data",
        ),
    ],
)
def test_a_template_that_cannot_have_several_members_is_refused(
    template: Template, field: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        check_set(a_set(), template)

    assert refused.value.field == field


def test_start_first_is_refused_for_a_template_with_data() -> None:
    record = a_set(update=UpdatePolicy(order=UpdateOrder.START_FIRST))

    check_set(record, a_template())
    with pytest.raises(InvalidError, match="expected in-place"):
        check_set(record, a_template(data=True))


def test_a_percentage_needs_a_request() -> None:
    no_request = replace(a_template(), resources=Resources())

    check_set(a_set(scale=QUEUE), no_request)
    with pytest.raises(InvalidError, match="expected resources"):
        check_set(a_set(scale=CPU), no_request)


def test_the_longest_set_id_has_valid_members() -> None:
    check_set_id("a" * 57)


def test_replicas_of_an_automatically_scaled_set_stay_within_its_limits() -> None:
    check_replicas(5, CPU)
    with pytest.raises(InvalidError, match="expected 1 to 5"):
        check_replicas(6, CPU)


def test_every_is_node_or_nothing() -> None:
    assert parse_every("node")
    assert not parse_every("")
    with pytest.raises(InvalidError, match="expected node"):
        parse_every("zone")
