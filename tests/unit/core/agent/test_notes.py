"""Fields of a spec without effect are reported."""

from persys.core.agent.report import PROJECT_NAME, effective_env, notes_of
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import CloudInit, ComposeSpec, Spec, VMSpec, type_of
from persys.model.workload import Desired, Order


def notes(spec: Spec, project: str = "") -> list[str]:
    order = Order(WorkloadId("web"), type_of(spec), Revision("r1"), 1, Desired.RUNNING, spec)
    return list(notes_of(order, project))


def test_a_vm_with_two_user_data_fields_reports_which_one_is_used() -> None:
    spec = VMSpec(1, 512, cloud_init=CloudInit(user_data="a"), cloud_init_base64="Yg==")

    assert notes(spec) == ["cloud_init is ignored: cloud_init_config.user_data is set"]


def test_a_vm_with_one_user_data_field_has_no_note() -> None:
    assert (
        notes(VMSpec(1, 512, cloud_init=CloudInit(meta_data="a: 1"), cloud_init_base64="x")) == []
    )


def test_an_ignored_project_name_variable_is_reported() -> None:
    spec = ComposeSpec(env={PROJECT_NAME: "shop", "COLOUR": "red"})

    assert "is ignored" in notes(spec)[0]
    assert effective_env(spec) == {"COLOUR": "red"}


def test_a_stack_that_keeps_another_project_name_is_reported() -> None:
    spec = ComposeSpec(project_name="shop")

    assert notes(spec, "shop") == []
    assert notes(spec, "") == []
    assert "uses the project persys-web-1 until" in notes(spec, "persys-web-1")[0]


def test_a_derived_project_name_is_not_reported() -> None:
    assert notes(ComposeSpec(project_name="persys-web", project_derived=True), "persys-web-1") == []
