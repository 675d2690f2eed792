"""docs/commands.md and the manual pages, written from the table of commands: `scripts/docs-commands`.

Nothing is said here that `--help` does not say; it is only laid out for other readers.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from persys.cli.arguments import GLOBAL, Argument
from persys.cli.commands import GROUPS, SINGLES, Command, Group
from persys.cli.examples import examples_of

PROGRAM = "persysctl"
DESCRIPTION = "run and watch workloads of a Persys cluster"
_MADE = "Made by scripts/docs-commands from the table of commands"
_CODES = (
    ("0", "done"),
    ("1", "the workload failed, or the request was refused"),
    ("2", "the command line or the spec is wrong"),
    ("3", "what was waited for did not happen in time"),
    ("4", "no answer, so nothing is known"),
)


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path()
    for name, text in pages().items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


def pages() -> Mapping[str, str]:
    """The text of each file, by its path in the project."""
    found = {"docs/commands.md": markdown(), f"man/{PROGRAM}.1": _overview_page()}
    for group in GROUPS:
        found[f"man/{PROGRAM}-{group.name}.1"] = _group_page(group)
    return found


def markdown() -> str:
    lines = [
        f"# Commands of {PROGRAM}",
        "",
        f"{_MADE}: do not edit it.",
        "The same is in `persysctl COMMAND --help` and in the manual (`man persysctl`).",
        "",
        "## Options of every command",
        "",
        *_table(GLOBAL),
        "## Exit codes",
        "",
        "| Code | Means |",
        "|---|---|",
        *(f"| {code} | {text} |" for code, text in _CODES),
        "",
    ]
    for group in GROUPS:
        lines += [f"## {group.name}", "", _sentence(group.help), ""]
        for command in group.commands:
            lines += _section(command, f"{group.name} {command.name}")
    lines += ["## Without a group", ""]
    for command in SINGLES:
        lines += _section(command, command.name)
    return "\n".join(lines).rstrip("\n") + "\n"


def _section(command: Command, name: str) -> list[str]:
    return [
        f"### {PROGRAM} {name}",
        "",
        _sentence(command.help),
        "",
        "```text",
        _usage(command, name),
        "```",
        "",
        *(_table(command.arguments) if command.arguments else ()),
        "```bash",
        *examples_of(name),
        "```",
        "",
    ]


def _table(arguments: Iterable[Argument]) -> list[str]:
    rows = [f"| `{_cell(', '.join(_shown(each)))}` | {_cell(_help(each))} |" for each in arguments]
    return ["| Argument | Means |", "|---|---|", *rows, ""]


def _usage(command: Command, name: str) -> str:
    words = [PROGRAM, *name.split()]
    operands = [each for each in command.arguments if not each.is_option]
    options = [each for each in command.arguments if each.is_option]
    words += [_operand(each) for each in operands]
    for option in options:
        text = _shown(option)[0]
        words.append(text if option.how.get("required") else f"[{text}]")
    return " ".join(words)


def _operand(argument: Argument) -> str:
    word = _value(argument)
    match argument.how.get("nargs"):
        case "+":
            return f"{word}..."
        case "?":
            return f"[{word}]"
        case "*":
            return f"[{word}...]"
        case _:
            return word


def _shown(argument: Argument) -> list[str]:
    if not argument.is_option:
        return [_value(argument)]
    value = f" {_value(argument)}" if argument.takes_value else ""
    if argument.how.get("nargs") == "?":
        value = f" [{_value(argument)}]"
    return [f"{name}{value}" for name in argument.names]


def _value(argument: Argument) -> str:
    if "choices" in argument.how:
        return "{" + ",".join(argument.how["choices"]) + "}"
    return str(argument.how.get("metavar") or argument.names[0].strip("-").upper())


def _help(argument: Argument) -> str:
    return str(argument.how.get("help", ""))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _overview_page() -> str:
    return _roff(
        PROGRAM,
        DESCRIPTION,
        [
            (".SH SYNOPSIS", [f"{PROGRAM} [OPTIONS] COMMAND [ARGUMENTS]"]),
            (".SH OPTIONS", list(_roff_arguments(GLOBAL))),
            (".SH GROUPS", list(_roff_terms((g.name, g.help) for g in GROUPS))),
            (
                ".SH COMMANDS",
                [line for each in SINGLES for line in _roff_command(each, each.name)],
            ),
            (".SH EXIT STATUS", list(_roff_terms(_CODES))),
            (".SH FILES", list(_roff_terms([("~/.persys/config.yaml", "contexts")]))),
        ],
        also=[f"{PROGRAM}-{group.name}" for group in GROUPS],
    )


def _group_page(group: Group) -> str:
    commands = [
        line for each in group.commands for line in _roff_command(each, f"{group.name} {each.name}")
    ]
    synopsis = f"{PROGRAM} {group.name} COMMAND [ARGUMENTS]"
    return _roff(
        f"{PROGRAM}-{group.name}",
        group.help,
        [(".SH SYNOPSIS", [synopsis]), (".SH COMMANDS", commands)],
        also=[PROGRAM],
    )


def _roff(
    name: str, what: str, sections: Iterable[tuple[str, list[str]]], *, also: Iterable[str]
) -> str:
    lines = [
        f'.\\" {_MADE}.',
        f'.TH {name.upper()} 1 "" "Persys Compute"',
        ".SH NAME",
        f"{_escaped(name)} \\- {_escaped(what)}",
    ]
    for title, content in sections:
        lines += [title, *(line if line.startswith(".") else _escaped(line) for line in content)]
    references = ", ".join(f"{_escaped(each)}(1)" for each in also)
    return "\n".join([*lines, ".SH SEE ALSO", references, ""])


def _roff_command(command: Command, name: str) -> Iterator[str]:
    yield f".SS {_escaped(name)}"
    yield _sentence(command.help)
    yield ".PP"
    yield _usage(command, name)
    yield from _roff_arguments(command.arguments)
    yield ".PP"
    yield "Examples:"
    yield ".RS"
    yield ".nf"
    yield from examples_of(name)
    yield ".fi"
    yield ".RE"


def _roff_arguments(arguments: Iterable[Argument]) -> Iterator[str]:
    yield from _roff_terms((", ".join(_shown(each)), _help(each)) for each in arguments)


def _roff_terms(terms: Iterable[tuple[str, str]]) -> Iterator[str]:
    for term, text in terms:
        yield ".TP"
        yield term
        yield text


def _escaped(text: str) -> str:
    """A dash is a dash, and no line begins with what roff takes for its own."""
    plain = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


if __name__ == "__main__":
    sys.exit(main())
