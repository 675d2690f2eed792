"""Parsing: repeated options, several files, unknown commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from persys.cli.framework.arguments import GLOBAL, Argument
from persys.cli.framework.command_table import GROUPS, SINGLES
from persys.cli.framework.parser import parse
from persys.cli.framework.tables.command import Command
from persys.infra.command_line import StrictParser
from persys.model.placement import Offload, Rules
from persys.wire.control.placement import rules_message
from persys.wire.gen.control.v1 import control_pb2

if TYPE_CHECKING:
    from shells.cli.conftest import Cluster, Run

COMMANDS: dict[str, Command] = {
    **{f"{group.name} {each.name}": each for group in GROUPS for each in group.commands},
    **{each.name: each for each in SINGLES},
}
# Global options are added to each command by one line, so one command is tested for all.
OPTIONS = {name: command.arguments for name, command in COMMANDS.items()} | {"version": GLOBAL}
WITH_VALUE = [
    (name, option.names[0])
    for name, options in OPTIONS.items()
    for option in options
    if option.is_option and option.takes_value
]
WEB = "id: web\ncontainer: {image: nginx}\n"
DB = "id: db\ncontainer: {image: postgres}\n"


def words_of(name: str) -> list[str]:
    """The command with all required arguments."""
    words = name.split()
    for argument in COMMANDS[name].arguments:
        if argument.is_option and argument.kwargs.get("required"):
            words += [argument.names[0], value_of(argument)]
        elif not argument.is_option and argument.kwargs.get("nargs") not in ("?", "*"):
            words.append(value_of(argument))
    return words


def value_of(argument: Argument) -> str:
    if "choices" in argument.kwargs:
        return str(argument.kwargs["choices"][0])
    return "1" if argument.kwargs.get("type") in (int, float) else "1s"


def the_option(name: str, option: str) -> Argument:
    known = (*COMMANDS[name].arguments, *GLOBAL)
    return next(each for each in known if option in each.names)


@pytest.mark.parametrize(("name", "option"), WITH_VALUE)
def test_an_option_given_twice_collects_both_values_or_is_refused(
    name: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argument = the_option(name, option)
    twice = [f"{argument.names[-1]}={value_of(argument)}"] * 2

    if argument.repeats:
        found = getattr(
            parse([*words_of(name), *twice]), argument.names[-1].strip("-").replace("-", "_")
        )
        assert found[-2:] == [value_of(argument)] * 2
    else:
        with pytest.raises(SystemExit):
            parse([*words_of(name), *twice])
        assert "given more than once" in capsys.readouterr().err


@pytest.mark.parametrize("option", [each.names[-1] for each in GLOBAL if each.takes_value])
def test_a_global_option_before_and_after_the_command_is_given_twice(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    value = value_of(the_option("version", option))

    with pytest.raises(SystemExit):
        parse([option, value, "version", option, value])

    assert "given more than once" in capsys.readouterr().err


def test_no_program_accepts_an_option_twice() -> None:
    parser = StrictParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--name", action="store")

    for twice in (["--port=1", "--port=2"], ["--name", "a", "--name", "a"]):
        with pytest.raises(SystemExit):
            parser.parse_args(twice)


def test_all_files_are_applied_in_order(cluster: Cluster, ctl: Run, tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(WEB)
    (tmp_path / "a.yaml").write_text(DB)

    result = ctl("apply", "-f", str(tmp_path / "b.yaml"), "--file", str(tmp_path / "a.yaml"))

    assert (result.code, result.out) == (0, "web: created\ndb: created\n")


def test_a_directory_stands_for_all_its_spec_files(
    cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    (tmp_path / "2.yml").write_text(WEB)
    (tmp_path / "1.json").write_text('{"id": "db", "container": {"image": "postgres"}}')
    (tmp_path / "notes.txt").write_text("not a spec")

    result = ctl("apply", "-f", str(tmp_path))

    assert (result.code, result.out) == (0, "db: created\nweb: created\n")


def test_files_and_standard_input_can_be_combined(
    cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    (tmp_path / "web.yaml").write_text(WEB)

    result = ctl("plan", "-f", str(tmp_path / "web.yaml"), "-f", "-", stdin=DB)

    assert result.code == 0
    assert cluster.planned == ["web", "db"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("-f", "{0}", "-f", "{0}"), "'web' is also in"),
        (("-f", "-", "-f", "-"), "only once"),
        (("-f", "{1}"), "has no .yaml, .yml, .json files"),
        (("-f", "{0}", "--id", "other"), "--id needs a Compose file"),
    ],
)
def test_files_that_cannot_be_combined_send_nothing(
    words: tuple[str, ...], problem: str, cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    (tmp_path / "web.yaml").write_text(WEB)
    (tmp_path / "empty").mkdir()
    places = (tmp_path / "web.yaml", tmp_path / "empty")

    result = ctl("apply", *(word.format(*places) for word in words))

    assert result.code == 2
    assert problem in result.err
    assert cluster.applied == []


def test_a_compose_file_is_applied_as_a_stack(cluster: Cluster, ctl: Run, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "docker-compose.yml").write_text("services:\n  web:\n    image: nginx\n")

    result = ctl("apply", "-f", str(folder / "docker-compose.yml"))

    said = f"{folder}/docker-compose.yml: Compose file, applied as stack 'shop'\n"
    assert (result.code, result.out) == (0, f"{said}shop: created\n")
    assert cluster.applied[0].spec.compose.source_type == "inline"


def test_the_printed_spec_can_be_applied_again(cluster: Cluster, ctl: Run) -> None:
    view = cluster.add_workload("web")
    view.spec.container.image = "nginx"
    rules = Rules(offload=Offload.WHEN_FULL, offload_data=True, return_when_free=True)
    view.spec.placement.MergeFrom(rules_message(rules))
    shown = ctl("workload", "get", "web", "-o", "yaml")

    result = ctl("apply", "-f", "-", stdin=shown.out)

    assert (result.code, result.out) == (0, "web: unchanged\n")
    assert cluster.applied[0].spec.container == view.spec.container
    assert cluster.applied[0].spec.placement == view.spec.placement


def test_apply_prints_created_updated_or_unchanged(cluster: Cluster, ctl: Run) -> None:
    outputs = [
        ctl("apply", "-f", "-", stdin=WEB + more).out
        for more in ("", "", "revision_id: r2\n", "desired_state: Stopped\n")
    ]

    assert outputs[:3] == ["web: created\n", "web: unchanged\n", "web: updated\n"]
    assert outputs[3] == "web: updated\n    ~ desired_state  Running -> Stopped\n"


def test_a_refusal_of_the_scheduler_names_file_and_line(
    cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    path = tmp_path / "web.yaml"
    path.write_text("id: web\ncontainer:\n  image: nginx\n")
    cluster.refusal = (control_pb2.INVALID_SPEC, "spec.container.image: is not allowed here")

    result = ctl("apply", "-f", str(path))

    assert result.code == 2
    assert f"{path}:3:10: spec.container.image: is not allowed here" in result.err


def test_a_refusal_in_a_plan_names_file_and_line(
    cluster: Cluster, ctl: Run, tmp_path: Path
) -> None:
    path = tmp_path / "web.yaml"
    path.write_text("id: web\ncontainer:\n  image: nginx\n  env:\n    A: secret://nope\n")
    reason = "spec.container.env['A']: secret nope does not exist"
    cluster.plans = [control_pb2.WorkloadPlan(workload_id="web", action="refused", reason=reason)]

    result = ctl("plan", "-f", str(path))

    assert result.code == 2
    assert f"refused: {path}:5:8: {reason}" in result.out


def test_version_is_an_option_too(run: Run) -> None:
    assert run("--version").out == run("version").out
