"""--wait: when it ends, with the reason, the exit code and the next command."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from persys.cli.commands.wait import (
    DRIFTED_MAX,
    STEADY,
    UNPLACEABLE_MAX,
    Goal,
    WaitState,
    WaitTarget,
    evaluate,
)
from persys.wire.gen.control.v1 import control_pb2
from persys.wire.gen.control.v1.control_pb2 import ReasonDetail, WorkloadView
from shells.cli.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from shells.cli.conftest import Cluster, Run

WEB = "id: web\ncontainer: {image: nginx}\n"
RUN = WaitTarget(Goal.RUNNING)
INSTANT = timedelta()


def a_view(status: str = "Running", **metadata: str) -> WorkloadView:
    words = {f"container.{name}": value for name, value in metadata.items()}
    return WorkloadView(workload_id="web", status=status, metadata=words)


def crashes(view: WorkloadView) -> None:
    view.status = "Failed"
    view.failure_reason = "RUNTIME_ERROR"
    view.reason.code = "CrashLoop"
    view.reason.message = "restarted 3 times; exited with code 3"


def is_unhealthy(view: WorkloadView) -> None:
    view.status = "Running"
    view.reason.code = "Unhealthy"
    view.reason.message = "the health check exited with code 1"


def has_no_image(view: WorkloadView) -> None:
    view.status = "Failed"
    view.failure_reason = "IMAGE_PULL_FAILED"
    view.reason.message = "no such host"
    view.retry_next_at.FromSeconds(view.last_updated.seconds + 5)


def make_unplaceable(view: WorkloadView) -> None:
    view.status = "Pending"
    view.failure_reason = "INSUFFICIENT_RESOURCES"
    view.reason.code = "Unplaceable"
    view.reason.message = "1 node short of memory"


def stays_changed(view: WorkloadView) -> None:
    view.status = "Failed"
    view.failure_reason = "NETWORK_ERROR"
    view.reason.code = "Drifted"
    view.reason.message = "network bridge is not attached"


def has_a_bad_spec(view: WorkloadView) -> None:
    view.status = "Failed"
    view.failure_reason = "INVALID_SPEC"
    view.reason.message = "no such option"


@pytest.mark.parametrize(
    ("verb", "ends", "reason", "next_command"),
    [
        ("apply", crashes, "CrashLoop: restarted 3 times", "persysctl logs web"),
        ("apply", is_unhealthy, "Running (unhealthy): Unhealthy", "persysctl logs web"),
        ("apply", has_no_image, "no such host", "persysctl workload retry web"),
        ("apply", make_unplaceable, "Unplaceable: 1 node short of", "persysctl explain web"),
        ("apply", has_a_bad_spec, "no such option", "persysctl workload get web -o yaml"),
        ("redeploy", stays_changed, "network bridge is not", "persysctl workload redeploy web"),
        ("start", crashes, "CrashLoop: restarted 3 times", "persysctl logs web"),
        ("retry", has_no_image, "no such host", "persysctl workload retry web"),
        ("redeploy", is_unhealthy, "Running (unhealthy): Unhealthy", "persysctl logs web"),
    ],
)
def test_every_wait_ends_early_with_the_reason_and_the_next_command(
    verb: str, ends: object, reason: str, next_command: str, cluster: Cluster, ctl: Run
) -> None:
    desired = "Running" if verb == "retry" else "Stopped"
    cluster.add_workload("web", "Stopped", desired_state=desired, revision_id="r0")
    cluster.after_change = ends  # type: ignore[assignment]  # one of the functions above
    words = ("apply", "-f", "-") if verb == "apply" else ("workload", verb, "web")
    spec = WEB + "revision_id: r1\ndesired_state: Running\n"

    result = ctl(*words, "--wait", "10m", stdin=spec if verb == "apply" else "")

    assert result.code == 1
    assert reason in result.err
    assert next_command in result.err


def test_the_next_command_is_in_the_json_too(cluster: Cluster, ctl: Run) -> None:
    cluster.after_change = crashes

    result = ctl("apply", "-f", "-", "--wait", "-o", "json", stdin=WEB)

    (report,) = json.loads(result.out)
    assert report["next"] == "check its output with `persysctl logs web`"


@pytest.mark.parametrize("words", [("--wait", "2s"), ("--wait=2s",)])
def test_wait_takes_a_duration_with_and_without_an_equals_sign(
    words: tuple[str, ...], cluster: Cluster, ctl: Run
) -> None:
    result = ctl("apply", "-f", "-", *words, stdin=WEB)

    assert result.code == 3
    assert "timed out after 2s" in result.err


def test_a_workload_after_wait_is_not_read_as_a_duration(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("web")

    assert ctl("workload", "delete", "--wait", "web").code == 0


def test_applying_a_stopped_workload_waits_for_stopped(cluster: Cluster, ctl: Run) -> None:
    def stays_stopped(view: WorkloadView) -> None:
        view.status = "Stopped"

    cluster.add_workload("web", "Stopped", desired_state="Stopped")
    cluster.after_change = stays_stopped

    result = ctl("apply", "-f", "-", "--wait", stdin=WEB + "revision_id: r2\n")

    assert (result.code, result.out) == (0, "web: updated\nweb: Stopped\n")
    assert result.err == "next: start it again with `persysctl workload start web`\n"


def test_a_program_that_just_started_has_not_reached_running() -> None:
    assert evaluate(a_view(), RUN, may_be_stale=False, unchanged_for=INSTANT) is WaitState.OPEN
    assert evaluate(a_view(), RUN, may_be_stale=False, unchanged_for=STEADY) is WaitState.REACHED


def test_a_passing_health_check_needs_no_further_wait() -> None:
    view = a_view(health="healthy")

    assert evaluate(view, RUN, may_be_stale=False, unchanged_for=INSTANT) is WaitState.REACHED


def test_a_drifted_workload_is_waited_for_until_a_limit() -> None:
    view = a_view()
    view.reason.code = "Drifted"

    assert evaluate(view, RUN, may_be_stale=False, unchanged_for=10 * STEADY / 3) is WaitState.OPEN
    assert evaluate(view, RUN, may_be_stale=False, unchanged_for=DRIFTED_MAX) is WaitState.FAILED


def test_a_health_check_that_has_not_passed_yet_is_waited_for() -> None:
    starting = a_view(health="starting")
    not_checked_yet = a_view()
    not_checked_yet.spec.container.health_check.SetInParent()

    assert evaluate(starting, RUN, may_be_stale=False, unchanged_for=10 * STEADY) is WaitState.OPEN
    assert (
        evaluate(not_checked_yet, RUN, may_be_stale=False, unchanged_for=10 * STEADY)
        is WaitState.OPEN
    )


def test_an_unplaceable_workload_is_waited_for_a_moment() -> None:
    view = WorkloadView(status="Pending", reason=ReasonDetail(code="Unplaceable"))

    assert evaluate(view, RUN, may_be_stale=False, unchanged_for=INSTANT) is WaitState.OPEN
    assert (
        evaluate(view, RUN, may_be_stale=False, unchanged_for=UNPLACEABLE_MAX) is WaitState.FAILED
    )


def test_a_node_without_capacity_does_not_fail_the_workload() -> None:
    view = WorkloadView(status="Failed", failure_reason="INSUFFICIENT_RESOURCES")

    assert evaluate(view, RUN, may_be_stale=False) is WaitState.FAILED
    view.retry_next_at.FromSeconds(1)
    assert evaluate(view, RUN, may_be_stale=False) is WaitState.OPEN


def test_a_stuck_drain_is_reported_early(cluster: Cluster, ctl: Run) -> None:
    node = cluster.add_node("n1")
    node.drain.state, node.drain.remaining = "draining", 1
    node.drain.blocked.append(
        control_pb2.DrainBlock(workload_id="db", reason="its data is on this node", stays=True)
    )

    result = ctl("node", "drain", "n1", "--wait", "10m")

    assert result.code == 1
    assert "db: its data is on this node" in result.err
    assert "persysctl workload delete db" in result.err


def test_a_terminal_shows_one_line_per_workload_with_a_bar(
    cluster: Cluster, environ: dict[str, str], tmp_path: Path
) -> None:
    polls = iter(range(100))

    def pulls(view: WorkloadView) -> None:
        view.status, view.reason.code = "Pending", "Pulling"
        view.reason.message = "pulling nginx: 1 of 2 layers, 12 of 40 MB"

    def proceed(workload_id: str) -> None:
        if next(polls) > 8:
            view = cluster.workloads[workload_id]
            view.status, view.metadata["container.health"] = "Running", "healthy"
            view.ClearField("reason")

    cluster.after_change, cluster.before_get = pulls, proceed
    (tmp_path / "web.yaml").write_text(WEB)
    variables = {**environ, "PERSYS_GRPC_ENDPOINT": cluster.address, "TERM": "xterm"}

    terminal = Terminal(("apply", "-f", str(tmp_path / "web.yaml"), "--wait"), variables)
    terminal.read_until(b"next: ")

    assert terminal.end() == 0
    shown = terminal.seen.decode()
    assert "web: created" in shown
    assert re.search(r"web +pull 30 % .*━.*nginx: 1 of 2 layers, 12 of 40 MB", shown)
    assert "web: Running" in shown
