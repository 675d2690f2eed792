"""Spec files: both formats, the short forms, and validation."""

import json
from base64 import b64encode
from textwrap import dedent

import pytest
from google.protobuf.json_format import MessageToDict

from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile.parser import read_spec_file
from persys.wire.specfile.strict import SpecFileError

MINIMAL = "id: web\ncontainer:\n  image: nginx\n"


def one(text: str) -> control_pb2.ApplyWorkloadRequest:
    (document,) = read_spec_file(dedent(text))
    return document.request


def refusal(text: str) -> SpecFileError:
    with pytest.raises(SpecFileError) as error:
        read_spec_file(dedent(text))
    return error.value


def container(text: str) -> control_pb2.ContainerSpec:
    """The container of a workload whose container section ends with `text`."""
    return one(
        MINIMAL + "".join(f"  {line}\n" for line in dedent(text).strip().splitlines())
    ).spec.container


def container_refusal(text: str) -> SpecFileError:
    return refusal(MINIMAL + "".join(f"  {line}\n" for line in dedent(text).strip().splitlines()))


def test_the_flat_format_is_read_completely() -> None:
    request = one("""
        id: web
        desired_state: Stopped
        revision_id: r7
        resources: {cpu_millicores: 500, memory_mb: 256, disk_gb: 1}
        metadata: {team: shop}
        container:
          image: nginx
          command: [nginx, -g]
          privileged: true
          managed_volumes:
            - {name: data, size_gb: 2, mount_path: /data, retain_policy: Retain}
    """)

    assert MessageToDict(request, preserving_proto_field_name=True) == {
        "workload_id": "web",
        "desired_state": "Stopped",
        "revision_id": "r7",
        "spec": {
            "type": "container",
            "resources": {"cpu_millicores": "500", "memory_mb": "256", "disk_gb": "1"},
            "metadata": {"team": "shop"},
            "container": {
                "image": "nginx",
                "command": ["nginx", "-g"],
                "privileged": True,
                "managed_volumes": [
                    {
                        "name": "data",
                        "size_gb": "2",
                        "mount_path": "/data",
                        "retain_policy": "Retain",
                    }
                ],
            },
        },
    }


def test_the_format_of_the_contract_is_read_the_same() -> None:
    flat = one("id: web\ndesired_state: Running\ncontainer: {image: nginx}")
    wire = one(
        "workload_id: web\ndesired_state: Running\nspec: {type: container, container: {image: nginx}}"
    )

    assert wire == flat


def test_camel_case_is_read_the_same() -> None:
    camel = one("""
        workloadId: vm1
        desiredState: Running
        spec: {vm: {vcpus: 1, memoryMb: 512, osImage: debian, cloudInit: {userData: hi}}}
    """)
    snake = one("""
        workload_id: vm1
        desired_state: Running
        spec: {vm: {vcpus: 1, memory_mb: 512, os_image: debian, cloud_init: {user_data: hi}}}
    """)

    assert camel == snake


def test_json_is_read_with_tabs_and_escapes() -> None:
    request = one(
        '{"id": "web",\n\t"container": {"image": "nginx", "env": {"FACE": "\\ud83d\\ude00 \\/"}}}'
    )

    assert request.spec.container.env["FACE"] == "😀 /"


def test_json_of_a_request_is_read_back() -> None:
    request = one(MINIMAL + "  ports: ['8080:80']\nresources: {memory_mb: 64}\n")

    assert one(json.dumps(MessageToDict(request))) == request


def test_a_file_holds_several_workloads_in_order() -> None:
    documents = read_spec_file(
        "id: b\ncontainer: {image: x}\n---\n# nothing here\n---\nid: a\ncontainer: {image: x}\n"
    )

    assert [(document.request.workload_id, document.line) for document in documents] == [
        ("b", 1),
        ("a", 6),
    ]


def test_a_list_holds_several_workloads() -> None:
    documents = read_spec_file(
        '[{"id": "a", "container": {"image": "x"}}, {"id": "b", "desiredState": "stop"}]'
    )

    assert [document.request.workload_id for document in documents] == ["a", "b"]


def test_a_document_without_a_spec_changes_only_the_desired_state() -> None:
    request = one("id: web\ndesired_state: Stopped")

    assert not request.HasField("spec")


