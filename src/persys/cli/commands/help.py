"""`persysctl help`: the commands by area, the help of one command, and topics."""

from argparse import Namespace
from textwrap import fill

from persys.cli.framework.aliases import spellings
from persys.cli.framework.arguments import GLOBAL, Argument
from persys.cli.framework.command_table import SECTIONS
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.output import align_columns

_WIDTH = 12
_USAGE = "usage: persysctl [OPTIONS] COMMAND [ARGUMENTS]"
_GETTING_STARTED = """\
getting started:
  persysctl doctor                          check for common problems and name the fix
  persysctl run web --image nginx -p 80:80  run a container
  persysctl apply -f web.yaml --wait        create or update the workloads of a file
  persysctl ps                              list workloads and their status
  persysctl explain web                     explain why it runs on its node"""
_FOOTER = """\
`persysctl COMMAND --help` shows a command with examples.
`persysctl help connection` shows the options for the connection.
`persysctl help aliases` shows the commands of docker, kubectl and nomad that work too."""
_ALIASES_HEAD = """\
Commands of docker, kubectl, nomad and virsh that work too, with the command of persysctl. Words for a
workload are also pod, deployment, job, alloc, container, stack and vm: `persysctl describe vm/db`."""
_CONNECTION_HEAD = """\
Options of every command, before or after it. The first that is set is used: the option, the variable in
brackets, the key of the context in ~/.persys/config.yaml, the default."""
_CONNECTION_FOOT = (
    "`persysctl context add` saves them under a name; `persysctl doctor` checks them."
)
_LINE = 100
_IN = "      "


def show(options: Namespace) -> int:
    match options.topic:
        case []:
            text = overview()
        case ["connection"]:
            text = connection()
        case ["aliases"]:
            text = aliases()
        case words:
            from persys.cli.framework.parser import parse

            parse([*words, "--help"])  # exits
            return ExitCode.OK
    print(text, end="")
    return ExitCode.OK


def overview() -> str:
    parts = [_USAGE, "Run and manage workloads on a Persys cluster.", _GETTING_STARTED]
    for title, rows in SECTIONS:
        lines = [f"  {row.name:<{_WIDTH}}{row.help}" for row in rows]
        parts.append("\n".join([f"{title}:", *lines]))
    output = next(each for each in GLOBAL if "--output" in each.names)
    shown = [[f"  {_spelled(output)}", str(output.kwargs["help"])]]
    shown += [["  -h, --help", "show the help"], ["  --version", "print the version"]]
    parts.append(f"options:\n{align_columns(shown)}")
    return "\n\n".join([*parts, _FOOTER]) + "\n"


def connection() -> str:
    """The options that every command has, with their variables and keys."""
    parts = [_CONNECTION_HEAD]
    for argument in GLOBAL:
        text = fill(str(argument.kwargs["help"]), _LINE, initial_indent=_IN, subsequent_indent=_IN)
        parts.append(f"  {_spelled(argument)}\n{text}")
    return "\n\n".join([*parts, _CONNECTION_FOOT]) + "\n"


def aliases() -> str:
    rows = [[f"  persysctl {command}", ", ".join(typed)] for command, typed in spellings().items()]
    return f"{_ALIASES_HEAD}\n\n{align_columns(rows)}\n"


def _spelled(argument: Argument) -> str:
    if not argument.takes_value:
        return ", ".join(argument.names)
    choices = argument.kwargs.get("choices")
    value = "{" + ",".join(choices) + "}" if choices else argument.kwargs["metavar"]
    return f"{', '.join(argument.names)} {value}"
