"""The diff of an apply, by field and in the cluster."""

from builders import a_workload, an_assignment
from persys.core.intent.diff import action_of, displaced
from persys.core.intent.field_changes import FieldChange, changed_fields
from persys.core.reconcile.situation import Decision
from persys.model.spec import ContainerSpec, ManagedVolume
from persys.model.workload import Desired

WITH_DATA = ContainerSpec("nginx", managed_volumes=(ManagedVolume("data", "/data"),))


def test_a_changed_field_is_shown_with_its_path_and_both_values() -> None:
    before = {"container": {"image": "a:1", "env": {"OLD": "x"}}, "resources": {"memory_mb": "64"}}
    after = {"container": {"image": "a:2", "env": {"NEW": "y"}}, "resources": {"memory_mb": "64"}}

    assert changed_fields(before, after) == (
        FieldChange("container.env.NEW", "", "y"),
        FieldChange("container.env.OLD", "x", ""),
        FieldChange("container.image", "a:1", "a:2"),
    )


def test_lists_of_objects_are_compared_item_by_item_and_lists_of_strings_as_one_value() -> None:
    before = {"ports": [{"host_port": "80"}], "command": ["sh", "-c"]}
    after = {"ports": [{"host_port": "81"}, {"host_port": "90"}], "command": ["sh"]}

    assert changed_fields(before, after) == (
        FieldChange("command", '["sh", "-c"]', '["sh"]'),
        FieldChange("ports[0].host_port", "80", "81"),
        FieldChange("ports[1].host_port", "", "90"),
    )


def test_a_key_with_a_dot_is_one_step_of_the_path() -> None:
    assert changed_fields({"labels": {}}, {"labels": {"a.b": "1"}}) == (
        FieldChange("labels[a.b]", "", "1"),
    )


def test_an_action_has_the_verb_of_the_user_command() -> None:
    old = a_workload()

    assert action_of(None, old) == "create"
    assert action_of(old, old) == "none"
    assert action_of(old, a_workload(revision="r2")) == "update"
    assert action_of(old, a_workload(desired=Desired.STOPPED)) == "stop"
    assert action_of(a_workload(desired=Desired.STOPPED), old) == "start"
    assert action_of(old, a_workload(desired=Desired.DELETED)) == "delete"


def a_decision(node_id: str | None, *, waits: bool = False) -> Decision:
    assignment = an_assignment(node_id) if node_id else None
    return Decision(assignment, None, None, waits_for_capacity=waits)


def test_a_new_revision_on_the_same_node_recreates_the_copy() -> None:
    displacements = displaced(
        a_workload(), an_assignment("n1"), a_workload(revision="r2"), a_decision("n1")
    )

    assert displacements == ("the copy on n1 is stopped and recreated",)


def test_a_workload_that_did_not_run_displaces_nothing() -> None:
    stopped = a_workload(desired=Desired.STOPPED)

    assert displaced(None, None, a_workload(), a_decision("n1")) == ()
    assert displaced(stopped, an_assignment("n1"), stopped, a_decision("n1")) == ()


def test_a_move_leaves_the_old_node_and_the_data_of_the_old_spec() -> None:
    displacements = displaced(
        a_workload(spec=WITH_DATA),
        an_assignment("n1"),
        a_workload(revision="r2"),
        a_decision("n2"),
    )

    assert displacements == (
        "moves from n1 to n2; the copy on n1 is removed",
        "its data stays on n1",
        "volume data is no longer mounted",
    )


def test_the_old_copy_runs_while_the_new_revision_is_pending() -> None:
    displacements = displaced(
        a_workload(), an_assignment("n1"), a_workload(revision="r2"), a_decision("n1", waits=True)
    )

    assert displacements == ("the copy on n1 is unchanged until there is capacity",)


def test_stopping_and_deleting_name_the_copy() -> None:
    old, held = a_workload(), an_assignment("n1")

    stopped = displaced(old, held, a_workload(desired=Desired.STOPPED), a_decision("n1"))
    deleted = displaced(old, held, a_workload(desired=Desired.DELETED), a_decision("n1"))

    assert stopped == ("the copy on n1 is stopped",)
    assert deleted == ("the copy on n1 is removed",)