@pytest.mark.parametrize(
    ("short", "expected"),
    [
        ("8080:80", (8080, 80, "tcp")),
        ("8080:80/udp", (8080, 80, "udp")),
        ("80", (0, 80, "tcp")),
        ("8080:53", (8080, 53, "tcp")),
    ],
)
def test_the_short_form_of_a_port_is_read(short: str, expected: tuple[int, int, str]) -> None:
    (port,) = container(f"ports: [{short}]").ports

    assert (port.host_port, port.container_port, port.protocol) == expected


def test_a_port_may_be_a_mapping() -> None:
    (port,) = container("ports: [{hostPort: 8080, container_port: '80'}]").ports

    assert (port.host_port, port.container_port) == (8080, 80)


@pytest.mark.parametrize("short", ["a:b", "1:2:3", "0", "70000:80", "80/sctp", "8080:"])
def test_a_bad_port_is_refused_with_an_example(short: str) -> None:
    err = container_refusal(f'ports: ["80", "{short}"]')

    assert err.field == "container.ports[1]"
    assert short in err.problem


@pytest.mark.parametrize(("mode", "read_only"), [("", False), (":ro", True), (":rw", False)])
def test_the_short_form_of_a_volume_is_read(mode: str, read_only: bool) -> None:
    (volume,) = container(f"volumes: ['/a:/b{mode}']").volumes

    assert (volume.host_path, volume.container_path, volume.read_only) == ("/a", "/b", read_only)


@pytest.mark.parametrize("short", ["data:/b", "/a", "/a:/b:rx", "/a:/b:ro:z"])
def test_a_bad_volume_is_refused_with_an_example(short: str) -> None:
    err = container_refusal(f"volumes: ['{short}']")

    assert err.field == "container.volumes[0]"
    assert "/host/path:/container/path" in err.problem


def test_environment_values_are_read_as_their_original_text() -> None:
    env = container("env: {A: 1.10, B: yes, C: 0755, D: true, E: text, F: ''}").env

    assert dict(env) == {"A": "1.10", "B": "yes", "C": "0755", "D": "true", "E": "text", "F": ""}


def test_numbers_in_a_command_are_read_as_their_original_text() -> None:
    assert list(container("command: [sleep, 1000]").command) == ["sleep", "1000"]


def test_restart_policy_no_is_a_word_and_not_a_boolean() -> None:
    assert container("restart_policy: no").restart_policy == "no"


def test_anchors_and_merge_keys_work() -> None:
    request = one("""
        id: web
        container:
          image: x
          env: &shared {A: one, B: two}
          labels: {<<: *shared, B: mine}
    """)

    assert dict(request.spec.container.labels) == {"A": "one", "B": "mine"}


def test_an_unknown_key_is_named_with_its_path_its_line_and_the_nearest_name() -> None:
    err = container_refusal("prots: ['80']")

    assert str(err) == "container.prots: unknown key; did you mean ports?"
    assert err.line == 4


@pytest.mark.parametrize(
    ("text", "field", "hint"),
    [
        ("id: web\ncontaner: {image: x}", "contaner", "did you mean container?"),
        ("workload_id: web\nspec: {vm: {vcpu: 1}}", "spec.vm.vcpu", "did you mean vcpus?"),
        ("id: w\nvm: {disks: [{sizeGB: 1}]}", "vm.disks[0].sizeGB", "did you mean size_gb?"),
        ("id: w\nresources: {memory: 1}", "resources.memory", "did you mean memory_mb?"),
        (
            "id: w\nresources: {ram: 1}",
            "resources.ram",
            "expected one of cpu_millicores, memory_mb",
        ),
        ("id: w\nspec: {}", "id", "expected one of workload_id, spec"),
        ("id: w\ncompose: {compose_file: x}", "compose.compose_file", "unknown key"),
    ],
)
def test_unknown_keys_are_refused_everywhere(text: str, field: str, hint: str) -> None:
    err = refusal(text)

    assert err.field == field
    assert hint in err.problem


