"""Sets: list, get, delete and scale; the commands of workloads with the name of a set."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

import pytest

from persys.cli.framework.parser import parse
from persys.model.sets import RESTARTED_AT
from persys.wire.gen.control.v1 import control_pb2
from shells.cli.sets_and_jobs import a_member, a_set, counted

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run

WEB = "id: web\nreplicas: 2\ncontainer:\n  image: nginx:1\n"


def add_members(cluster: Cluster, set_id: str = "web", count: int = 2) -> None:
    for index in range(count):
        view = cluster.add_workload(f"{set_id}-{index}", assigned_node_id="n1")
        view.membership.owner, view.membership.index = set_id, index


def next_commands(err: str) -> list[str]:
    (line,) = [line for line in err.splitlines() if line.startswith("next: ")]
    found = re.findall(r"`(persysctl [^`]+)`", line)
    for command in found:
        parse(shlex.split(command)[1:])  # ends the test with SystemExit if it is not understood
    return found


def test_sets_are_listed_with_their_progress(cluster: Cluster, ctl: Run) -> None:
    rolling = a_set("api", phase="Rolling", members=3, revision=2)
    rolling.members[0].revision = 2
    cluster.sets = {"web": a_set(), "api": counted(rolling)}

    titles, web, api = ctl("set", "list").out.splitlines()

    assert titles.split()[:7] == [
        "ID",
        "TYPE",
        "DESIRED",
        "PHASE",
        "HEALTHY",
        "UPDATED",
        "REVISION",
    ]
    assert web.split()[:7] == ["web", "container", "Running", "Steady", "2/2", "2/2", "1"]
    assert api.split()[3:9] == ["Rolling", "3/3", "1/3", "1", "->", "2"]
    assert ctl("set", "list", "-o", "name").out == "web\napi\n"


def test_no_sets(ctl: Run) -> None:
    assert ctl("set", "list").out == "no sets\n"


@pytest.mark.parametrize("words", ["set get web", "get web", "describe web", "workload get web"])
def test_a_set_is_shown_with_its_members(words: str, cluster: Cluster, ctl: Run) -> None:
    view = a_set(phase="Paused", revision=2, reason="web-2: ImageNotFound")
    view.spec.update.max_parallel = 2
    view.spec.scale.min, view.spec.scale.max, view.spec.scale.cpu_percent = 1, 5, 70
    cluster.sets = {"web": view}

    shown = ctl(*words.split()).out

    for fact in (
        r"Phase: +Paused",
        r"Reason: +web-2: ImageNotFound",
        r"Members: +0 of 2 updated, 2 of 2 healthy",
        r"Revision: +1 -> 2",
        r"Update: +max_parallel 2",
        r"Scale: +1 to 5, cpu 70%",
        r"web-1 +1 +1 +Running +healthy",
        r"Next: .*rollout undo web",
    ):
        assert re.search(fact, shown), fact


def test_a_name_that_is_not_a_set_is_explained(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("db")

    missing = ctl("set", "get", "nothing")
    other = ctl("set", "get", "db")

    assert missing.err == "error: set not found: nothing\n"
    assert other.err == ("error: set not found: db; it is a workload: see `persysctl get db`\n")
    assert ctl("get", "nothing").err == "error: workload not found: nothing\n"


def test_a_shown_set_is_applied_unchanged(cluster: Cluster, ctl: Run) -> None:
    created = ctl("apply", "-f", "-", stdin=WEB)
    shown = ctl("get", "web", "-o", "yaml")
    again = ctl("apply", "-f", "-", stdin=shown.out)

    assert created.out == "web: created\n"
    assert again.out == "web: unchanged\n"
    assert shown.out.startswith("kind: set\nid: web\nreplicas: 2\n")
    assert "status:" in shown.out


def test_an_update_of_a_set_lists_the_changed_fields(cluster: Cluster, ctl: Run) -> None:
    ctl("apply", "-f", "-", stdin=WEB)

    changed = WEB.replace("nginx:1", "nginx:2") + "update: {max_parallel: 2}\n"
    text = ctl("apply", "-f", "-", stdin=changed)
    data = ctl("apply", "-f", "-", "-o", "json", "--set", "replicas=5", stdin=changed)

    assert text.out == (
        "web: updated\n"
        "    ~ container.image      nginx:1 -> nginx:2\n"
        "    + update.max_parallel  2\n"
    )
    (report,) = json.loads(data.out)
    assert (report["set_id"], report["outcome"]) == ("web", "updated")
    assert report["changes"] == [{"field": "replicas", "before": "2", "after": "5"}]
    assert report["set"]["member_count_wanted"] == 5


def test_a_refusal_of_the_scheduler_has_the_line_of_the_file(cluster: Cluster, ctl: Run) -> None:
    cluster.set_refusal = "set.template.container.image: invalid image 'nginx:1'"

    result = ctl("apply", "-f", "-", stdin=WEB)

    assert result.code == 2
    assert result.err == (
        "error: web: refused: standard input:4:10: container.image: invalid image 'nginx:1'\n"
    )


@pytest.mark.parametrize(
    ("words", "state", "word"),
    [("stop web", "Stopped", "being stopped"), ("start web", "Running", "being started")],
)
def test_start_and_stop_of_a_set_change_only_its_desired_state(
    words: str, state: str, word: str, cluster: Cluster, ctl: Run
) -> None:
    cluster.sets = {"web": a_set()}

    result = ctl(*words.split())

    assert result.out == f"web: {word}\n"
    (request,) = cluster.applied_sets
    assert request.desired_state == state
    assert not request.set.HasField("template")
    assert not request.set.HasField("replicas")


def test_workloads_and_sets_are_changed_by_one_command(cluster: Cluster, ctl: Run) -> None:
    cluster.sets = {"web": a_set()}
    cluster.add_workload("db")

    result = ctl("stop", "db", "web")

    assert result.out == "db: being stopped\nweb: being stopped\n"


def test_a_restart_of_a_set_is_an_update(cluster: Cluster, ctl: Run) -> None:
    ctl("apply", "-f", "-", stdin=WEB)

    restarted = ctl("restart", "web")
    again = ctl("apply", "-f", "-", stdin=WEB)
    changed = ctl("apply", "-f", "-", stdin=WEB.replace("nginx:1", "nginx:2"))

    assert restarted.out == "web: being restarted\n"
    request = cluster.applied_sets[1]
    assert request.set.template.metadata[RESTARTED_AT]
    assert not request.set.HasField("replicas")
    # A file without the time of the restart is not another change.
    assert again.out == "web: unchanged\n"
    assert changed.out == "web: updated\n    ~ container.image  nginx:1 -> nginx:2\n"


def test_a_redeploy_of_a_set_is_an_update(cluster: Cluster, ctl: Run) -> None:
    cluster.sets = {"web": a_set()}

    assert ctl("redeploy", "web").out == "web: being redeployed\n"
    assert cluster.sets["web"].target_revision == 2


def test_a_retry_of_a_set_retries_its_failed_members(cluster: Cluster, ctl: Run) -> None:
    view = a_set()
    cluster.sets = {"web": view}
    add_members(cluster)

    none = ctl("retry", "web")
    view.members[1].health = "failed"
    retried = ctl("retry", "web")

    assert none.err == "error: no member of set web has failed\n"
    assert retried.out == "web-1: being retried\n"


@pytest.mark.parametrize("words", ["set delete web", "delete web", "workload delete web"])
def test_a_set_is_deleted(words: str, cluster: Cluster, ctl: Run) -> None:
    cluster.sets = {"web": a_set()}

    result = ctl(*words.split())
    cluster.sets = {"web": a_set()}
    waited = ctl(*words.split(), "--wait")

    assert result.out == "web: being deleted\n"
    assert waited.out.endswith("web: Deleted\n")
    assert cluster.set_calls == [("delete", "web", 0)] * 2


def test_delete_of_a_file_deletes_its_sets_and_jobs(cluster: Cluster, ctl: Run) -> None:
    text = f"{WEB}---\nkind: job\nid: backup\ncontainer: {{image: x}}\n"
    ctl("apply", "-f", "-", stdin=text)

    shown = ctl("delete", "-f", "-", "--dry-run", stdin=text)
    result = ctl("delete", "-f", "-", stdin=text)

    assert shown.out == "web: would be deleted\njob/backup: would be deleted\n"
    assert result.out == "web: being deleted\njob/backup: being deleted\n"


def test_members_are_marked_and_selected_in_the_list(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("db")
    add_members(cluster)
    run = cluster.add_workload("backup-1-0")
    run.membership.owner, run.membership.job_id = "backup-1", "backup"

    wide = ctl("workload", "list", "-o", "wide").out.splitlines()

    assert [line.split()[0] for line in wide if "set/web" in line] == ["web-0", "web-1"]
    assert "job/backup (backup-1)" in wide[-1]
    assert ctl("ps", "web", "-o", "name").out == "web-0\nweb-1\n"
    assert ctl("ps", "backup", "-o", "name").out == "backup-1-0\n"
    assert ctl("ps", "db", "-o", "name").out == "db\n"
    assert re.search(r"Owner: +set/web", ctl("get", "web-0").out)


def test_a_set_is_explained_by_its_first_pending_member(cluster: Cluster, ctl: Run) -> None:
    view = a_set(members=3)
    view.members[2].node_id = ""
    cluster.sets = {"web": view}
    cluster.explanation = control_pb2.ExplainWorkloadResponse(
        workload_id="web-2", summary="is pending"
    )
    cluster.unknown_to_explain = {"web"}

    shown = ctl("explain", "web").out

    assert shown == "set web has 3 members: 2 on n1, 1 pending\n\nweb-2 is pending\n"


def test_plan_knows_sets_and_jobs(cluster: Cluster, ctl: Run) -> None:
    cluster.plans = [control_pb2.WorkloadPlan(workload_id="web-0", action="create", node_id="n1")]
    text = f"{WEB}---\nkind: job\nid: backup\ncontainer: {{image: x}}\n"

    planned = ctl("plan", "-f", "-", stdin=text)

    assert planned.code == 1
    assert "+ web-0: create on n1\n+ job/backup: create\n" in planned.out
    assert [spec.set_id for spec in cluster.planned_sets] == ["web"]
    assert not cluster.applied_sets


def test_a_plan_compares_a_job_as_the_scheduler_stores_it(cluster: Cluster, ctl: Run) -> None:
    text = "id: backup\njob: {retries: 2}\ncontainer: {image: x, restart_policy: 'NO'}\n"
    ctl("apply", "-f", "-", stdin=text.replace("'NO'", "'no'"))
    stored = cluster.jobs["backup"].spec.template.container
    stored.image_pull_policy = "IfNotPresent"

    same = ctl("plan", "-f", "-", "-o", "name", stdin=text)
    changed = ctl("plan", "-f", "-", stdin=text.replace("retries: 2", "retries: 3"))

    assert (same.code, same.out) == (0, "\n")
    assert "~ job/backup: update\n    ~ job.retries  2 -> 3" in changed.out


def test_a_refused_set_of_a_plan_has_its_line(cluster: Cluster, ctl: Run) -> None:
    cluster.plans = [
        control_pb2.WorkloadPlan(
            workload_id="web", action="refused", reason="set.replicas: is 2; expected 1"
        )
    ]

    planned = ctl("plan", "-f", "-", stdin=WEB)

    assert planned.code == 2
    assert "! web: refused: standard input:2:11: replicas: is 2; expected 1" in planned.out


def test_capacity_counts_the_missing_members(cluster: Cluster, ctl: Run) -> None:
    cluster.capacity = control_pb2.GetCapacityResponse(fits=2, survives_any_loss=True)
    cluster.capacity.losses.add(node_id="n1")
    cluster.capacity.losses.add(node_id="n2")

    fits = ctl("capacity", "-f", "-", stdin=WEB)
    too_many = ctl("capacity", "-f", "-", stdin=WEB.replace("replicas: 2", "replicas: 3"))
    cluster.sets = {"web": a_set()}
    has_two = ctl("capacity", "-f", "-", stdin=WEB.replace("replicas: 2", "replicas: 3"))

    assert fits.out.startswith("2 more of web fit; 2 of 2 members are missing\n")
    assert has_two.out.startswith("2 more of web fit; 1 of 3 members are missing\n")
    assert (fits.code, too_many.code, has_two.code) == (0, 1, 0)


@pytest.mark.parametrize(
    "words",
    ["scale web 5", "scale web=5", "scale web --replicas 5", "scale deployment/web --replicas=5"],
)
def test_a_set_is_scaled(words: str, cluster: Cluster, ctl: Run) -> None:
    cluster.sets = {"web": a_set()}

    result = ctl(*words.split())

    assert result.out == "web: being scaled to 5\n"
    assert cluster.set_calls == [("scale", "web", 5)]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("scale web", "expected one number of members, as in `persysctl scale web 3`"),
        ("scale web 3 --replicas 4", "expected one number of members"),
        ("scale web many", "invalid number of members 'many': expected a whole number"),
    ],
)
def test_a_wrong_number_of_members_is_a_usage_error(words: str, error: str, ctl: Run) -> None:
    result = ctl(*words.split())

    assert result.code == 2
    assert error in result.err


def test_only_a_set_is_scaled(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("db")

    assert "db is a workload: add `replicas` to its file" in ctl("scale", "db", "3").err
    assert "set not found: nothing" in ctl("scale", "nothing", "3").err


def test_scale_waits_until_all_members_are_healthy(cluster: Cluster, ctl: Run) -> None:
    growing = a_set(members=2)
    growing.member_count_wanted = 3
    growing.members.append(a_member("web", 2, "starting", status="Pending", node_id=""))
    cluster.sets = {"web": a_set()}
    cluster.next_sets = [counted(growing), a_set(members=3)]
    add_members(cluster, count=3)
    cluster.workloads["web-2"].status = "Pending"

    result = ctl("scale", "web", "3", "--wait", "20s")

    assert result.code == 0, result.err
    assert "web: Steady (2 of 3 healthy)\nweb-2: Pending\n" in result.out
    assert result.out.endswith("web: scaled (revision 1, 3 of 3 healthy)\n")
    assert "persysctl set get web" in next_commands(result.err)


def test_a_member_that_fits_nowhere_ends_the_wait_for_a_scale(cluster: Cluster, ctl: Run) -> None:
    growing = a_set(members=2)
    growing.member_count_wanted = 3
    growing.members.append(a_member("web", 2, "starting", status="Pending", node_id=""))
    cluster.sets = {"web": a_set()}
    cluster.next_sets = [counted(growing)]
    view = cluster.add_workload("web-2", "Pending")
    view.reason.code, view.reason.message = "Unplaceable", "short of memory"

    result = ctl("scale", "web", "3", "--wait", "20s")

    assert result.code == 1
    assert "web-2: Pending: Unplaceable: short of memory" in result.err
    assert next_commands(result.err) == ["persysctl explain web-2"]


def test_an_older_scheduler_does_not_know_sets(cluster: Cluster, ctl: Run) -> None:
    cluster.knows_sets = False
    cluster.add_workload("db")

    assert ctl("stop", "db").out == "db: being stopped\n"
    assert ctl("delete", "db").out == "db: being deleted\n"
    assert ctl("set", "list").code == 1


def test_run_with_an_existing_name_of_a_set_is_refused(cluster: Cluster, ctl: Run) -> None:
    cluster.sets = {"web": a_set()}

    result = ctl("run", "web", "--image", "nginx")

    assert result.code == 1
    assert "web already exists" in result.err


@pytest.mark.parametrize("words", ["exec web -- ls", "stats web"])
def test_a_command_for_one_workload_names_a_member(words: str, cluster: Cluster, ctl: Run) -> None:
    cluster.sets = {"web": a_set()}
    cluster.unknown_to_exec = {"web"}

    result = ctl(*words.split())

    assert result.code == 1
    assert result.err == "error: web is a set: choose a member, for example web-0\n"
