"""persysctl workload apply, delete, start, stop, retry and redeploy, with and without --wait."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from persys.wire.gen.control.v1 import control_pb2
from persys.wire.gen.control.v1.control_pb2 import WorkloadView

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run

WEB = "id: web\ncontainer: {image: nginx}\n"
WEB_AND_DB = f"{WEB}---\nid: db\ncontainer: {{image: postgres}}\n"


def runs(view: WorkloadView) -> None:
    view.status = "Running"


def fails(view: WorkloadView) -> None:
    view.status = "Failed"
    view.failure_reason = "IMAGE_NOT_FOUND"
    view.reason.message = "there is no such image"


def follows_desired(view: WorkloadView) -> None:
    view.status = view.desired_state


def stops(view: WorkloadView) -> None:
    view.status = "Stopped"


def test_a_file_is_applied(cluster: Cluster, ctl: Run, tmp_path: Any) -> None:
    (tmp_path / "web.yaml").write_text(WEB)

    result = ctl("workload", "apply", "-f", str(tmp_path / "web.yaml"))

    assert (result.code, result.out) == (0, "web: created\n")
    assert cluster.applied[0].spec.container.image == "nginx"


def test_standard_input_is_applied_and_every_workload_is_reported(
    cluster: Cluster, ctl: Run
) -> None:
    result = ctl("workload", "apply", "-f", "-", stdin=WEB_AND_DB)

    assert (result.code, result.out) == (0, "web: created\ndb: created\n")


def test_nothing_is_sent_when_one_of_several_specs_is_invalid(cluster: Cluster, ctl: Run) -> None:
    result = ctl(
        "workload", "apply", "-f", "-", stdin=f"{WEB}---\nid: db\ncontainer: {{imag: x}}\n"
    )

    assert result.code == 2
    assert (
        result.err
        == "error: standard input:5:13: container.imag: unknown key; did you mean image?\n"
    )
    assert cluster.applied == []


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_cannot_be_read_is_a_usage_error(
    content: bytes | None, ctl: Run, tmp_path: Any
) -> None:
    path = tmp_path / "web.yaml"
    if content is not None:
        path.write_bytes(content)

    result = ctl("workload", "apply", "-f", str(path))

    assert result.code == 2
    assert str(path) in result.err


def test_a_refusal_prints_its_reason(cluster: Cluster, ctl: Run) -> None:
    cluster.refusal = (control_pb2.FAILURE_REASON_UNSPECIFIED, "the control plane is degraded")

    result = ctl("workload", "apply", "-f", "-", stdin=WEB)

    assert (result.code, result.err) == (1, "error: web: refused: the control plane is degraded\n")


def test_a_spec_that_the_scheduler_rejects_is_a_usage_error(cluster: Cluster, ctl: Run) -> None:
    cluster.refusal = (control_pb2.INVALID_SPEC, "spec.container.image: no")

    assert ctl("workload", "apply", "-f", "-", stdin=WEB).code == 2


@pytest.mark.parametrize("verb", ["delete", "retry", "redeploy"])
def test_an_unknown_workload_is_refused(verb: str, cluster: Cluster, ctl: Run) -> None:
    result = ctl("workload", verb, "ghost")

    assert (result.code, result.err) == (1, "error: ghost: refused: workload not found\n")


def test_the_exit_code_of_several_workloads_is_the_highest(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("a")

    result = ctl("workload", "delete", "ghost", "a")

    assert result.code == 1
    assert "a: being deleted" in result.out
    assert "ghost" in result.err


def test_changes_report_in_json_and_by_name(cluster: Cluster, ctl: Run) -> None:
    cluster.after_change = runs

    waited = ctl("workload", "apply", "-f", "-", "--wait", "-o", "json", stdin=WEB)
    named = ctl("workload", "apply", "-f", "-", "-o", "name", stdin=WEB)

    (report,) = json.loads(waited.out)
    assert (report["workload_id"], report["success"], report["outcome"]) == ("web", True, "Running")
    assert report["workload"]["revision_id"] == "r1"
    assert named.out == "web\n"


def test_start_and_stop_change_only_the_desired_state(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("web")

    ctl("workload", "stop", "web")
    ctl("workload", "start", "web")

    assert [(request.desired_state, request.HasField("spec")) for request in cluster.applied] == [
        ("Stopped", False),
        ("Running", False),
    ]


def test_restart_stops_waits_and_starts(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("web")
    cluster.after_change = follows_desired

    result = ctl("restart", "web", "--wait")

    assert result.code == 0, result.err
    assert [request.desired_state for request in cluster.applied] == ["Stopped", "Running"]
    assert "web: Running" in result.out


def test_restart_starts_again_a_workload_that_does_not_stop(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("web")

    result = ctl("workload", "restart", "web", "--wait=1s")

    assert result.code == 3
    assert [request.desired_state for request in cluster.applied] == ["Stopped", "Running"]
    assert "timed out after 1s" in result.err


def test_restart_starts_again_when_it_is_interrupted(
    cluster: Cluster, ctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_workload("web")

    def interrupted(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("persys.cli.commands.workload_change.wait_for_all", interrupted)

    assert ctl("workload", "restart", "web").code == 130
    assert cluster.workloads["web"].desired_state == "Running"


def test_a_dry_run_of_apply_sends_nothing(cluster: Cluster, ctl: Run) -> None:
    cluster.plans = [control_pb2.WorkloadPlan(workload_id="web", action="create", node_id="n1")]
    accepted = ctl("apply", "-f", "-", "--dry-run=server", stdin=WEB)
    cluster.plans = [control_pb2.WorkloadPlan(workload_id="web", action="refused", reason="no")]
    refused = ctl("apply", "-f", "-", "--dry-run", stdin=WEB)

    assert (accepted.code, refused.code) == (0, 2)
    assert "+ web: create on n1" in accepted.out
    assert "Nothing was written" in accepted.out
    assert cluster.applied == []


def test_a_dry_run_of_delete_deletes_nothing(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("web")
    cluster.add_workload("db")

    result = ctl("delete", "web", "ghost", "-f", "-", "--dry-run", stdin=WEB_AND_DB)

    assert result.code == 1
    assert result.out == "web: would be deleted\ndb: would be deleted\n"
    assert "ghost: refused: workload not found: ghost" in result.err
    assert cluster.workloads["web"].status == "Running"


def test_waiting_for_apply_succeeds_when_it_runs(cluster: Cluster, ctl: Run) -> None:
    cluster.after_change = runs

    result = ctl("workload", "apply", "-f", "-", "--wait", stdin=WEB)

    assert result.code == 0
    assert result.out.endswith("web: Running\n")


def test_waiting_ends_with_the_reason_when_it_fails(cluster: Cluster, ctl: Run) -> None:
    cluster.after_change = fails

    result = ctl("workload", "apply", "-f", "-", "--wait", stdin=WEB)

    assert result.code == 1
    assert "ImageNotFound: there is no such image" in result.err


@pytest.mark.parametrize("patience", [("--wait=2s",), ("--wait", "--timeout", "2s")])
def test_waiting_ends_when_the_time_is_over(
    patience: tuple[str, ...], cluster: Cluster, ctl: Run
) -> None:
    def waits(view: WorkloadView) -> None:
        view.reason.message = "no node has room"

    cluster.after_change = waits

    result = ctl("workload", "apply", "-f", "-", *patience, stdin=WEB)

    assert result.code == 3
    assert "timed out after 2s; no node has room" in result.err


def test_a_failure_ends_the_wait_although_a_retry_is_planned(cluster: Cluster, ctl: Run) -> None:
    def fails_for_now(view: WorkloadView) -> None:
        fails(view)
        view.retry_next_at.FromSeconds(view.last_updated.seconds + 5)

    cluster.after_change = fails_for_now

    result = ctl("workload", "apply", "-f", "-", "--wait=10m", stdin=WEB)

    assert result.code == 1
    assert "ImageNotFound: there is no such image" in result.err
    assert "workload retry web" in result.err


def test_a_completed_workload_has_reached_its_goal(cluster: Cluster, ctl: Run) -> None:
    def completes(view: WorkloadView) -> None:
        view.status = "Stopped"
        view.reason.code = "Completed"

    cluster.after_change = completes

    assert ctl("workload", "apply", "-f", "-", "--wait", stdin=WEB).code == 0


def test_a_status_from_before_the_request_is_not_its_result(cluster: Cluster, ctl: Run) -> None:
    view = cluster.add_workload("web", "Failed")
    before = WorkloadView()
    before.CopyFrom(view)
    cluster.after_change = lambda view: view.CopyFrom(before)

    result = ctl("workload", "retry", "web", "--wait=500ms")

    assert result.out.startswith("web: Failed")
    assert result.code == 1


def test_applying_a_running_workload_does_not_wait(cluster: Cluster, ctl: Run) -> None:
    view = cluster.add_workload("web")
    before = WorkloadView()
    before.CopyFrom(view)
    cluster.after_change = lambda view: view.CopyFrom(before)

    assert ctl("workload", "apply", "-f", "-", "--wait=100ms", stdin=WEB).code == 0


def test_waiting_for_stop_and_start(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("web")

    cluster.after_change = stops
    assert ctl("workload", "stop", "web", "--wait").code == 0
    cluster.after_change = runs
    assert ctl("workload", "start", "--wait", "web").code == 0


def test_waiting_for_delete_ends_when_it_is_gone(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("web")
    cluster.looks_before_gone = 2

    result = ctl("workload", "delete", "--wait", "web")

    assert result.code == 0
    assert result.out == "web: Deleting\nweb: Deleted\n"


def test_waiting_for_retry_ends_when_it_runs(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("web", "Failed")
    cluster.after_change = runs

    assert ctl("workload", "retry", "web", "--wait").code == 0


def test_waiting_for_redeploy_ends_when_the_new_revision_runs(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("web")
    cluster.after_change = runs

    result = ctl("workload", "redeploy", "web", "--wait")

    assert result.code == 0, result.err
    assert cluster.workloads["web"].revision_id.endswith("+2")


def test_apply_is_also_a_top_level_command(cluster: Cluster, ctl: Run) -> None:
    result = ctl("apply", "-f", "-", stdin=WEB)

    assert (result.code, result.out) == (0, "web: created\n")


def test_waiting_for_several_reports_each(cluster: Cluster, ctl: Run) -> None:
    cluster.after_change = lambda view: runs(view) if view.workload_id == "web" else fails(view)

    result = ctl("workload", "apply", "-f", "-", "--wait", stdin=WEB_AND_DB)

    assert result.code == 1
    assert "web: Running\n" in result.out
    assert "error: db: Failed" in result.err


def test_a_scheduler_that_does_not_answer_is_unreachable(run: Run, unused_address: str) -> None:
    result = run("workload", "apply", "-f", "-", "--scheduler", unused_address, stdin=WEB)

    assert result.code == 4
