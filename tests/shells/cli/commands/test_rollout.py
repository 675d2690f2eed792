"""Rollouts: `apply --wait` of a set, and the commands of `rollout`."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from persys.cli.commands.set_status import live_states
from persys.cli.commands.set_wait import SetGoal, SetTarget, evaluate_set
from persys.cli.commands.wait import WaitState
from persys.wire.gen.control.v1.control_pb2 import SetView
from shells.cli.commands.test_set import WEB, next_commands
from shells.cli.sets_and_jobs import a_member, a_set, counted

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run

NOW = datetime(2026, 11, 18, tzinfo=UTC)
SECOND = WEB.replace("nginx:1", "nginx:2")
ROLLED_OUT = SetTarget(SetGoal.ROLLED_OUT, 2)


def applied(cluster: Cluster, ctl: Run, *views: SetView) -> None:
    """A set at revision 1, whose next update goes through these states."""
    ctl("apply", "-f", "-", stdin=WEB)
    cluster.sets["web"] = before = a_set()
    before.spec.template.container.image = "nginx:1"
    # The first answer is the state before the update.
    cluster.next_sets = [before, *views]


def rolling(health: str = "healthy", **fields: object) -> SetView:
    """Member 1 is updated first: web-2 is its new member."""
    view = a_set(phase="Rolling", revision=2)
    view.members.append(a_member("web", 1, health, workload_id="web-2", revision=2, **fields))
    return counted(view)


def test_a_rollout_is_followed_to_its_end(cluster: Cluster, ctl: Run) -> None:
    view = cluster.add_workload("web-2", "Pending", assigned_node_id="n1")
    view.reason.code, view.reason.message = "Pulling", "pulling nginx:2"
    unhealthy = rolling(health="starting", status="Running", reason="health check: status 500")
    applied(
        cluster,
        ctl,
        rolling(health="starting", status="Pending"),
        unhealthy,
        a_set(revision=2, stable=2),
    )

    result = ctl("apply", "-f", "-", "--wait", stdin=SECOND)

    assert result.code == 0, result.err
    assert result.out.startswith("web: updated\n    ~ container.image  nginx:1 -> nginx:2\n")
    assert "web: Rolling (1 of 2 updated, 2 of 2 healthy)\nweb-2: pull (nginx:2)\n" in result.out
    assert result.out.endswith("web: rolled out (revision 2, 2 of 2 healthy)\n")
    assert next_commands(result.err) == ["persysctl set get web", "persysctl logs web"]


def test_a_rollback_ends_the_wait_at_once(cluster: Cluster, ctl: Run) -> None:
    back = a_set(phase="RollingBack", reason="web-2: failed: ImageNotFound: nginx:2")
    applied(cluster, ctl, rolling(health="starting"), back)

    result = ctl("apply", "-f", "-", "--wait", "20s", stdin=SECOND)

    assert result.code == 1
    assert (
        "error: web: RollingBack: it is rolled back to revision 1: web-2: failed: ImageNotFound: nginx:2"
        in result.err
    )
    assert next_commands(result.err) == ["persysctl rollout status web --watch"]


def test_a_pause_ends_the_wait_at_once(cluster: Cluster, ctl: Run) -> None:
    paused = a_set(phase="Paused", revision=2, reason="web-2: unhealthy for 60s")
    applied(cluster, ctl, paused)

    result = ctl("apply", "-f", "-", "--wait", "20s", stdin=SECOND)

    assert result.code == 1
    assert "error: web: Paused: web-2: unhealthy for 60s" in result.err
    assert next_commands(result.err) == [
        "persysctl rollout undo web",
        "persysctl rollout resume web",
    ]


def test_a_first_deployment_that_is_paused_has_nothing_to_undo(cluster: Cluster, ctl: Run) -> None:
    cluster.sets["web"] = first = a_set(phase="Paused", stable=0, reason="web-0: ImageNotFound")
    first.spec.template.container.image = "nginx:1"

    result = ctl("apply", "-f", "-", "--wait", "20s", stdin=WEB)

    assert result.code == 1
    assert next_commands(result.err) == ["persysctl rollout status web"]


def test_the_wait_ends_after_the_canary_members(cluster: Cluster, ctl: Run) -> None:
    canary = a_set(phase="Canary", revision=2)
    canary.members[0].revision = 2
    applied(cluster, ctl, counted(canary))

    result = ctl("apply", "-f", "-", "--wait", "20s", stdin=SECOND)

    assert result.code == 0, result.err
    assert result.out.endswith("web: Canary (revision 2, 1 of 2 updated, 2 of 2 healthy)\n")
    assert next_commands(result.err) == ["persysctl rollout promote web"]


def test_a_wait_that_times_out_names_the_progress(cluster: Cluster, ctl: Run) -> None:
    applied(cluster, ctl, rolling(health="starting"))

    result = ctl("apply", "-f", "-", "--wait", "600ms", stdin=SECOND)

    assert result.code == 3
    assert (
        "error: web: Rolling: timed out after 600ms; 1 of 2 updated, 2 of 2 healthy" in result.err
    )
    assert next_commands(result.err) == ["persysctl rollout status web"]


def test_the_report_of_a_wait_in_json_has_the_set(cluster: Cluster, ctl: Run) -> None:
    applied(cluster, ctl, a_set(revision=2, stable=2))

    result = ctl("apply", "-f", "-", "--wait", "-o", "json", stdin=SECOND)

    (report,) = json.loads(result.out)
    assert (report["change"], report["outcome"]) == ("updated", "rolled out")
    assert report["set"]["target_revision"] == 2


@pytest.mark.parametrize(
    ("view", "stale", "expected", "why"),
    [
        (a_set(revision=2, stable=2), False, WaitState.REACHED, ""),
        (a_set(phase="Rolling", revision=2), False, WaitState.OPEN, ""),
        # A scheduler on standby answers with the state before the request.
        (a_set(), True, WaitState.OPEN, ""),
        (a_set(), False, WaitState.FAILED, "revision 2 was rolled back to revision 1"),
        (
            a_set(reason="web-2: failed"),
            False,
            WaitState.FAILED,
            "revision 2 was rolled back to revision 1: web-2: failed",
        ),
        (
            a_set(phase="Rolling", revision=3),
            False,
            WaitState.FAILED,
            "revision 3 was applied after this request",
        ),
        (a_set(phase="Deleting", revision=2), True, WaitState.FAILED, "it is being deleted"),
        (
            a_set(revision=2, stable=2, desired_state="Stopped"),
            False,
            WaitState.FAILED,
            "its desired state is Stopped",
        ),
        (counted(a_set(revision=2, stable=2, members=0)), False, WaitState.REACHED, ""),
    ],
)
def test_when_the_wait_for_a_rollout_ends(
    view: SetView, stale: bool, expected: WaitState, why: str
) -> None:
    verdict = evaluate_set(view, ROLLED_OUT, may_be_stale=stale, has_started=False)

    assert (verdict.state, verdict.why) == (expected, why)


def test_members_on_lost_nodes_do_not_keep_a_rollout_from_its_end() -> None:
    view = a_set(revision=2, stable=2, members=3)
    view.members[0].health = "lost"
    view.members[1].health = "unhealthy"

    open_verdict = evaluate_set(counted(view), ROLLED_OUT, may_be_stale=False, has_started=True)
    view.members[1].health = "healthy"
    reached = evaluate_set(counted(view), ROLLED_OUT, may_be_stale=False, has_started=True)

    assert (open_verdict.state, reached.state) == (WaitState.OPEN, WaitState.REACHED)


def test_a_canary_that_bakes_is_waited_for() -> None:
    view = a_set(phase="Canary", revision=2)
    view.spec.update.bake_seconds = 60

    verdict = evaluate_set(view, ROLLED_OUT, may_be_stale=False, has_started=True)

    assert verdict.state is WaitState.OPEN


def test_a_stop_waits_for_every_member() -> None:
    view = a_set(desired_state="Stopped")
    target = SetTarget(SetGoal.STOPPED)

    early = evaluate_set(view, target, may_be_stale=False, has_started=True)
    for member in view.members:
        member.health = "stopped"
    late = evaluate_set(view, target, may_be_stale=False, has_started=True)

    assert (early.state, late.state) == (WaitState.OPEN, WaitState.REACHED)


def test_another_scale_ends_the_wait() -> None:
    target = SetTarget(SetGoal.SCALED, 1, 5)

    stale = evaluate_set(a_set(), target, may_be_stale=True, has_started=True)
    final = evaluate_set(a_set(), target, may_be_stale=False, has_started=True)

    assert stale.state is WaitState.OPEN
    assert final.why == "it was scaled to 2 after this request"


def test_a_member_in_its_gate_has_a_line_with_its_progress() -> None:
    view = rolling()
    view.members[2].healthy_since.FromDatetime(NOW - timedelta(seconds=4))

    states = live_states(view, {}, NOW)
    done = live_states(view, {}, NOW + timedelta(seconds=10))

    assert states["web-2"].headline == "gate 40 %"
    assert states["web-2"].detail == "healthy for 4s of 10s"
    assert list(states) == ["web", "web-2"]
    assert list(done) == ["web"]


def test_many_members_in_progress_are_counted() -> None:
    view = a_set(phase="Rolling", revision=2, members=30)
    for member in view.members:
        member.health = "starting"

    states = live_states(view, {}, NOW)

    assert len(states) == 21
    assert states["web"].detail.endswith("10 more members in progress")


@pytest.mark.parametrize(
    ("words", "call", "word"),
    [
        ("pause web", ("pause", "web", 0), "paused"),
        ("resume web", ("resume", "web", 0), "resumed"),
        ("promote web", ("promote", "web", 0), "promoted"),
        ("undo web", ("undo", "web", 0), "being rolled back"),
        ("undo web --to 3", ("undo", "web", 3), "being rolled back"),
        ("undo deployment/web --to-revision=3", ("undo", "web", 3), "being rolled back"),
    ],
)
def test_a_rollout_is_changed(
    words: str, call: tuple[str, str, int], word: str, cluster: Cluster, ctl: Run
) -> None:
    cluster.sets = {"web": a_set(revision=2)}

    result = ctl("rollout", *words.split())

    assert result.out == f"web: {word}\n"
    assert cluster.set_calls == [call]


@pytest.mark.parametrize("verb", ["pause", "resume", "promote", "undo"])
def test_a_refused_change_of_a_rollout_has_its_reason(
    verb: str, cluster: Cluster, ctl: Run
) -> None:
    cluster.sets = {"web": a_set()}
    cluster.set_refusal = "set web has no rollout in progress"

    result = ctl("rollout", verb, "web")

    assert result.code == 1
    assert result.err == "error: web: refused: set web has no rollout in progress\n"


@pytest.mark.parametrize("verb", ["resume", "promote", "undo"])
def test_a_changed_rollout_is_waited_for(verb: str, cluster: Cluster, ctl: Run) -> None:
    cluster.sets = {"web": a_set()}

    result = ctl("rollout", verb, "web", "--wait")

    assert result.code == 0, result.err
    assert result.out.endswith("web: rolled out (revision 1, 2 of 2 healthy)\n")


def test_the_status_of_a_rollout_has_a_line_per_member(cluster: Cluster, ctl: Run) -> None:
    view = rolling(health="starting", status="Pending", reason="pulling nginx:2")
    view.rollout_started_at.FromSeconds(1_700_000_000)
    cluster.sets = {"web": view}

    shown = ctl("rollout", "status", "web").out

    assert re.search(r"Phase: +Rolling", shown)
    assert re.search(r"Revision: +1 -> 2", shown)
    assert re.search(r"Rollout: +started \d+d ago", shown)
    assert re.search(r"web-2 +1 +2 +Pending +starting +- +n1 +pulling nginx:2", shown)
    assert ctl("rollout", "status", "web", "-o", "name").out == "web\n"


def test_the_status_waits_for_the_end_of_a_rollout(cluster: Cluster, ctl: Run) -> None:
    cluster.sets = {"web": rolling(health="starting")}
    cluster.next_sets = [
        rolling(health="starting"),
        a_set(phase="Paused", revision=2, reason="web-2: failed"),
    ]

    result = ctl("rollout", "status", "web", "--wait")

    assert result.code == 1
    assert "error: web: Paused: web-2: failed" in result.err


def test_a_rollback_in_progress_is_waited_for(cluster: Cluster, ctl: Run) -> None:
    back = a_set(phase="RollingBack", reason="web-2: failed")
    cluster.sets = {"web": back}
    cluster.next_sets = [back, back, a_set(reason="web-2: failed")]

    result = ctl("rollout", "status", "web", "--wait")

    assert result.code == 0, result.err
    assert result.out.endswith("web: rolled out (revision 1, 2 of 2 healthy)\n")


def with_revisions(view: SetView) -> SetView:
    for number, image in ((3, "nginx:3"), (2, "nginx:2"), (1, "nginx:1")):
        one = view.revisions.add(number=number, created_by="operator/ann")
        one.template.container.image = image
        one.created_at.FromSeconds(1_700_000_000)
    return view


def test_the_history_lists_revisions_with_their_changes(cluster: Cluster, ctl: Run) -> None:
    cluster.sets = {"web": with_revisions(a_set(phase="Rolling", revision=3, stable=2))}

    titles, *rows = ctl("rollout", "history", "web").out.splitlines()

    assert titles.split() == ["REVISION", "STATE", "CREATED", "BY", "CHANGES"]
    assert [row.split()[:2] for row in rows] == [["3", "target"], ["2", "stable"], ["1", "-"]]
    assert [row.split()[-1] for row in rows] == ["container.image", "container.image", "-"]
    assert ctl("rollout", "history", "web", "-o", "name").out == "3\n2\n1\n"


def test_a_revision_is_shown_as_a_spec_file(cluster: Cluster, ctl: Run) -> None:
    cluster.sets = {"web": with_revisions(a_set(revision=3, stable=3))}

    shown = ctl("rollout", "history", "web", "--revision", "1")
    unknown = ctl("rollout", "history", "web", "--revision", "9")

    assert shown.out == (
        "kind: set\nid: web\nreplicas: 2\ndesired_state: Running\ncontainer:\n  image: nginx:1\n"
    )
    assert "invalid --revision 9: expected one of 3, 2, 1" in unknown.err
    assert unknown.code == 2


def test_an_invalid_revision_of_undo_is_a_usage_error(cluster: Cluster, ctl: Run) -> None:
    assert ctl("rollout", "undo", "web", "--to", "0").code == 2
