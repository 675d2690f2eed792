"""`get -o yaml`: a document that is readable and that `apply` accepts."""

from persys.core import bounded_yaml
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.specfile.export import pool_text, workload_text
from persys.wire.specfile.parser import read_documents
from persys.wire.specfile.spec_documents import PoolDocument, SpecDocument


def a_view() -> control_pb2.WorkloadView:
    container = control_pb2.ContainerSpec(
        image="nginx",
        env={"B": "2", "A": "on"},
        files=[control_pb2.FileMount(path="/etc/x", content="one\ntwo\n", mode=0o640)],
    )
    spec = control_pb2.WorkloadSpec(type="container", container=container)
    spec.resources.memory_mb = 64
    return control_pb2.WorkloadView(
        workload_id="web",
        type="container",
        desired_state="Running",
        status="Failed",
        revision_id="abc",
        assigned_node_id="n1",
        spec=spec,
    )


def test_a_workload_is_shown_as_a_spec_file_with_its_status() -> None:
    assert workload_text(a_view()) == (
        "id: web\n"
        "desired_state: Running\n"
        "type: container\n"
        "resources:\n"
        "  memory_mb: 64\n"
        "container:\n"
        "  image: nginx\n"
        "  env:\n"
        "    A: 'on'\n"
        "    B: '2'\n"
        "  files:\n"
        "  - path: /etc/x\n"
        "    content: |\n"
        "      one\n"
        "      two\n"
        "    mode: '0640'\n"
        "status:\n"
        "  status: Failed\n"
        "  assigned_node_id: n1\n"
        "  revision_id: abc\n"
    )


def test_a_shown_workload_is_applied_without_its_status() -> None:
    (document,) = read_documents(workload_text(a_view()))

    assert isinstance(document, SpecDocument)
    assert document.request.spec == a_view().spec
    assert (document.request.desired_state, document.request.revision_id) == ("Running", "")


def test_a_workload_without_status_has_only_what_can_be_changed() -> None:
    assert "status" not in workload_text(a_view(), status=False)


def test_a_workload_that_is_being_deleted_has_no_desired_state() -> None:
    view = a_view()
    view.desired_state = "Deleted"

    assert "desired_state" not in bounded_yaml.load_mapping(workload_text(view))


def test_a_node_pool_is_shown_as_its_file_with_its_status() -> None:
    view = control_pb2.NodePoolView(paused=True)
    view.spec.pool_id, view.spec.provider, view.spec.max = "burst", "exec", 3
    view.spec.idle_after_seconds = 90
    view.spec.software_url = "https://example.org/persys.whl"
    view.spec.sizes.add(name="small", cpu_millicores=1000, hour_price=0.1)

    text = pool_text(view)
    (document,) = read_documents(text)

    assert text.startswith("kind: nodepool\npool_id: burst\nprovider: exec\n")
    assert "idle_after: 90s\n" in text
    assert "status:\n  paused: true\n" in text
    assert isinstance(document, PoolDocument)
    assert document.pool == view.spec
