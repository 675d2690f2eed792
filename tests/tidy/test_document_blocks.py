"""Blocks of the documents: each has a tag, and each command is run by a test or has a reason why not."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from e2e.docs_runner.blocks import (
    NOT_RUNNABLE,
    ROOT,
    RUNNABLE,
    Block,
    blocks_in,
    blocks_of,
    documents,
)
from persys.ca.cli import new_parser as ca_parser
from persys.cli.framework.parser import parse
from persys.cli.persys import new_parser as persys_parser
from persys.wire.specfile.parser import read_documents

PROGRAMS = ("persysctl", "persys", "make", "docker", "etcdctl", "deploy/install", "systemctl")
NAMED_TEST = re.compile(r"tests/[\w/]+(?:\.py)?")
PARSERS: Mapping[str, Callable[[Sequence[str]], object]] = {
    "persysctl": lambda words: parse(list(words)),
    "persys": lambda words: persys_parser().parse_args(words),
    "persys-ca": lambda words: ca_parser().parse_args(words),
}
# A command of ours, also after variables or as another user.
OF_PERSYS = re.compile(
    r" *(?:[A-Z_]+=\S+ |runuser .+ -- )*((?:persysctl|persys|persys-ca) [\w-].*)"
)
# A reason that a reader can judge has some words.
REASON_WORDS_LEAST = 3

BLOCKS = [block for name in documents() for block in blocks_of(name)]


def undeclared(blocks: list[Block]) -> Iterator[str]:
    for block in blocks:
        if block.tag not in RUNNABLE | NOT_RUNNABLE:
            yield f"{block.place}: tag {block.tag!r}; expected one of {sorted(RUNNABLE | NOT_RUNNABLE)}"
        if (
            block.tag in RUNNABLE
            and block.skip_reason
            and len(block.skip_reason.split()) < REASON_WORDS_LEAST
        ):
            yield f"{block.place}: {block.skip_reason!r} is not a reason"
        for path in NAMED_TEST.findall(block.skip_reason):
            if not (ROOT / path).exists():
                yield f"{block.place}: there is no {path}"
        if block.tag == "text" and block.text.startswith(PROGRAMS):
            yield f"{block.place}: commands are tagged sh or console"


def test_every_command_block_runs_or_states_why_not() -> None:
    assert list(undeclared(BLOCKS)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```\nanything\n```\n", ""),
        ("```sh\npersysctl version\n```\n", "run"),
        ("<!-- not run: needs three machines -->\n```sh\nreboot\n```\n", "excused"),
        ("<!-- not run: no -->\n```sh\nreboot\n```\n", ""),
        ("<!-- not run: tests/e2e/test_nothing.py does it -->\n```sh\nreboot\n```\n", ""),
        ("```text\npersysctl version\n```\n", ""),
        ("<!-- not run: needs three machines -->\n\ntext\n\n```sh\ntrue\n```\n", "run"),
    ],
)
def test_a_block_is_run_or_excused_or_found(text: str, expected: str) -> None:
    (block,) = blocks_in("a.md", text)

    found = "" if list(undeclared([block])) else "run" if block.is_run else "excused"

    assert found == expected


def test_only_prompt_lines_of_a_console_block_are_commands() -> None:
    (block,) = blocks_in("a.md", "```console\n$ persysctl version\n0.1.0\n```\n")

    assert block.script == "persysctl version"


def test_commands_that_are_not_run_are_parsed() -> None:
    lines = [
        (block, found[1])
        for block in BLOCKS
        if block.tag in RUNNABLE and block.skip_reason
        for line in block.script.replace("\\\n", " ").splitlines()
        if (found := OF_PERSYS.match(line))
    ]

    assert {line.split()[0] for _, line in lines} == PARSERS.keys()
    assert [f"{block.place}: {line}" for block, line in lines if not parses(line)] == []


def sentences(document: str) -> str:
    """The document without its blocks."""
    return re.sub(
        r"^( *)```.*?^\1```$", "", (ROOT / document).read_text("utf-8"), flags=re.M | re.S
    )


NAMED_COMMANDS = sorted(
    {
        command
        for name in documents()
        if name != "CHANGELOG.md"  # also has commands of earlier versions
        for command in re.findall(r"`(persysctl [^`\n]+)`", sentences(name))
    }
)


def test_commands_in_a_sentence_are_parsed_or_leave_out_arguments(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused = []
    for line in NAMED_COMMANDS:
        if not parses(line) and "arguments are required" not in capsys.readouterr().err:
            refused.append(line)

    assert refused == []


# The second column: what to type instead of the command of another tool.
CHEATS = re.findall(
    r"^\| [^|]+ \| `(persysctl [^`]+)` \|",
    (ROOT / "docs" / "reference" / "cheat-sheet.md").read_text("utf-8"),
    re.M,
)


@pytest.mark.parametrize("line", CHEATS)
def test_every_command_of_the_cheat_sheet_is_parsed(line: str) -> None:
    assert parses(line)


SPECS = [
    block
    for block in BLOCKS
    if block.tag == "yaml" and re.match(r"(kind|id|container|compose|vm|- id):", block.text)
]


@pytest.mark.parametrize("block", SPECS, ids=[block.place for block in SPECS])
def test_every_spec_in_a_document_is_valid(block: Block) -> None:
    # Some show only the part that they are about.
    head = "" if re.search(r"^(- )?(pool_)?id:", block.text, re.M) else "id: shown\n"

    assert read_documents(head + block.text)


def test_every_example_is_valid() -> None:
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        assert read_documents(path.read_text("utf-8")), path.name


def test_every_document_is_in_the_table_of_contents() -> None:
    contents = (ROOT / "docs" / "README.md").read_text("utf-8")
    named = [name.removeprefix("docs/") for name in documents() if name.startswith("docs/")]

    # Decisions have a table of their own.
    missing = [name for name in named if f"({name})" not in contents and "decisions/" not in name]
    assert missing == ["README.md"]


def parses(line: str) -> bool:
    words = shlex.split(line.partition(" < ")[0].partition(" | ")[0], comments=True)
    try:
        PARSERS[words[0]](words[1:])
    except SystemExit:
        return False
    return True
