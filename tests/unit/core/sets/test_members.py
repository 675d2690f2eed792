"""Members: their ids and numbers, and their intents from the template."""

from dataclasses import replace as changed

import pytest
from msgspec.structs import replace

from persys.core.bounded_yaml import load_mapping
from persys.core.sets.members import (
    holds_data,
    member_id,
    member_workload,
    new_numbers,
    order_of,
)
from persys.core.sets.situation import MemberIntent
from persys.model.ids import NodeId
from persys.model.placement import Constraint, Operator, Rules
from persys.model.sets import Template, UpdateOrder, UpdatePolicy
from persys.model.spec import (
    CloudInit,
    ComposeSpec,
    ContainerSpec,
    Disk,
    Port,
    StackNeeds,
    VMSpec,
    VolumeMount,
)
from persys.model.workload import Desired, Membership
from set_builders import NOW, a_set, a_template, at

INTENT = MemberIntent(number=7, index=2, revision=3, desired=Desired.RUNNING)
MACHINE = VMSpec(1, 512, os_image="debian")


def test_an_id_is_the_set_and_the_number() -> None:
    assert member_id("web", 7) == "web-7"


def test_a_new_member_has_the_number_of_its_index() -> None:
    assert new_numbers([1, 4], used={0, 2}) == {1: 1, 4: 4}


def test_a_new_member_whose_number_is_used_gets_the_lowest_free_one() -> None:
    assert new_numbers([0, 1], used={0, 1, 3}) == {0: 2, 1: 4}


def test_a_new_member_does_not_get_the_number_of_another_new_one() -> None:
    assert new_numbers([0, 1], used={0}) == {0: 2, 1: 1}


def test_a_member_has_the_content_of_the_template() -> None:
    template = replace(a_template(), metadata={"team": "a"}, stop_after_seconds=90)

    workload = member_workload(a_set(), template, INTENT, None, NOW)

    assert workload.id == "web-7"
    assert workload.revision == template.revision
    assert workload.resources == template.resources
    assert workload.metadata == {"team": "a"}
    assert workload.stop_after_seconds == 90
    assert workload.membership == Membership("web", index=2, number=7, revision=3)
    assert (workload.created_at, workload.updated_at) == (NOW, NOW)


def test_a_container_and_a_stack_know_their_index() -> None:
    container = a_template(spec=ContainerSpec("nginx", env={"A": "b"}))
    stack = a_template(spec=ComposeSpec(yaml="services: {}", env={"A": "b"}))

    for template in (container, stack):
        spec = member_workload(a_set(), template, INTENT, None, NOW).spec
        assert isinstance(spec, ContainerSpec | ComposeSpec)
        assert spec.env == {"A": "b", "PERSYS_INDEX": "2"}


def test_a_vm_knows_its_index_from_metadata_and_cloud_init() -> None:
    given = CloudInit(meta_data="local-hostname: a\n")

    spec = member_workload(
        a_set(), a_template(spec=replace(MACHINE, cloud_init=given)), INTENT, None, NOW
    ).spec

    assert isinstance(spec, VMSpec)
    assert spec.metadata == {"persys.index": "2"}
    assert load_mapping(spec.cloud_init.meta_data) == {"local-hostname": "a", "persys_index": 2}


def test_a_vm_without_cloud_init_does_not_get_it() -> None:
    own_disk = VMSpec(1, 512, disks=(Disk(path="/disks/a.qcow2"),))

    spec = member_workload(a_set(), a_template(spec=own_disk), INTENT, None, NOW).spec

    assert isinstance(spec, VMSpec)
    assert spec.cloud_init == CloudInit()


def test_members_are_a_group_unless_the_template_names_one() -> None:
    named = replace(a_template(), rules=Rules(group="edge"))

    assert member_workload(a_set(), a_template(), INTENT, None, NOW).rules.group == "web"
    assert member_workload(a_set(), named, INTENT, None, NOW).rules.group == "edge"


def test_a_pinned_member_runs_only_on_its_node() -> None:
    linux = Constraint("os", Operator.EQUALS, ("linux",))
    template = replace(a_template(), rules=Rules(constraints=(linux,)))

    workload = member_workload(
        a_set(), template, changed(INTENT, pinned_node=NodeId("n4")), None, NOW
    )

    pinned = Constraint("node.id", Operator.EQUALS, ("n4",))
    assert workload.rules.constraints == (linux, pinned)
    assert workload.membership is not None
    assert workload.membership.node_id == "n4"


def test_a_changed_member_keeps_its_creation_time() -> None:
    old = member_workload(a_set(), a_template(), INTENT, None, at(-60))

    new = member_workload(a_set(), a_template("nginx:2"), INTENT, old, NOW)

    assert (new.created_at, new.updated_at) == (at(-60), NOW)


def test_an_equal_intent_is_the_old_workload() -> None:
    old = member_workload(a_set(), a_template(), INTENT, None, at(-60))

    assert member_workload(a_set(), a_template(), INTENT, old, NOW) is old


@pytest.mark.parametrize(
    ("template", "order"),
    [
        (a_template(), UpdateOrder.START_FIRST),
        (a_template(data=True), UpdateOrder.IN_PLACE),
        (a_template(spec=ContainerSpec("a", volumes=(VolumeMount("/a", "/a"),))), "in-place"),
        (a_template(spec=ContainerSpec("a", ports=(Port(80),))), "start-first"),
        (a_template(spec=ContainerSpec("a", ports=(Port(80, 8080),))), "in-place"),
        (a_template(spec=ComposeSpec(needs=StackNeeds(ports=(Port(80, 80),)))), "in-place"),
        (a_template(spec=ComposeSpec(project_name="a")), "in-place"),
        (a_template(spec=ComposeSpec()), "start-first"),
        (a_template(spec=MACHINE), "in-place"),
        (replace(a_template(), rules=Rules(apart=True)), "in-place"),
    ],
)
def test_the_default_order_starts_first_if_two_members_can_share_a_node(
    template: Template, order: str
) -> None:
    assert order_of(UpdatePolicy(), template) == order


def test_a_given_order_wins_except_for_data() -> None:
    start_first = UpdatePolicy(order=UpdateOrder.START_FIRST)
    fixed_port = a_template(spec=ContainerSpec("a", ports=(Port(80, 8080),)))

    assert order_of(start_first, fixed_port) is UpdateOrder.START_FIRST
    assert order_of(start_first, a_template(data=True)) is UpdateOrder.IN_PLACE
    assert order_of(UpdatePolicy(order=UpdateOrder.IN_PLACE), a_template()) is UpdateOrder.IN_PLACE


def test_data_is_what_placement_calls_data() -> None:
    assert holds_data(a_template(data=True))
    assert holds_data(a_template(spec=MACHINE))
    assert not holds_data(a_template())
