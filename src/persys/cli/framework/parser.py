"""The parser of persysctl, built from the command table.

An option that takes a value either collects the values of all its uses or may be given once: a second use
never replaces the first silently.
"""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from persys.cli.framework.arguments import GLOBAL, Argument, join_wait_value
from persys.cli.framework.command_table import GROUPS, SINGLES
from persys.cli.framework.examples import epilog
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.tables.command import Command
from persys.infra.command_line import StrictParser

_GETTING_STARTED = """\
getting started:
  persysctl doctor                    check for common problems and name the fix
  persysctl apply -f web.yaml --wait  run a workload
  persysctl workload list             list workloads and their status
  persysctl explain web               explain why it runs on its node
`persysctl COMMAND --help` shows examples."""

# Global options are accepted before and after the command; with one name argparse would let the latter win.
_AFTER_COMMAND = "after_command_"


class _Parser(StrictParser):
    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            from persys.cli.framework.did_you_mean import unknown_command  # start-up time

            # Without the usage line, which would hide the suggestion.
            error = unknown_command(self.prog, str(value), [*action.choices])
            self.exit(ExitCode.USAGE, f"error: {error}\n")
        super()._check_value(action, value)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; on an error, print the usage and exit with code 2."""
    own, verbatim = _split(argv)
    parser = new_parser()
    options = _merged(parser.parse_args(join_wait_value(own)), parser)
    if verbatim is not None:
        if not hasattr(options, "command"):
            parser.error("-- is only used before the command of exec")
        options.command = [*options.command, *verbatim]
    return options


def _split(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """Split into the words of persysctl and, after a --, those of the command that exec runs."""
    if "--" not in argv:
        return argv, None
    at = list(argv).index("--")
    return argv[:at], argv[at + 1 :]


def _merged(options: argparse.Namespace, parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Store global options that were given after the command under their own names."""
    for argument in GLOBAL:
        name = _dest(argument)
        after = vars(options).pop(f"{_AFTER_COMMAND}{name}", None)
        if after is None:
            continue
        if argument.takes_value and getattr(options, name) is not None:
            _given_twice(parser, argument)
        setattr(options, name, after)
    return options


def _given_twice(parser: argparse.ArgumentParser, argument: Argument) -> NoReturn:
    parser.error(f"argument {'/'.join(argument.names)}: given more than once")


def _dest(argument: Argument) -> str:
    return argument.names[-1].lstrip("-").replace("-", "_")


def new_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="persysctl",
        description="Run and manage workloads on a Persys cluster.",
        epilog=_GETTING_STARTED,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(wait=None, watch=False)
    parser.add_version()
    _add(parser, GLOBAL)
    # Without `prog` argparse would format a usage line to find it, which imports more modules.
    groups = parser.add_subparsers(metavar="COMMAND", required=True, prog=parser.prog)
    for group in GROUPS:
        group_parser = groups.add_parser(group.name, help=group.help, description=group.help)
        commands = group_parser.add_subparsers(
            metavar="COMMAND", required=True, prog=group_parser.prog
        )
        for command in group.commands:
            _add_command(commands, command, f"{group.name} {command.name}")
    for command in SINGLES:
        _add_command(groups, command, command.name)
    return parser


def _add_command(
    commands: "argparse._SubParsersAction[_Parser]", command: Command, name: str
) -> None:
    parser = commands.add_parser(
        command.name,
        help=command.help,
        description=command.help,
        epilog=epilog(name),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=command.run)
    _add(parser, command.arguments)
    for argument in GLOBAL:
        # With SUPPRESS an absent option sets no attribute.
        kwargs = {
            **argument.kwargs,
            "default": argparse.SUPPRESS,
            "dest": f"{_AFTER_COMMAND}{_dest(argument)}",
            "metavar": argument.kwargs.get("metavar"),
        }
        if not argument.takes_value:
            del kwargs["metavar"]
        parser.add_argument(*argument.names, **kwargs)


def _add(parser: argparse.ArgumentParser, arguments: Iterable[Argument]) -> None:
    for argument in arguments:
        parser.add_argument(*argument.names, **argument.kwargs)
