"""Placement rules: decoded, refused with the field, and encoded."""

import re
from pathlib import Path

import pytest

from persys.core.placement.constraints import written
from persys.core.placement.requirements import has_data
from persys.errors import InvalidError
from persys.model.placement import Constraint, Offload, Operator, Resources, Rules, Strategy
from persys.model.spec import ContainerSpec
from persys.wire.control.placement import node_taints, rules
from persys.wire.control.spec_decode import workload_rules, workload_spec
from persys.wire.control.spec_encode import spec_message
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.specfile.parser import read_spec_file
from persys.wire.specfile.strict import SpecFileError
from persys.wire.stored.revision import revision_of

PROJECT = Path(__file__).parents[4]
EXAMPLE = PROJECT / "examples" / "placement.yaml"
MANUAL = (PROJECT / "docs" / "how-to" / "placement.md").read_text(encoding="utf-8")
WEB = "id: web\ncontainer: {image: nginx}\n"


def of_file(text: str) -> tuple[Rules, int]:
    (document,) = read_spec_file(text)
    return workload_rules(document.request.spec)


def refusal(text: str) -> SpecFileError:
    with pytest.raises(SpecFileError) as error:
        read_spec_file(WEB + text)
    return error.value


def test_the_example_matches_its_comments() -> None:
    first, second, report = (
        workload_rules(document.request.spec) for document in read_spec_file(EXAMPLE.read_text())
    )

    assert first == second
    assert first == (
        Rules(
            constraints=(
                Constraint("disk", Operator.IN, ("ssd", "nvme")),
                Constraint("node.memory_mb", Operator.ABOVE, ("512",)),
            ),
            tolerations=("team=shop",),
            group="shop",
            apart=True,
            spread_over=("zone",),
            priority=80,
        ),
        0,
    )
    assert report[0].strategy is Strategy.BINPACK
    assert report[1] == 300


def test_the_example_of_offloading_matches_its_comments() -> None:
    documents = read_spec_file((PROJECT / "examples" / "offload.yaml").read_text())
    waits, prefers, data = (workload_rules(document.request.spec)[0] for document in documents)

    assert waits == Rules(offload=Offload.WHEN_FULL, return_when_free=True)
    assert prefers == Rules(offload=Offload.PREFER)
    assert data == Rules(offload=Offload.WHEN_FULL, offload_data=True)
    assert has_data(workload_spec(documents[2].request.spec)[0])


def test_the_example_in_the_manual_can_be_applied() -> None:
    (section,) = re.findall(r"# Control placement.*?```yaml\n(.*?)```", MANUAL, re.DOTALL)
    output, _ = of_file(section)

    assert [written(constraint) for constraint in output.constraints] == [
        "zone = eu",
        "disk in (ssd, nvme)",
        "node.memory_mb > 8000",
    ]
    assert (output.apart, output.strategy, output.priority) == (True, Strategy.SPREAD, 80)


def test_a_workload_without_placement_has_no_rules() -> None:
    assert of_file(WEB) == (Rules(), 0)


def test_priority_zero_differs_from_an_unset_priority() -> None:
    assert of_file(WEB + "placement: {priority: 0}")[0].priority == 0


@pytest.mark.parametrize(
    ("text", "field", "problem"),
    [
        ("placement: {constraints: [zone = eu, cpu > x]}", "placement.constraints[1]", "number"),
        ("placement: {tolerations: ['a b']}", "placement.tolerations[0]", "without spaces"),
        ("placement: {tolerations: ['=x']}", "placement.tolerations[0]", "invalid name"),
        ("placement: {anti_affinity: required}", "placement.anti_affinity", "set group too"),
        ("placement: {spread_over: [zone]}", "placement.spread_over", "set group too"),
        ("placement: {group: g, anti_affinity: x}", "placement.anti_affinity", "preferred or"),
        ("placement: {group: 'a b'}", "placement.group", "without spaces"),
        ("placement: {group: g, spread_over: ['']}", "placement.spread_over[0]", "invalid name"),
        ("placement: {strategy: pile}", "placement.strategy", "spread or binpack"),
        ("placement: {priority: 101}", "placement.priority", "0 to 100"),
        ("placement: {prio: 1}", "placement.prio", "did you mean priority"),
        ("placement: {offload: maybe}", "placement.offload", "never, when-full or prefer"),
        ("placement: {offload_data: true}", "placement.offload_data", "set offload too"),
        ("placement: {return: when-free}", "placement.return", "set offload too"),
        ("placement: {offload: when-full, return: later}", "placement.return", "when-free"),
        ("placement: {offload: prefer, return: when-free}", "placement.return", "only one of"),
        ("stop_after: soon", "stop_after", "expected a duration"),
        ("stop_after: 1500ms", "stop_after", "whole seconds"),
        ("stop_after: 5m\nstop_after_seconds: 5", "stop_after", "only one of them"),
        ("stop_after: 400d", "stop_after_seconds", "expected 0 to"),
        ("stop_after_seconds: -1", "stop_after_seconds", "expected 0 to"),
    ],
    ids=lambda text: text[:40],
)
def test_each_placement_error_names_its_field(text: str, field: str, problem: str) -> None:
    refused = refusal(text)

    assert refused.field == field
    assert problem in refused.problem


def test_the_number_of_constraints_is_limited() -> None:
    with pytest.raises(InvalidError, match="at most 32") as refused:
        rules(pb.PlacementRules(constraints=["a exists"] * 33))

    assert refused.value.field == "spec.placement.constraints"


def test_stop_after_may_be_plain_seconds_or_a_duration() -> None:
    assert of_file(WEB + "stop_after: 90")[1] == 90
    assert of_file(WEB + "stop_after: 1m30s")[1] == 90
    assert of_file(WEB + "stop_after_seconds: 90")[1] == 90


def test_the_revision_includes_stop_after_but_not_the_rules() -> None:
    spec = ContainerSpec("nginx")
    plain = revision_of(spec, Resources(), {})

    assert revision_of(spec, Resources(), {}, stop_after_seconds=5) != plain


def test_default_rules_are_not_encoded() -> None:
    message = spec_message(ContainerSpec("nginx"), Resources(), {})

    assert not message.HasField("placement")


def test_a_taint_has_a_key_and_an_optional_value() -> None:
    assert node_taints(["gpu", " team = ml "]) == {"gpu", "team=ml"}


@pytest.mark.parametrize(
    ("taints", "problem"),
    [
        (["gpu", "a b"], r"taints\[1\]: invalid name 'a b'"),
        (["gpu", "gpu=old"], r"taints\[1\]: 'gpu' is used twice"),
        (["*"], r"taints\[0\]: '\*' is a toleration of all taints"),
        (["x"] * 33, "taints: has 33 entries"),
    ],
    ids=["two words", "a key twice", "all", "too many"],
)
def test_an_invalid_taint_is_refused(taints: list[str], problem: str) -> None:
    with pytest.raises(InvalidError, match=problem):
        node_taints(taints)
