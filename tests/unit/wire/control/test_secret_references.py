"""Secret references and files in specs."""

import pytest

from persys.errors import InvalidError
from persys.model.spec import ContainerSpec, FileMount
from persys.wire.control.spec_decode import workload_spec
from persys.wire.control.spec_encode import spec_message
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.specfile.parser import read_spec_file


def container(**parts: object) -> pb.WorkloadSpec:
    return pb.WorkloadSpec(container=pb.ContainerSpec(image="nginx", **parts))  # type: ignore[arg-type]  # any field


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (container(env={"A": "secret://B"}), "spec.container.env['A']"),
        (container(command=["sh", "secret://b"]), "spec.container.command[1]"),
        (container(labels={"a": "secret://b"}), "spec.container.labels['a']"),
        (
            container(files=[pb.FileMount(path="/a", content="secret://b c")]),
            "spec.container.files[0].content",
        ),
        (
            pb.WorkloadSpec(
                container=pb.ContainerSpec(image="nginx"), metadata={"a": "secret://b"}
            ),
            "spec.metadata['a']",
        ),
        (
            pb.WorkloadSpec(vm=pb.VMSpec(cloud_init=pb.CloudInitConfig(user_data="secret://b"))),
            "spec.vm.cloud_init.user_data",
        ),
        (
            pb.WorkloadSpec(
                compose=pb.ComposeSpec(
                    inline_yaml="services: {a: {image: x, environment: [P=secret://b]}}"
                )
            ),
            "spec.compose.inline_yaml",
        ),
        (container(files=[pb.FileMount(path="a")]), "spec.container.files[0].path"),
        (container(files=[pb.FileMount(path="/a", mode=0o1000)]), "spec.container.files[0].mode"),
        (
            container(files=[pb.FileMount(path="/a"), pb.FileMount(path="/a/")]),
            "spec.container.files[1].path",
        ),
        (
            container(files=[pb.FileMount(path=f"/{n}") for n in range(65)]),
            "spec.container.files",
        ),
    ],
)
def test_an_invalid_reference_or_file_is_refused_with_its_field(
    spec: pb.WorkloadSpec, field: str
) -> None:
    with pytest.raises(InvalidError) as refused:
        workload_spec(spec)

    assert refused.value.field == field


def test_files_read_back_as_the_same() -> None:
    spec, resources, metadata = workload_spec(
        container(
            env={"A": "secret://b"},
            files=[pb.FileMount(path="/a", content="secret://b"), pb.FileMount(path="/c", mode=7)],
        )
    )

    assert isinstance(spec, ContainerSpec)
    assert spec.files == (FileMount("/a", b"secret://b"), FileMount("/c", mode=7))
    assert workload_spec(spec_message(spec, resources, metadata))[0] == spec


@pytest.mark.parametrize("mode", ["0444", "0o444", '"0444"'])
def test_permissions_in_a_spec_file_are_octal_as_in_chmod(mode: str) -> None:
    text = f"""
id: web
container:
  image: nginx
  files:
    - path: /etc/key
      content: secret://key
      mode: {mode}
"""
    (document,) = read_spec_file(text)

    assert document.request.spec.container.files[0].mode == 0o444


@pytest.mark.parametrize("mode", ["444", "0999", "rw", "[]"])
def test_ambiguous_permissions_are_refused(mode: str) -> None:
    text = f"{{id: web, container: {{image: nginx, files: [{{path: /a, mode: {mode}}}]}}}}"

    with pytest.raises(
        InvalidError, match=r"files\[0\]\.mode: expected permissions, for example 0444"
    ):
        read_spec_file(text)