@pytest.mark.parametrize(
    ("text", "field", "problem"),
    [
        ("command: sleep 5", "container.command", "expected a list"),
        ("command: sleep 5", "container.command", '["sh", "-c"'),
        ("ports: '80:80'", "container.ports", "expected a list"),
        ("ports: [[80]]", "container.ports[0]", "expected a mapping"),
        (
            "ports: [{container_port: web}]",
            "container.ports[0].container_port",
            "expected a whole number",
        ),
        (
            "ports: [{container_port: 1.5}]",
            "container.ports[0].container_port",
            "expected a whole number",
        ),
        (
            "ports: [{container_port: 4294967376}]",
            "container.ports[0].container_port",
            "is out of range",
        ),
        (f"pids_max: {'9' * 5000}", "container.pids_max", "is out of range"),
        (f"ports: ['{'9' * 5000}:80']", "container.ports[0]", "expected ports from 1 to 65535"),
        ("privileged: 1", "container.privileged", "expected true or false"),
        ("privileged: 'true'", "container.privileged", "expected true or false"),
        ("restart_policy: 5", "container.restart_policy", 'quote it: "5"'),
        ("restart_policy: [no]", "container.restart_policy", "expected text, got a list"),
        ("restart_policy:", "container.restart_policy", "expected text, got nothing"),
        ("env: [A=1]", "container.env", "expected a mapping"),
        ("env: {A: }", "container.env.A", "expected text, got nothing"),
        ("env: {A: {B: 1}}", "container.env.A", "expected text, got a mapping"),
        ("env: {A: 1, A: 2}", "container.env.A", "given twice"),
        ("env: {[a]: 1}", "container.env", "plain text"),
        ("image: again", "container.image", "given twice"),
        ("pidsMax: 1\npids_max: 1", "container.pids_max", "given twice"),
    ],
)
def test_a_wrong_type_names_the_field_and_what_is_expected(
    text: str, field: str, problem: str
) -> None:
    err = container_refusal(text)

    assert err.field == field
    assert problem in err.problem
    assert err.line > 2


@pytest.mark.parametrize(
    ("text", "field", "problem"),
    [
        ("id: Web\ncontainer: {image: x}", "id", "invalid workload id"),
        ("container: {image: x}", "id", "missing"),
        ("spec: {container: {image: x}}", "workload_id", "missing"),
        ("workload_id: a_b\nspec: {vm: {}}", "workload_id", "invalid workload id"),
        ("id: web", "spec", "expected one of container, compose and vm"),
        ("id: web\ntype: pod\ncontainer: {}", "type", "pod"),
        ("id: web\ncontainer: {}", "container.image", ""),
        ("id: web\ndesired_state: Runing\ncontainer: {image: x}", "desired_state", "Runing"),
        ("id: web\nresources: {memory_mb: 1}", "spec", "expected one of container"),
        ("id: web\ntype: vm\ncontainer: {}", "type", "container is set"),
        ("workload_id: web\nspec: {type: compose}", "spec.compose", "missing"),
        ("id: web\ncontainer: {}\nvm: {}", "vm", "conflicts with container"),
        ("id: web\ndesiredState: a\ndesired_state: b", "desired_state", "given twice"),
        ("just text", "", "expected a mapping"),
        ("", "file", "no workload"),
        ("# only a comment\n---\n", "file", "no workload"),
        ("id: [unclosed", "file", "not YAML"),
        ('{"id": "web",', "file", "not YAML"),
        ("id: \x00", "file", "not YAML"),
        ("id: a\ndesired_state: stop\n---\nid: a\ndesired_state: stop", "id", "twice"),
    ],
)
def test_a_file_without_a_valid_workload_is_refused(text: str, field: str, problem: str) -> None:
    err = refusal(text)

    assert err.field == field
    assert problem in err.problem


def test_a_vm_may_be_given_by_metadata_alone() -> None:
    machine = b64encode(b'{"vcpus": 1, "memory_mb": 512}').decode()

    assert one(f"id: m\nmetadata: {{persys.vm_spec_b64: {machine}}}").spec.type == "vm"


def test_json_errors_name_the_field_and_its_position() -> None:
    err = refusal('{"id": "web",\n "container": {"prots": []}}')

    assert (err.field, err.at) == ("container.prots", (2, 16, ""))


def test_the_position_in_json_that_is_not_yaml_is_unknown() -> None:
    err = refusal('{"id": "web", "a": "\\ud83d\\ude00",\n "container": {"prots": []}}')

    assert err.at == (0, 0, "")
