"""Shell completion. The scripts are thin: each calls the hidden `__complete` command at every tab.

The input is the words typed so far; the output is one candidate per line: the word, a tab, its description.
"""

from argparse import Namespace
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from persys.cli.connect.context_file import read_contexts
from persys.cli.framework.aliases import next_words, rewrite
from persys.cli.framework.arguments import GLOBAL, Argument, join_wait_value
from persys.cli.framework.command_table import COMPLETE, GROUPS, SECTIONS, SINGLES
from persys.cli.framework.exit_codes import ExitCode
from persys.cli.framework.tables.command import Command
from persys.errors import PersysError

if TYPE_CHECKING:
    from persys.client import SchedulerClient

# Longer than a healthy cluster needs, shorter than a user waits after the tab key.
_TIMEOUT = "1s"
_CURSOR = "WORD"

# Options that select the server.
_SERVER_OPTIONS = ("--scheduler", "--api", "--cluster", "--context", "--ca", "--cert", "--key")

_BASH = """\
_persysctl() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" NAME -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]] && compopt -o nospace
}
complete -F _persysctl persysctl
"""
_ZSH = """\
#compdef persysctl
_persysctl() {
    local -a found
    found=("${(@f)$("${words[1]}" NAME -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=("${(@)found//:/\\\\:}")
    found=("${(@)found/$'\\t'/:}")
    _describe 'persysctl' found
}
compdef _persysctl persysctl
"""
_FISH = """\
function __persysctl_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] NAME -- $words[2..-1] 2>/dev/null
end
complete -c persysctl -f -a '(__persysctl_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def script(options: Namespace) -> ExitCode:
    print(_SCRIPTS[options.shell].replace("NAME", COMPLETE.name), end="")
    return ExitCode.OK


def complete(words: Sequence[str]) -> ExitCode:
    """`words` are those after the program name, including the one under the cursor."""
    for word, meaning in candidates(words[1:] if words[:1] == ["--"] else words):
        print(f"{word}\t{meaning}")
    return ExitCode.OK


def candidates(words: Sequence[str]) -> list[tuple[str, str]]:
    *before, current = words or [""]
    # A word for the one under the cursor, because the meaning of some aliases depends on an operand.
    *line, _ = rewrite([*before, _CURSOR])
    command, level, taken, pending = _walk(join_wait_value(line))
    if pending is not None:
        found = _values(pending, current, before)
    elif current.startswith("-"):
        options = [*(command.arguments if command else ()), *GLOBAL]
        found = [(name, str(option.kwargs["help"])) for option in options for name in option.names]
        found = [(name, text) for name, text in found if name.startswith("-")]
        found.append(("--help", "show the help"))
    elif command is None:
        found = level
    else:
        found = _positional(command, taken, current, before)
    if current and pending is None:  # without a letter only the commands themselves
        found = [*found, *next_words(before).items()]
    return sorted((word, text) for word, text in found if word.startswith(current))


def _walk(
    before: Iterable[str],
) -> tuple[Command | None, list[tuple[str, str]], list[str], Argument | None]:
    """Parse the words: the command or the possible next words, its operands, an option without its value."""
    commands: dict[str, Command] = {command.name: command for command in SINGLES}
    groups = {group.name: group for group in GROUPS}
    level = [(row.name, row.help) for _, rows in SECTIONS for row in rows]
    command: Command | None = None
    taken: list[str] = []
    pending: Argument | None = None
    for word in before:
        if pending is not None:
            pending = None
        elif word.startswith("-"):
            option = _option(word, command)
            if option is not None and option.takes_value and "=" not in word:
                pending = option
        elif command is not None:
            taken.append(word)
        elif word in groups:
            commands = {found.name: found for found in groups[word].commands}
            groups = {}
            level = [(found.name, found.help) for found in commands.values()]
        else:
            command = commands.get(word)
            level = []
    return command, level, taken, pending


def _option(word: str, command: Command | None) -> Argument | None:
    options = (*(command.arguments if command else ()), *GLOBAL)
    name = word.partition("=")[0]
    return next((option for option in options if name in option.names), None)


def _positional(
    command: Command, taken: Sequence[str], current: str, before: Sequence[str]
) -> list[tuple[str, str]]:
    operands = [argument for argument in command.arguments if not argument.is_option]
    if not operands or (
        len(taken) >= len(operands) and operands[-1].kwargs.get("nargs") not in ("+", "*")
    ):
        return []
    found = _values(operands[min(len(taken), len(operands) - 1)], current, before, taken)
    return [(word, text) for word, text in found if word not in taken]


def _values(
    argument: Argument, current: str, before: Sequence[str], taken: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """`taken` are the operands so far."""
    if "choices" in argument.kwargs:
        return [(choice, "") for choice in argument.kwargs["choices"]]
    match argument.completes:
        case "file":
            return _paths(current)
        case "kind":
            from persys.model.event import EventKind

            return [(kind, "") for kind in EventKind]
        case "context":
            from persys.cli.commands.context import names

            return names(read_contexts())
        case "node" | "workload" | "set" | "job" | "owner" | "run" | "service":
            return _ids(argument.completes, before, taken)
        case _:
            return []


def _paths(current: str) -> list[tuple[str, str]]:
    folder = current.rpartition("/")[0] + "/" if "/" in current else ""
    try:
        entries = list(Path(folder or ".").iterdir())
    except OSError:
        return []
    return [(f"{folder}{entry.name}{'/' if entry.is_dir() else ''}", "") for entry in entries]


def _ids(kind: str, before: Sequence[str], taken: Sequence[str]) -> list[tuple[str, str]]:
    """Ids from the cluster. A cluster that does not respond yields no candidates and no error."""
    from persys.cli.connect.clients import scheduler_client

    options = Namespace(timeout=_TIMEOUT, wait=None)
    for name in _SERVER_OPTIONS:
        setattr(options, name.removeprefix("--"), _given(before, name))
    options.insecure = "--insecure" in before
    try:
        with scheduler_client(options) as client:
            match kind:
                case "node":
                    return [(node.node_id, node.status) for node in client.list_nodes()]
                case "run":
                    runs = client.get_job(taken[0]).runs if taken else ()
                    return [(run.run_id, run.state) for run in runs]
                case "service":
                    return [(one.spec.service_id, "") for one in client.list_services()]
                case "workload":
                    workloads = client.list_workloads()
                    return [(one.workload_id, one.status) for one in workloads] + _owners(client)
                case _:
                    return _owners(client, kind)
    except PersysError:
        return []


def _owners(client: "SchedulerClient", kind: str = "owner") -> list[tuple[str, str]]:
    """Sets, jobs or both. An older scheduler has none."""
    found: list[tuple[str, str]] = []
    with suppress(PersysError):
        if kind != "job":
            found += [(view.spec.set_id, f"set, {view.phase}") for view in client.list_sets()]
        if kind != "set":
            found += [(job.spec.job_id, "job") for job in client.list_jobs()]
    return found


def _given(before: Sequence[str], name: str) -> str | None:
    for word, following in zip(before, [*before[1:], ""], strict=True):
        if word == name:
            return following
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None
