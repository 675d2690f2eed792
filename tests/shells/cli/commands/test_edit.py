"""persysctl edit: the editor, the plan, the question and the apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from persys.wire.gen.control.v1 import control_pb2 as pb
from shells.cli.sets_and_jobs import a_job, a_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from shells.cli.conftest import CliResult, Cluster, Run

REFUSED = "spec.container.image: is not allowed here"


@pytest.fixture
def edit(cluster: Cluster, ctl: Run, tmp_path: Path) -> Callable[..., CliResult]:
    """persysctl edit with an editor that runs one script after the other."""
    view = cluster.add_workload("web")
    view.spec.type = "container"
    view.spec.container.image = "nginx:1"
    cluster.plans = [pb.WorkloadPlan(workload_id="web", action="update", node_id="n1")]
    (tmp_path / "tmp").mkdir()

    def edit(*scripts: str, answer: str = "y\n", words: tuple[str, ...] = ()) -> CliResult:
        for number, script in enumerate(scripts, 1):
            (tmp_path / f"{number}.sh").write_text(script)
        editor = tmp_path / "editor"
        editor.write_text(
            f"#!/bin/sh\nn=$(cat {tmp_path}/turn 2>/dev/null || echo 0); n=$((n+1)); echo $n > "
            f'{tmp_path}/turn\ncp "$1" {tmp_path}/seen-$n\nsh {tmp_path}/$n.sh "$1"\n'
        )
        editor.chmod(0o755)
        return ctl(
            "edit",
            "web",
            *words,
            stdin=answer,
            VISUAL="",
            EDITOR=str(editor),
            TMPDIR=str(tmp_path / "tmp"),
        )

    return edit


NEW_IMAGE = 'sed -i s/nginx:1/nginx:2/ "$1"'


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)


def test_a_change_is_planned_confirmed_and_applied(
    edit: Callable[..., CliResult], cluster: Cluster, tmp_path: Path
) -> None:
    result = edit(NEW_IMAGE)

    assert result.code == 0, result.err
    assert "~ web: update on n1" in result.out
    assert "Apply these changes?" in result.out
    assert cluster.applied[0].spec.container.image == "nginx:2"
    assert "status:" not in (tmp_path / "seen-1").read_text()
    assert not list((tmp_path / "tmp").iterdir()), "the file is removed"


@pytest.mark.parametrize("answer", ["n\n", "", "\n"])
def test_only_a_yes_applies(
    answer: str, edit: Callable[..., CliResult], cluster: Cluster, tmp_path: Path
) -> None:
    result = edit(NEW_IMAGE, answer=answer)

    assert result.code == 2
    assert cluster.applied == []
    (kept,) = (tmp_path / "tmp").glob("*/web.yaml")
    assert str(kept) in result.err
    assert "nginx:2" in kept.read_text()


def test_yes_applies_without_a_question(edit: Callable[..., CliResult], cluster: Cluster) -> None:
    result = edit(NEW_IMAGE, answer="", words=("--yes",))

    assert result.code == 0
    assert "Apply" not in result.out
    assert len(cluster.applied) == 1


def test_a_file_without_changes_changes_nothing(
    edit: Callable[..., CliResult], cluster: Cluster
) -> None:
    assert edit("true").out == "web: unchanged\n"
    assert edit("true", 'truncate -s 0 "$1"').out == "web: unchanged\n"
    assert (cluster.applied, cluster.planned) == ([], [])


def test_an_invalid_spec_is_opened_again_with_the_error(
    edit: Callable[..., CliResult], cluster: Cluster, tmp_path: Path
) -> None:
    result = edit('sed -i s/image:/imag:/ "$1"', 'sed -i "s/imag:.*/image: nginx:2/" "$1"')

    assert result.code == 0, result.err
    again = (tmp_path / "seen-2").read_text().splitlines()
    (error,) = [line for line in again if line.startswith("# error: ")]
    assert "container.imag: unknown key; did you mean image?" in error
    line = int(error.partition("web.yaml:")[2].partition(":")[0])
    assert "imag:" in again[line - 1]
    assert cluster.applied[0].spec.container.image == "nginx:2"


def test_a_refused_spec_that_is_left_as_it_is_ends_the_edit(
    edit: Callable[..., CliResult], cluster: Cluster
) -> None:
    cluster.plans = [pb.WorkloadPlan(workload_id="web", action="refused", reason=REFUSED)]

    result = edit(NEW_IMAGE, "true")

    assert result.code == 2
    assert "is not allowed here" in result.err
    assert "is kept" in result.err
    assert cluster.applied == []


def test_the_id_cannot_change(edit: Callable[..., CliResult], cluster: Cluster) -> None:
    result = edit('sed -i "s/id: web/id: shop/" "$1"', "true")

    assert "id: cannot be changed" in result.err
    assert cluster.applied == []


def test_a_change_by_another_user_is_not_overwritten(
    edit: Callable[..., CliResult], cluster: Cluster
) -> None:
    class ChangedMeanwhile(list[pb.WorkloadPlan]):
        def __iter__(self) -> Iterator[pb.WorkloadPlan]:
            cluster.workloads["web"].revision_id = "r9"
            return super().__iter__()

    cluster.plans = ChangedMeanwhile(cluster.plans)

    result = edit(NEW_IMAGE)

    assert result.code == 1
    assert "was changed by another request" in result.err
    assert cluster.applied == []


def test_an_editor_that_fails_or_is_missing(cluster: Cluster, ctl: Run, tmp_path: Path) -> None:
    cluster.add_workload("web").spec.container.image = "nginx"

    failed = ctl("edit", "web", VISUAL="", EDITOR="false", TMPDIR=str(tmp_path))
    missing = ctl("edit", "web", VISUAL="", EDITOR="no-such-editor", TMPDIR=str(tmp_path))

    assert "ended with exit code 1" in failed.err
    assert "cannot start the editor 'no-such-editor'" in missing.err
    assert (failed.code, missing.code) == (2, 2)


def test_an_unknown_workload(ctl: Run, cluster: Cluster, tmp_path: Path) -> None:
    result = ctl("edit", "ghost", EDITOR="true", TMPDIR=str(tmp_path))

    assert (result.code, result.err) == (1, "error: workload not found: ghost\n")


def test_a_set_is_edited(edit: Callable[..., CliResult], cluster: Cluster, tmp_path: Path) -> None:
    cluster.workloads.clear()
    cluster.sets = {"web": a_set()}
    cluster.plans = [pb.WorkloadPlan(workload_id="web-0", action="update", node_id="n1")]

    result = edit('sed -i "s/replicas: 2/replicas: 5/" "$1"')

    assert result.code == 0, result.err
    assert "kind: set\nid: web\nreplicas: 2\n" in (tmp_path / "seen-1").read_text()
    assert cluster.applied_sets[0].set.replicas == 5


def test_a_job_is_edited(edit: Callable[..., CliResult], cluster: Cluster) -> None:
    cluster.workloads.clear()
    cluster.jobs = {"web": a_job("web")}

    result = edit('printf "job: {retries: 3}\n" >> "$1"')

    assert result.code == 0, result.err
    assert "~ job/web: update\n    + job.retries  3" in result.out
    assert cluster.applied_jobs[0].job.retries == 3


def test_a_workload_becomes_a_set_by_an_edit(
    edit: Callable[..., CliResult], cluster: Cluster
) -> None:
    result = edit('printf "replicas: 3\n" >> "$1"')

    assert result.code == 0, result.err
    assert cluster.applied_sets[0].set.replicas == 3
    assert not cluster.applied
