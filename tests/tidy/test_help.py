"""Every program and each of its commands prints a help page, also without its required arguments."""

from __future__ import annotations

import argparse
import sys
import tomllib
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

from persys.ca.cli import new_parser as ca_parser
from persys.cli.framework.parser import new_parser as persysctl_parser
from persys.cli.persys import new_parser as persys_parser

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARSERS = {"persys": persys_parser, "persys-ca": ca_parser, "persysctl": persysctl_parser}


def commands_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, ...]]:
    """The words of each command and of each group of commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                yield (name,)
                yield from ((name, *rest) for rest in commands_of(command))


CALLS = [
    *(
        (program, ())
        for program in ("persys-agent", "persys-federation", "persys-gateway", "persys-scheduler")
    ),
    ("persys-agent", ("join",)),
    *((program, ()) for program in PARSERS),
    *((program, words) for program, parser in PARSERS.items() for words in commands_of(parser())),
]


def run(program: str, words: tuple[str, ...], root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts[program].partition(":")
    monkeypatch.setattr(sys, "argv", [program, *words])
    # persysctl ends its process; its `run` is what it does before.
    if program == "persysctl":
        raise SystemExit(import_module(module).run(words))
    getattr(import_module(module), function)()


@pytest.mark.parametrize(
    ("program", "words"), CALLS, ids=[" ".join((program, *words)) for program, words in CALLS]
)
def test_help_is_printed_and_the_exit_code_is_0(
    program: str,
    words: tuple[str, ...],
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as error:
        run(program, (*words, "--help"), root, monkeypatch)

    printed = capsys.readouterr()
    assert error.value.code == 0
    assert printed.err == ""
    assert printed.out.startswith(f"usage: {' '.join((program, *words))} ")


def test_every_installed_program_is_covered(root: Path) -> None:
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]

    assert {program for program, _ in CALLS} == scripts.keys()


@pytest.mark.parametrize(("program", "command"), [("persys-ca", "token"), ("persys-agent", "join")])
def test_the_help_page_of_a_program_names_its_commands(
    program: str,
    command: str,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        run(program, ("--help",), root, monkeypatch)

    assert f"{program} {command} --help" in capsys.readouterr().out
