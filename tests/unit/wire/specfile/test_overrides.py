"""--set and variables: applied to a parsed document, before it is validated."""

import pytest

from persys.errors import InvalidError
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile.overrides import Overrides, parse_assignment
from persys.wire.specfile.parser import read_documents
from persys.wire.specfile.spec_documents import SpecDocument
from persys.wire.specfile.strict import SpecFileError

WEB = "id: web\ncontainer:\n  image: nginx\n  env: {FOO: a, foo: b}\n  ports: ['80:80']\n"
FILE = "id: web\ncontainer:\n  image: x\n  files:\n  - path: /a\n    content: |\n      a\n"
COMPOSE = "name: shop\nservices:\n  web:\n    image: nginx:${TAG}\n"


def setting(*assignments: str) -> Overrides:
    return Overrides(assignments=tuple(map(parse_assignment, assignments)))


def using(**variables: str) -> Overrides:
    return Overrides(variables=variables, file_variables=variables)


def the_document(text: str, overrides: Overrides) -> SpecDocument:
    (document,) = read_documents(text, overrides=overrides)
    assert isinstance(document, SpecDocument)
    return document


def the_spec(text: str, overrides: Overrides) -> control_pb2.WorkloadSpec:
    return the_document(text, overrides).request.spec


def refusal(text: str, overrides: Overrides) -> SpecFileError:
    with pytest.raises(SpecFileError) as error:
        read_documents(text, overrides=overrides)
    return error.value


def test_a_field_is_replaced_or_added() -> None:
    changed = setting("container.image=nginx:1.27", "resources.memory_mb=64")

    spec = the_spec(WEB, changed)

    assert (spec.container.image, spec.resources.memory_mb) == ("nginx:1.27", 64)


def test_a_value_has_its_yaml_type() -> None:
    changed = setting("container.privileged=true", "container.command=[sh, -c, 'echo a']")

    container = the_spec(WEB, changed).container

    assert container.privileged
    assert list(container.command) == ["sh", "-c", "echo a"]


def test_an_item_of_a_list_is_replaced_and_the_next_one_is_added() -> None:
    container = the_spec(
        WEB, setting("container.ports[0]=81:80", "container.ports[1]=82")
    ).container

    assert [port.container_port for port in container.ports] == [80, 82]
    assert container.ports[0].host_port == 81


def test_names_of_variables_are_compared_exactly() -> None:
    env = the_spec(WEB, setting("container.env.FOO=1", "container.env['a.b']=2")).container.env

    assert dict(env) == {"FOO": "1", "foo": "b", "a.b": "2"}


@pytest.mark.parametrize(
    ("assignment", "problem"),
    [
        ("container.imag=x", "unknown key; did you mean image?"),
        ("resources.memory_mb=-4", "is -4"),
        ("container.ports[5]=80", "after the end of a list of 1 items"),
        ("container.image.tag=1", "not a mapping"),
        ("container.image=[", "not YAML"),
    ],
)
def test_an_error_in_a_set_value_names_the_option(assignment: str, problem: str) -> None:
    err = refusal(WEB, setting(assignment))

    assert err.at.prefix("web.yaml") == f"--set {assignment}"
    assert problem in err.problem


@pytest.mark.parametrize("text", ["container.image", "=x", "[0]=x", ""])
def test_an_assignment_needs_a_path_and_a_value(text: str) -> None:
    with pytest.raises(InvalidError, match="expected PATH=VALUE, for example"):
        parse_assignment(text)


def test_variables_stay_without_interpolation() -> None:
    assert the_spec("id: web\ncontainer: {image: '${IMAGE}'}", Overrides()).container.image == (
        "${IMAGE}"
    )


def test_variables_are_replaced_on_request() -> None:
    text = "id: web\ncontainer:\n  image: ${IMAGE}\n  privileged: ${P:-true}\nresources:\n  memory_mb: ${MB}"

    spec = the_spec(text, using(IMAGE="nginx", MB="64"))

    assert (spec.container.image, spec.container.privileged) == ("nginx", True)
    assert spec.resources.memory_mb == 64


def test_shell_variables_and_escapes_are_not_replaced() -> None:
    text = "id: web\ncontainer: {image: x, command: [sh, -c, 'echo $HOME $${HOME} ${A}']}"

    command = the_spec(text, using(A="b", HOME="/x")).container.command

    assert command[2] == "echo $HOME ${HOME} b"


def test_a_value_cannot_add_keys() -> None:
    text = "id: web\ncontainer:\n  image: x\n  env:\n    A: ${A}\n"

    container = the_spec(text, using(A="1\n  privileged: true")).container

    assert not container.privileged
    assert container.env["A"] == "1\n  privileged: true"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("id: web\ncontainer:\n  image: nginx:${TAG}\n", "f:3:16"),
        (f"{FILE}      ${{TAG}}\n", "f:8:7"),
        (COMPOSE, "f:4:18"),
    ],
)
def test_a_variable_that_is_not_set_is_an_error_at_its_position(text: str, at: str) -> None:
    err = refusal(text, using())

    assert err.at.prefix("f") == at
    assert "TAG" in str(err)
    assert "not set" in err.problem


def test_a_compose_file_gets_the_variables_that_it_uses() -> None:
    compose = the_spec(COMPOSE, using(TAG="2", OTHER="x")).compose

    assert dict(compose.env) == {"TAG": "2"}
    assert "${TAG}" in compose.inline_yaml


def test_a_compose_file_that_uses_dot_env_gets_the_whole_file() -> None:
    text = "name: shop\nservices:\n  web:\n    image: x\n    env_file: .env\n"

    assert dict(the_spec(text, using(A="1", B="2")).compose.env) == {"A": "1", "B": "2"}


def test_a_compose_file_without_interpolation_lists_its_missing_variables() -> None:
    defaulted = COMPOSE + "    command: echo ${A:-b} $$C\n"

    missing = the_document(defaulted, Overrides()).missing

    assert [(each.name, each.at.line) for each in missing] == [("TAG", 4)]


def test_a_variable_that_is_not_set_is_named_before_what_follows_from_it() -> None:
    text = "name: shop\nservices:\n  web:\n    image: ${IMAGE}\n"

    strict, plain = refusal(text, using()), refusal(text, Overrides())

    assert (strict.field, strict.at.prefix("f")) == ("IMAGE", "f:4:12")
    assert plain.problem == "has no image; variables that are not set: IMAGE (see --env-file)"


def test_a_set_value_that_does_not_fit_a_compose_file_names_the_option() -> None:
    for assignment in ("resources.memory_mb=-4", "services.web.image=x"):
        assert refusal(COMPOSE, setting(assignment)).at.option == f"--set {assignment}"


def test_set_changes_the_workload_of_a_compose_file() -> None:
    document = the_document(COMPOSE, setting("compose.env.TAG=3", "resources.memory_mb=128"))

    assert document.request.spec.compose.env["TAG"] == "3"
    assert document.request.spec.resources.memory_mb == 128
    assert document.missing == []
