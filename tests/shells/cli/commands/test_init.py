"""persysctl init: spec files to start from."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
import yaml

from persys.cli.framework.arguments import EXAMPLE_TYPES

if TYPE_CHECKING:
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


@pytest.mark.parametrize("directory", ["", "specs"])
def test_the_first_line_of_a_written_file_names_the_schema_beside_it(
    directory: str, here: Path, run: Run
) -> None:
    (here / "specs").mkdir()

    for kind in EXAMPLE_TYPES:
        written = here / directory / f"my-{kind}.yaml"
        assert run("init", kind, "-o", str(written.relative_to(here))).code == 0
        text = written.read_text()
        line = text.partition("\n")[0]
        prefix, _, schema = line.partition("$schema=")
        assert prefix == "# yaml-language-server: "
        content = json.loads((written.parent / schema).read_text())
        jsonschema.validate(yaml.safe_load(text), content)


def test_a_schema_in_the_directory_is_kept(here: Path, run: Run) -> None:
    (here / "workload.schema.json").write_text("{}")

    result = run("init", "vm")

    assert result.code == 0
    assert "schema" not in result.out
    assert (here / "workload.schema.json").read_text() == "{}"


@pytest.mark.parametrize("kind", EXAMPLE_TYPES)
def test_the_printed_command_applies_the_written_file(
    kind: str, here: Path, cluster: Cluster, ctl: Run
) -> None:
    written = ctl("init", kind, "-o", "my.yaml")
    command = written.out.partition("`persysctl ")[2].partition("`")[0]

    result = ctl(*command.split())

    assert result.code == 0, result.err
    created = (
        cluster.applied,
        cluster.pools,
        cluster.applied_sets,
        cluster.applied_jobs,
        cluster.services,
    )
    assert sum(len(each) for each in created) == 1


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
    assert "$schema" not in shown.out
    assert not list(here.iterdir())


def test_a_file_name_needs_a_type_and_a_writable_place(here: Path, run: Run) -> None:
    assert "-o needs a type" in run("init", "-o", "a.yaml").err
    assert "cannot write none/a.yaml" in run("init", "vm", "-o", "none/a.yaml").err
    assert run("init", "pod").code == 2
