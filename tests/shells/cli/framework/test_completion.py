"""Shell completion: the output of the hidden command, and the scripts."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from persys.cli.framework.command_table import SECTIONS
from shells.cli.sets_and_jobs import a_job, a_run, a_set

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run


@pytest.fixture
def complete(ctl: Run) -> Any:
    def complete(*words: str) -> list[str]:
        result = ctl("__complete", "--", *words)
        assert result.code == 0
        assert result.err == ""
        return [line.partition("\t")[0] for line in result.out.splitlines()]

    return complete


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("",), sorted(row.name for _, rows in SECTIONS for row in rows)),
        (("cl",), ["cluster", "cluster-info"]),
        (("desc",), ["describe"]),
        (("get", "nod"), ["nodepools", "nodes"]),
        (("nodes", "c"), ["confirm-dead", "cordon"]),
        (("container", "l"), ["list"]),
        (("config", "use"), ["use-context"]),
        (("workload", "st"), ["start", "stop"]),
        (("-o", "json", "node", "g"), ["get"]),
        (("node", "list", "-o", "w"), ["wide"]),
        (("node", "list", "--w"), ["--watch"]),
        (("workload", "apply", "--wa"), ["--wait"]),
        (("completion", ""), ["bash", "fish", "zsh"]),
        (("nonsense", ""), []),
        (("version", ""), []),
        (("cluster", "summary", "--timeout", ""), []),
    ],
)
def test_words_are_completed(words: tuple[str, ...], expected: list[str], complete: Any) -> None:
    assert complete(*words) == expected


def test_ids_come_from_the_cluster(cluster: Cluster, complete: Any) -> None:
    cluster.add_workload("web")
    cluster.add_workload("worker")
    cluster.add_workload("db")
    cluster.add_node("n1")

    assert complete("workload", "get", "w") == ["web", "worker"]
    assert complete("workload", "get", "web", "") == [], "one is enough"
    assert complete("workload", "delete", "--wait", "web", "w") == ["worker"]
    assert complete("node", "get", "") == ["n1"]
    assert complete("describe", "") == ["db", "web", "worker"]
    assert complete("describe", "w") == ["web", "worker", "workloads"]
    assert complete("describe", "node", "") == ["n1"]
    assert complete("rm", "web", "w") == ["worker"]
    assert complete("workload", "list", "--node", "") == ["n1"]


def test_names_of_sets_jobs_and_runs_come_from_the_cluster(cluster: Cluster, complete: Any) -> None:
    cluster.add_workload("web-0")
    cluster.sets = {"web": a_set()}
    cluster.jobs = {"backup": a_job("backup", a_run("backup-2"), a_run("backup-1"))}

    assert complete("scale", "") == ["web"]
    assert complete("rollout", "undo", "") == ["web"]
    assert complete("rollout", "status", "deployment/") == []
    assert complete("job", "run", "") == ["backup"]
    assert complete("job", "logs", "backup", "") == ["backup-1", "backup-2"]
    assert complete("logs", "w") == ["web", "web-0"]
    assert complete("ps", "") == ["backup", "web"]
    assert complete("workload", "delete", "") == ["backup", "web", "web-0"]


def test_an_older_scheduler_completes_workloads(cluster: Cluster, complete: Any) -> None:
    cluster.knows_sets = False
    cluster.add_workload("web")

    assert complete("workload", "get", "") == ["web"]
    assert complete("scale", "") == []


def test_candidates_have_a_description(cluster: Cluster, ctl: Run) -> None:
    cluster.add_workload("web", "Failed")

    assert ctl("__complete", "--", "workload", "get", "").out == "web\tFailed\n"


def test_the_scheduler_on_the_command_line_is_used(cluster: Cluster, run: Run) -> None:
    cluster.add_workload("web")

    for words in (("--scheduler", cluster.address), (f"--scheduler={cluster.address}",)):
        result = run("__complete", "--", *words, "workload", "get", "")
        assert result.out == "web\tRunning\n"


def test_a_cluster_that_does_not_answer_completes_nothing(run: Run, unused_address: str) -> None:
    result = run("__complete", "--", "--scheduler", unused_address, "workload", "get", "")

    assert (result.code, result.out, result.err) == (0, "", "")


def test_files_are_completed(complete: Any, tmp_path: Path) -> None:
    (tmp_path / "web.yaml").touch()
    (tmp_path / "web.d").mkdir()

    for words in (("workload", "apply", "-f"), ("job", "plan")):
        found = complete(*words, f"{tmp_path}/we")

        assert found == [f"{tmp_path}/web.d/", f"{tmp_path}/web.yaml"]


def test_the_bash_script_completes_in_bash(
    run: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "completion"
    script.write_text(run("completion", "bash").out)
    session = f"""
        source {script}
        COMP_WORDS=(persysctl workload st) COMP_CWORD=2
        _persysctl
        echo "${{COMPREPLY[@]}}"
    """

    result = subprocess.run(
        ["bash", "-c", session],
        env={**environ, "PATH": f"{Path(__import__('sys').executable).parent}:{environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert result.stdout == "start stop\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_scripts_call_the_hidden_command(shell: str, run: Run) -> None:
    result = run("completion", shell)

    assert result.code == 0
    assert "__complete -- " in result.out
