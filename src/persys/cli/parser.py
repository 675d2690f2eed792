"""The parser of persysctl, made from the table of commands."""

import argparse
from collections.abc import Iterable, Sequence

from persys.cli.arguments import GLOBAL, Argument
from persys.cli.commands import GROUPS, SINGLES, Command
from persys.cli.examples import epilog

_START = """\
begin with:
  persysctl doctor                    what is wrong here, and the cure
  persysctl apply -f web.yaml --wait  run something
  persysctl workload list             see how it goes
  persysctl explain web               why it is so
`persysctl COMMAND --help` has examples of each."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Exits with code 2 and a usage line on what it does not understand."""
    own, verbatim = _split(argv)
    # argparse would take the next word, which may be a workload, for the value of a bare --wait.
    options = new_parser().parse_args(["--wait=" if word == "--wait" else word for word in own])
    if verbatim is not None:
        if not hasattr(options, "command"):
            new_parser().error("-- comes only before the command of exec")
        options.command = [*options.command, *verbatim]
    return options


def _split(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """What is ours, and after a -- what is somebody else's: argparse would take more of them away."""
    if "--" not in argv:
        return argv, None
    at = list(argv).index("--")
    return argv[:at], argv[at + 1 :]


def new_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="persysctl",
        description="Run and watch workloads of a Persys cluster.",
        epilog=_START,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(wait=None, watch=False)
    _add(parser, GLOBAL)
    # Without `prog` argparse would lay out a usage line to find it, and import what that needs.
    groups = parser.add_subparsers(metavar="COMMAND", required=True, prog=parser.prog)
    for group in GROUPS:
        group_parser = groups.add_parser(
            group.name, help=group.help, description=group.help, allow_abbrev=False
        )
        commands = group_parser.add_subparsers(
            metavar="COMMAND", required=True, prog=group_parser.prog
        )
        for command in group.commands:
            _add_command(commands, command, f"{group.name} {command.name}")
    for command in SINGLES:
        _add_command(groups, command, command.name)
    return parser


def _add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", command: Command, name: str
) -> None:
    parser = commands.add_parser(
        command.name,
        help=command.help,
        description=command.help,
        epilog=epilog(name),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=command.run)
    _add(parser, command.arguments)
    # Global options are also taken after the command. Suppressed there, an absent one undoes no earlier one.
    for argument in GLOBAL:
        parser.add_argument(*argument.names, **{**argument.how, "default": argparse.SUPPRESS})


def _add(parser: argparse.ArgumentParser, arguments: Iterable[Argument]) -> None:
    for argument in arguments:
        parser.add_argument(*argument.names, **argument.how)
