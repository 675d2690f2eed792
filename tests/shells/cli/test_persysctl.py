"""persysctl as a process: its imports, exit codes and --watch."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from shells.cli.sets_and_jobs import a_set

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "persys.cli.persysctl", *words]


@pytest.fixture
def variables(environ: dict[str, str], cluster: Cluster) -> dict[str, str]:
    return {**environ, "PERSYS_GRPC_ENDPOINT": cluster.address}


def imported_by(words: tuple[str, ...], variables: dict[str, str]) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", *command(*words)[1:]],
        env=variables,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}


def test_help_imports_nothing_heavy(variables: dict[str, str]) -> None:
    imported = imported_by(("--help",), variables)

    assert not imported & {
        "grpc",
        "yaml",
        "rich",
        "asyncio",
        "google.protobuf",
        "msgspec",
        "pathlib",
    }


@pytest.mark.parametrize("words", ["node list", "set list", "job list", "scale web 3"])
def test_a_table_imports_only_the_scheduler_client(
    words: str, variables: dict[str, str], cluster: Cluster
) -> None:
    cluster.sets = {"web": a_set()}

    imported = imported_by(tuple(words.split()), variables)

    assert "grpc" in imported
    assert not imported & {"yaml", "rich", "msgspec", "structlog", "numpy", "json"}


def test_the_exit_code_and_all_output_reach_the_caller(
    variables: dict[str, str], cluster: Cluster
) -> None:
    for number in range(2000):
        cluster.add_workload(f"workload-{number}")

    result = subprocess.run(
        command("workload", "list", "-o", "name"), env=variables, capture_output=True, timeout=30
    )
    missing = subprocess.run(
        command("workload", "get", "ghost"), env=variables, capture_output=True, timeout=30
    )

    assert (result.returncode, len(result.stdout.splitlines())) == (0, 2000)
    assert (missing.returncode, missing.stderr) == (1, b"error: workload not found: ghost\n")


def test_a_closed_pipe_is_not_an_error(variables: dict[str, str], cluster: Cluster) -> None:
    for number in range(2000):
        cluster.add_workload(f"workload-{number}")

    process = subprocess.Popen(
        command("workload", "list", "-o", "json"),
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait(timeout=30) == 0


def test_watch_shows_changes_and_exits_on_interrupt(
    variables: dict[str, str], cluster: Cluster
) -> None:
    view = cluster.add_workload("web", "Pending")
    with subprocess.Popen(
        command("workload", "list", "--watch"), env=variables, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        assert "STATUS" in next(lines)
        assert "Pending" in next(lines)

        view.status = "Running"

        assert "STATUS" in next(lines)
        assert "Running" in next(lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0


def test_watch_shows_each_member_of_a_rollout(variables: dict[str, str], cluster: Cluster) -> None:
    view = a_set(phase="Rolling", revision=2)
    view.members[1].health = "starting"
    cluster.sets = {"web": view}
    with subprocess.Popen(
        command("rollout", "status", "web", "--watch"),
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout)
        shown = next(line for line in lines if "starting" in line)
        assert shown.startswith(view.members[1].workload_id)

        view.members[1].health = "healthy"

        assert "Rolling" in next(line for line in lines if "Phase" in line)
        members = [next(line for line in lines if line.startswith("web-")) for _ in range(2)]
        assert all("healthy" in line for line in members)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
