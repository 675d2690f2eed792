"""The examples of the SDK documentation, with a scheduler and with a gateway."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import persys.client
from persys.client import SchedulerClient
from shells.cli.gateway import gateway

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster

DOCUMENT = (Path(__file__).parents[4] / "docs" / "reference" / "sdk.md").read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", DOCUMENT, re.M | re.S)


def run_example(capsys: pytest.CaptureFixture[str], block: int = 0) -> str:
    exec(compile(BLOCKS[block], "docs/reference/sdk.md", "exec"), {"__name__": "example"})
    return capsys.readouterr().out


EXPECTED = "n1 Ready\napplied web r1\nPending\nworkload not found: missing\n"


def test_the_example_runs_at_a_scheduler(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.add_node("n1")
    monkeypatch.delenv("PERSYS_API_ENDPOINT", raising=False)
    monkeypatch.setenv("PERSYS_GRPC_ENDPOINT", cluster.address)

    assert run_example(capsys) == EXPECTED


def test_the_example_runs_at_a_gateway(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.add_node("n1")
    with gateway(scheduler_addr=(cluster.address,)) as url:
        monkeypatch.setenv("PERSYS_API_ENDPOINT", url)

        assert run_example(capsys) == EXPECTED


def test_a_program_can_use_the_settings_of_persysctl(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.add_node("n1")
    monkeypatch.delenv("PERSYS_API_ENDPOINT", raising=False)
    monkeypatch.setenv("PERSYS_GRPC_ENDPOINT", cluster.address)

    assert run_example(capsys, 1).startswith("web False Pending timed out after 2s")


def test_sets_and_jobs_are_applied_and_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PERSYS_API_ENDPOINT", raising=False)
    monkeypatch.setenv("PERSYS_GRPC_ENDPOINT", cluster.address)

    shown = run_example(capsys, 2).splitlines()

    assert shown[0].startswith("web False Rolling timed out after 1s")
    assert shown[1].startswith("RunResult(succeeded=False, run_id='backup-")
    assert cluster.set_calls == [("scale", "web", 5)]


def test_imports_of_the_document_exist() -> None:
    exec(compile(BLOCKS[3], "docs/reference/sdk.md", "exec"), {})
    assert all(hasattr(persys.client, name) for name in persys.client.__all__)


def test_every_call_the_document_names_exists() -> None:
    table = DOCUMENT.partition("## Calls")[2].partition("`AgentClient`")[0]
    named = {
        name
        for row in re.findall(r"^\| (`.*?) \|", table, re.M)
        for name in re.findall(r"`(\w+)`", row)
    }

    assert named
    assert [name for name in named if not hasattr(SchedulerClient, name)] == []
