"""persysctl init: spec files to start from."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

import pytest

from persys.cli.framework.arguments import EXAMPLE_TYPES

if TYPE_CHECKING:
    from pathlib import Path

    from shells.cli.conftest import Cluster, Run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_example_is_a_type_and_is_commented() -> None:
    found = [each for each in files("persys.examples").iterdir() if each.name.endswith(".yaml")]
    examples = {each.name: each.read_text() for each in found}

    assert examples.keys() == {f"{kind}.yaml" for kind in EXAMPLE_TYPES}
    assert all(text.startswith("# ") for text in examples.values())


def test_a_file_of_each_type_is_written(here: Path, run: Run) -> None:
    result = run("init")

    assert result.code == 0
    assert {path.stem for path in here.glob("*.yaml")} == set(EXAMPLE_TYPES)
    assert "persysctl apply -f container.yaml" in result.out
    assert "persysctl nodepool create -f nodepool.yaml" in result.out


@pytest.mark.parametrize("kind", EXAMPLE_TYPES)
def test_the_printed_command_applies_the_written_file(
    kind: str, here: Path, cluster: Cluster, ctl: Run
) -> None:
    written = ctl("init", kind, "-o", "my.yaml")
    command = written.out.partition("`persysctl ")[2].partition("`")[0]

    result = ctl(*command.split())

    assert result.code == 0, result.err
    assert len(cluster.applied) + len(cluster.pools) == 1


def test_an_existing_file_is_never_overwritten(here: Path, run: Run) -> None:
    (here / "vm.yaml").write_text("mine")

    for words in (("init", "vm"), ("init",)):
        result = run(*words)
        assert result.code == 2
        assert "vm.yaml exists" in result.err
    assert [path.name for path in here.glob("*.yaml")] == ["vm.yaml"]
    assert (here / "vm.yaml").read_text() == "mine"


def test_the_file_can_be_printed(here: Path, run: Run) -> None:
    shown = run("init", "git", "-o", "-")

    assert "git_repo:" in shown.out
    assert not list(here.glob("*.yaml"))


def test_a_file_name_needs_a_type_and_a_writable_place(here: Path, run: Run) -> None:
    assert "-o needs a type" in run("init", "-o", "a.yaml").err
    assert "cannot write none/a.yaml" in run("init", "vm", "-o", "none/a.yaml").err
    assert run("init", "pod").code == 2
