"""Sets in spec files: keys, durations, percentages, and the position of every error."""

import pytest

from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile.parser import read_documents, read_spec_file
from persys.wire.specfile.spec_documents import SetDocument
from persys.wire.specfile.strict import SpecFileError

RESOURCES = "resources: {cpu_millicores: 100, memory_mb: 64}\n"
WEB = "id: web\ncontainer:\n  image: nginx\n"


def one(text: str) -> control_pb2.ApplySetRequest:
    return document(text).request


def document(text: str) -> SetDocument:
    (found,) = read_documents(text)
    assert isinstance(found, SetDocument)
    return found


def refusal(text: str) -> str:
    with pytest.raises(SpecFileError) as error:
        read_documents(text)
    return f"{error.value.at.line}:{error.value.at.column}: {error.value}"


@pytest.mark.parametrize(
    "key", ["replicas: 3", "every: node", "update: {}", "scale: {max: 3, cpu: 70%}", "kind: set"]
)
def test_a_workload_with_a_key_of_a_set_is_a_set(key: str) -> None:
    request = one(f"{WEB}{RESOURCES}{key}\n")

    assert request.set.set_id == "web"
    assert request.set.template.container.image == "nginx"
    assert request.set.template.type == "container"


def test_every_key_of_a_set_is_read() -> None:
    spec = one(
        f"{WEB}{RESOURCES}"
        "replicas: 6\n"
        "update:\n"
        "  {max_parallel: 2, order: in-place, min_healthy: 10s, healthy_deadline: 5m, on_failure: pause,\n"
        "   canary: 1, bake: 10m}\n"
        "scale:\n"
        "  {min: 2, max: 10, cpu: 70%, memory: 80, cooldown: 1m,\n"
        "   prometheus: {url: 'http://p:9090', query: up, target: 2.5}}\n"
    ).set

    assert spec.replicas == 6
    assert spec.update == control_pb2.UpdatePolicy(
        max_parallel=2,
        order="in-place",
        min_healthy_seconds=10,
        healthy_deadline_seconds=300,
        on_failure="pause",
        canary=1,
        bake_seconds=600,
    )
    assert spec.scale == control_pb2.ScalePolicy(
        min=2,
        max=10,
        cpu_percent=70,
        memory_percent=80,
        prometheus_url="http://p:9090",
        prometheus_query="up",
        prometheus_target=2.5,
        cooldown_seconds=60,
    )


def test_what_is_not_written_is_not_set() -> None:
    request = one(f"{WEB}kind: set\n")

    assert not request.set.HasField("replicas")
    assert not request.set.HasField("update")
    assert not request.set.HasField("scale")
    assert request.desired_state == ""
    assert one(f"{WEB}replicas: 0\n").set.HasField("replicas")


