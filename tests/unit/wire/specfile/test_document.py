"""Other documents that `apply` accepts (views of workloads, Compose files), and the lines of fields."""

import json
from textwrap import dedent

import pytest
import yaml
from google.protobuf.json_format import MessageToDict

from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile.document import position_of_field, split_field
from persys.wire.specfile.parser import read_spec_file
from persys.wire.specfile.spec_documents import SpecDocument
from persys.wire.specfile.strict import SpecFileError

COMPOSE = "services:\n  web:\n    image: nginx\n"


def the_document(text: str, *, stack_id: str = "", directory: str = "") -> SpecDocument:
    (document,) = read_spec_file(dedent(text), stack_id=stack_id, directory=directory)
    return document


def refusal(text: str, *, directory: str = "") -> SpecFileError:
    with pytest.raises(SpecFileError) as error:
        read_spec_file(dedent(text), directory=directory)
    return error.value


def a_view(spec: control_pb2.WorkloadSpec) -> control_pb2.WorkloadView:
    view = control_pb2.WorkloadView(
        workload_id="web",
        type="container",
        desired_state="Running",
        status="Running",
        revision_id="abc",
        failure_reason="RUNTIME_ERROR",
        metadata={"container.id": "1"},
        spec=spec,
        history=[control_pb2.ActionView(task_id="t1")],
    )
    view.retry_next_at.FromSeconds(1)
    view.usage.cpu_percent = 0.5
    return view


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_a_view_is_applied_as_its_intent(form: str) -> None:
    spec = the_document("""
        id: web
        container:
          image: nginx
          ports: ["8080:80"]
          files: [{path: /etc/x, content: hello, mode: 0640}]
          health_check: {type: http, port: 80, path: /}
    """).request.spec
    plain = MessageToDict(
        a_view(spec), preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )

    request = the_document(yaml.safe_dump(plain) if form == "yaml" else json.dumps(plain)).request

    assert (request.workload_id, request.desired_state, request.revision_id) == (
        "web",
        "Running",
        "",
    )
    assert request.spec == spec


def test_a_list_of_views_is_applied_as_several_workloads() -> None:
    views = [
        {"workload_id": name, "status": "Running", "spec": {"container": {"image": "x"}}}
        for name in ("a", "b")
    ]

    found = read_spec_file(yaml.safe_dump(views))

    assert [document.request.workload_id for document in found] == ["a", "b"]


def test_a_key_that_no_view_has_is_refused_without_a_status() -> None:
    err = refusal("workload_id: web\ntype: container\nspec: {container: {image: x}}")

    assert err.field == "type"


@pytest.mark.parametrize(
    ("text", "options", "workload_id"),
    [
        (COMPOSE, {"directory": "shop"}, "shop"),
        (COMPOSE, {"directory": "My_Shop.v2"}, "my-shop-v2"),
        (f"name: store\n{COMPOSE}", {"directory": "shop"}, "store"),
        (f"name: store\n{COMPOSE}", {"directory": "shop", "stack_id": "mine"}, "mine"),
    ],
)
def test_a_compose_file_is_a_stack_with_a_name(
    text: str, options: dict[str, str], workload_id: str
) -> None:
    request = the_document(text, **options).request

    assert request.workload_id == workload_id
    assert request.spec.type == "compose"
    assert request.spec.compose.inline_yaml.strip() == COMPOSE.strip()


def test_a_compose_file_without_a_name_needs_an_id() -> None:
    assert "--id" in refusal(COMPOSE).problem
    assert "--id" in refusal("name: $NAME\n" + COMPOSE, directory="shop").problem


def test_an_error_of_a_compose_file_names_its_own_line() -> None:
    err = refusal(COMPOSE + "    ports: [nonsense]\n", directory="shop")

    assert err.field.startswith("services.web.ports")
    assert err.line == 4


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("id", 1),
        ("resources.cpu_millicores", 4),
        ("spec.resources.cpu_millicores", 4),
        ("container.ports[1].host_port", 9),
        ("container.image", 5),  # absent, so its nearest part
        ("stop_after_seconds", 1),
        ("spec.container.env['A']", 11),
        ("spec.container.env['a.b']", 12),
        ('spec.container.env["it\'s"]', 13),
        ("container.imagePullPolicy", 6),
    ],
)
def test_the_line_of_a_field_is_found(field: str, line: int) -> None:
    node = yaml.compose(
        dedent("""\
            id: web
            resources:
              memory_mb: 5
              cpu_millicores: 5
            container:
              image_pull_policy: Always
              ports:
                - "80:80"
                - container_port: 1
              env:
                A: x
                a.b: y
                it's: z
        """),
        Loader=yaml.SafeLoader,
    )

    assert position_of_field(node, field).line == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("id: web\nresources:\n  cpu_millicores: -5\ncontainer: {image: x}", 3),
        ("id: web\ncontainer:\n  image: x\n  ports:\n    - '80:80'\n    - '80:99999'", 6),
        ("workload_id: web\nspec:\n  container:\n    image: x\n    restart_policy: perhaps", 5),
        ("container:\n  image: x\nid: We b", 3),
        (
            "id: web\ncompose:\n  inline_yaml: |\n    services:\n      web: {image: x, ports: ['x:80']}",
            5,
        ),
    ],
)
def test_an_error_found_after_reading_names_the_line_of_its_field(text: str, line: int) -> None:
    assert refusal(text).line == line


def test_a_servers_error_is_split_into_field_and_problem() -> None:
    assert split_field("spec.container.ports[0]: is taken") == (
        "spec.container.ports[0]",
        "is taken",
    )
    assert split_field("spec.container.env['a b: c']: is missing") == (
        "spec.container.env['a b: c']",
        "is missing",
    )
    assert split_field("the control plane is degraded") == ("", "the control plane is degraded")
