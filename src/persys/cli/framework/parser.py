"""The parser of persysctl, built from the command table after aliases are replaced.

Only the selected command is built with its arguments: start-up time. An option that takes a value either
collects the values of all its uses or may be given once: a second use never replaces the first silently.
"""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from persys.cli.framework.aliases import operand_at, rewrite, unknown_command, unknown_words
from persys.cli.framework.arguments import GLOBAL, Argument, join_wait_value
from persys.cli.framework.command_table import GROUPS, SINGLES
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.tables.command import Command, Group
from persys.infra.command_line import StrictParser

PROGRAM = "persysctl"
CONNECTION_HINT = f"`{PROGRAM} help connection` shows the options for the connection."
# Global options are accepted before and after the command; with one name argparse would let the latter win.
_AFTER_COMMAND = "after_command_"
_OUTPUT = "output"
_DRY_RUN = "--dry-run"
_EXEC = "exec"


class _Parser(StrictParser):
    """Reports an unknown command without the usage, which would hide the suggestion."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.refuse(unknown_command(self.prog, str(value), [*action.choices]))
        super()._check_value(action, value)

    def refuse(self, error: str) -> NoReturn:
        self.exit(ExitCode.USAGE, f"error: {error}\n")


class _CommandParser(_Parser):
    """The help has the examples before the options."""

    def format_help(self) -> str:
        from persys.cli.framework.examples import examples_of  # start-up time

        lines = examples_of(self.prog.removeprefix(f"{PROGRAM} "))
        examples = "\n".join(f"  {line}" for line in lines)
        self.description = f"{sentence(self.description or '')}\n\nexamples:\n{examples}"
        self.epilog = CONNECTION_HINT
        return super().format_help()


class _Overview(_Parser):
    """The help of the program lists its commands by area."""

    def format_help(self) -> str:
        from persys.cli.commands.help import overview  # start-up time

        return overview()

    def format_usage(self) -> str:
        return f"usage: {PROGRAM} [OPTIONS] COMMAND [ARGUMENTS]\n"


class _NotBuiltError(Exception):
    """The command line names a command whose parser was not built."""


class _NotBuilt(_Parser):
    """Stands for every command that the words do not seem to select."""

    def __init__(self) -> None:
        self.prog = PROGRAM  # nothing else of it is used

    def parse_known_args(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise _NotBuiltError


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; on an error, print it and exit with code 2."""
    words, verbatim = _split(argv)
    parser = new_parser(words)
    if not words:
        parser.exit(ExitCode.USAGE, parser.format_help())
    try:
        options, unknown = parser.parse_known_args(words)
    except _NotBuiltError:  # an unknown option with a value before the command
        parser = new_parser()
        options, unknown = parser.parse_known_args(words)
    if unknown:
        parser.refuse(unknown_words(options.command_name, unknown))
    options = _merged(options, parser)
    if verbatim is not None:
        if not hasattr(options, "command"):
            parser.error("-- is only used before the command of exec and run")
        options.command = [*options.command, *verbatim]
    return options


def _split(argv: Sequence[str]) -> tuple[list[str], Sequence[str] | None]:
    """Split into the words of persysctl and, after a --, those of the command that exec or run starts.

    For exec, everything after the workload is the command, also without a --.
    """
    end = list(argv).index("--") if "--" in argv else len(argv)
    words = normalized(argv[:end])
    verbatim = None if end == len(argv) else list(argv[end + 1 :])
    at = operand_at(words)
    if at is None or words[at] != _EXEC:
        return words, verbatim
    workload = operand_at(words, at + 1)
    command = None if workload is None else operand_at(words, workload + 1)
    if command is None:
        return words, verbatim
    return words[:command], [*words[command:], *argv[end:]]


def normalized(words: Sequence[str]) -> list[str]:
    """The command line with aliases replaced and optional values joined to their options."""
    joined = join_wait_value(rewrite(words))
    # kubectl has --dry-run=client and --dry-run=server.
    return [_DRY_RUN if word.startswith(f"{_DRY_RUN}=") else word for word in joined]


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


def new_parser(words: Sequence[str] | None = None) -> _Overview:
    """With `words`, only the command that they name has its arguments."""
    parser = _Overview(prog=PROGRAM)
    parser.set_defaults(wait=None, watch=False, dry_run=False)
    parser.add_version()
    _add(parser, GLOBAL)
    # Without `prog` argparse would format a usage line to find it, which imports more modules.
    commands = parser.add_subparsers(
        metavar="COMMAND", required=True, prog=parser.prog, parser_class=_Parser
    )
    first, second = _selected(words)
    for group in GROUPS:
        if words is None or group.name == first:
            _add_group(commands, group, None if words is None else second)
        else:
            _reserve(commands, group.name)
    for command in SINGLES:
        if words is None or command.name == first:
            _add_command(commands, command, command.name)
        else:
            _reserve(commands, command.name)
    return parser


def _selected(words: Sequence[str] | None) -> tuple[str, str]:
    """The group and the command, or the command and ""."""
    first = operand_at(words or ())
    if words is None or first is None:
        return "", ""
    second = operand_at(words, first + 1)
    return words[first], "" if second is None else words[second]


def _add_group(
    commands: "argparse._SubParsersAction[_Parser]", group: Group, selected: str | None
) -> None:
    """`selected` None: all commands with their arguments."""
    parser = commands.add_parser(group.name, help=group.help, description=sentence(group.help))
    parser.epilog = f"`{parser.prog} COMMAND --help` shows examples."
    inner = parser.add_subparsers(
        metavar="COMMAND", required=True, prog=parser.prog, parser_class=_Parser
    )
    for command in group.commands:
        if selected in (None, command.name):
            _add_command(inner, command, f"{group.name} {command.name}")
        else:
            _reserve(inner, command.name, command.help)


def _reserve(
    commands: "argparse._SubParsersAction[_Parser]", name: str, help_text: str | None = None
) -> None:
    """Make a name known that was not selected; a parser for each would take most of the start-up time."""
    commands._name_parser_map[name] = _NOT_BUILT
    if help_text is not None:
        commands._choices_actions.append(commands._ChoicesPseudoAction(name, (), help_text))


def _add_command(
    commands: "argparse._SubParsersAction[_Parser]", command: Command, name: str
) -> None:
    parser = _CommandParser(
        prog=f"{PROGRAM} {name}",
        description=command.help,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _reserve(commands, command.name, command.help)
    commands._name_parser_map[command.name] = parser
    parser.set_defaults(run=command.run, command_name=name)
    _add(parser, command.arguments)
    own = {name for each in command.arguments for name in each.names}
    for argument in GLOBAL:
        if own.intersection(argument.names):
            continue  # the command uses the option for something else
        # With SUPPRESS an absent option sets no attribute, and the help has no line for it.
        name = _dest(argument)
        kwargs = {
            **argument.kwargs,
            "default": argparse.SUPPRESS,
            "dest": f"{_AFTER_COMMAND}{name}",
            "metavar": argument.kwargs.get("metavar"),
        }
        if name != _OUTPUT:
            kwargs["help"] = argparse.SUPPRESS
        if not argument.takes_value:
            del kwargs["metavar"]
        parser.add_argument(*argument.names, **kwargs)


def _add(parser: argparse.ArgumentParser, arguments: Iterable[Argument]) -> None:
    for argument in arguments:
        parser.add_argument(*argument.names, **argument.kwargs)


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


_NOT_BUILT = _NotBuilt()