def test_a_set_without_a_template_changes_the_desired_state() -> None:
    request = one("kind: set\nid: web\ndesired_state: Stopped\n")

    assert request.desired_state == "Stopped"
    assert not request.set.HasField("template")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("replicas: many", "4:11: replicas: expected a whole number, got the text 'many'"),
        ("replicas: -1", "4:11: replicas: is -1; expected 0 or more"),
        ("replicas: 10001", "4:11: replicas: invalid replicas 10001: expected 0 to 10000"),
        ("every: zone", "4:8: every: invalid value 'zone': expected node"),
        (
            "update: {order: random}",
            "4:17: update.order: invalid value 'random': expected start-first or in-place",
        ),
        ("update: {max_paralel: 1}", "4:10: update.max_paralel: unknown key; did you mean max"),
        ("update: {min_healthy: soon}", "4:23: update.min_healthy: 'soon': expected a duration"),
        ("update: {bake: 100ms}", "4:16: update.bake: invalid duration '100ms': expected whole"),
        ("update: {max_parallel: 0}", "4:24: update.max_parallel: is 0; expected 1 or more"),
        ("update: 3", "4:9: update: expected a mapping of keys to values, got the number 3"),
        ("scale: {max: 3, cpu: high}", "4:22: scale.cpu: invalid percentage 'high': expected a"),
        ("scale: {max: 3}", "4:1: scale: has no metric: expected cpu, memory or prometheus"),
        ("scale: {cpu: 70%}", "4:1: scale.max: invalid max 0: expected 1 to 10000"),
        (
            "scale: {min: 4, max: 3, cpu: 70%}",
            "4:14: scale.min: invalid min 4: expected 1 to max, 3",
        ),
        (
            "scale: {max: 3, prometheus: {url: x}}",
            "4:17: scale.prometheus: is incomplete: expected url, query and target",
        ),
        (
            "scale: {max: 3, prometheus: {target: low}}",
            "4:38: scale.prometheus.target: expected a number above 0, got the text 'low'",
        ),
        ("every: node\nreplicas: 3", "4:8: every: conflicts with replicas"),
        (
            f"every: node\n{RESOURCES}scale: {{max: 3, cpu: 1%}}",
            "6:1: scale: a set with every: node is not scaled",
        ),
        ("scale: {max: 3, cpu: 70%}", "4:22: scale.cpu: is a percentage of the request, and the"),
        ("update: {bake: 1m}", "4:16: update.bake: is only used with canary members"),
        (
            "replicas: 2\nupdate: {canary: 3}",
            "5:18: update.canary: invalid canary 3: expected 0 to",
        ),
        (
            "update: {min_healthy: 2h}",
            "4:23: update.min_healthy: invalid duration 7200 s: expected",
        ),
        ("replicas: 3\njob: {}", "5:1: job: is a key of a job; the document is a set"),
        ("replicas: 3\nrevision_id: r1", "5:14: revision_id: is not used by a set"),
        ("replicas: 3\ndesired_state: Deleted", "5:16: desired_state: invalid desired state"),
        (
            "replicas: 3\nkind: pod",
            "5:7: kind: invalid kind 'pod': expected set, job, service or nodepool",
        ),
        ("replica: 3", "4:1: replica: unknown key; did you mean replicas?"),
    ],
)
def test_an_error_has_its_line_and_column(text: str, expected: str) -> None:
    assert refusal(f"{WEB}{text}\n").startswith(expected)


def test_the_id_of_a_set_leaves_space_for_the_numbers_of_its_members() -> None:
    long = "w" * 58

    assert refusal(f"id: {long}\ncontainer: {{image: nginx}}\nreplicas: 1\n").startswith(
        "1:5: id: "
    )
    assert read_spec_file(f"id: {long}\ncontainer: {{image: nginx}}\n")


def test_an_error_of_the_template_has_its_line_and_column() -> None:
    assert refusal("replicas: 3\nid: web\ncontainer:\n  imag: nginx\n").startswith(
        "4:3: container.imag: unknown key; did you mean image?"
    )
    assert refusal("replicas: 3\nid: web\ncontainer:\n  image: ''\n").startswith(
        "4:3: container.image: "
    )


def test_a_set_and_a_workload_cannot_have_one_id() -> None:
    assert "'web' is used twice" in refusal(f"{WEB}---\n{WEB}replicas: 2\n")


def test_a_set_is_not_read_where_only_workloads_are() -> None:
    with pytest.raises(SpecFileError, match="a set is not a workload"):
        read_spec_file(f"{WEB}replicas: 2\n")


@pytest.mark.parametrize(
    ("field", "line", "shown"),
    [
        ("set.template.container.image", 3, "container.image"),
        ("set.spec.container.image", 3, "container.image"),
        ("set.update.min_healthy_seconds", 4, "update.min_healthy"),
        ("set.scale.prometheus_url", 5, "scale.prometheus.url"),
        ("set.scale.cpu_percent", 5, "scale.cpu"),
        ("set.set_id", 1, "id"),
        ("set.replicas", 1, "replicas"),
        ("set.template.container.stop_grace_seconds", 2, "container.stop_grace_seconds"),
    ],
)
def test_a_field_of_the_scheduler_is_found_in_the_file(field: str, line: int, shown: str) -> None:
    found = document(
        f"{WEB}update: {{min_healthy: 1s}}\n"
        "scale: {max: 3, cpu: 1%, prometheus: {url: 'http://p', query: y, target: 1}}\n"
        f"{RESOURCES}"
    )

    at, name, problem = found.located(field, "is wrong")

    assert (at.line, name, problem) == (line, shown, "is wrong")
