"""docs/reference/conformance.md: every statement is shown by a test, or refers to a decision that exists.

A line that is `open` may name no test, but the last section must say what is missing for it.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROW = re.compile(r"^\| ([A-Z]{2}-\d+) \| (.+) \|$", re.M)
TEST = re.compile(r"`(?P<file>tests/[\w/]+\.py)::(?P<name>test_\w+)(?:\[(?P<id>[^`]+)\])?`")
DECISION = re.compile(r"\[decision\]\(\.\./decisions/([\w-]+\.md)\)")
STATEMENT_CELLS = 3
STATEMENTS_LEAST = 350


class Line(NamedTuple):
    id: str
    statement: str
    status: str
    shown_by: str


class Document(NamedTuple):
    lines: Sequence[Line]
    missing: Mapping[str, str]  # for each open line, what is missing


def read(text: str) -> Document:
    table, _, last = text.partition("\n## Open\n")
    rows = [(found[1], found[2].split(" | ")) for found in ROW.finditer(table)]
    assert all(len(cells) == STATEMENT_CELLS for _, cells in rows), "expected four columns"
    return Document(
        [Line(identity, *cells) for identity, cells in rows],
        {found[1]: found[2] for found in ROW.finditer(last)},
    )


def problems(document: Document, root: Path) -> Iterator[str]:
    lines, missing = document
    seen: set[str] = set()
    for line in lines:
        if line.id in seen:
            yield f"{line.id}: the id is used twice"
        seen.add(line.id)
        for problem in problems_of(line, missing, root):
            yield f"{line.id}: {problem}"
    open_lines = {line.id for line in lines if line.status == "open"}
    for identity in missing.keys() - open_lines:
        yield f"{identity}: listed as missing, but no line with this id is open"


def problems_of(line: Line, missing: Mapping[str, str], root: Path) -> Iterator[str]:
    if line.status == "open":
        if not missing.get(line.id, "").strip():
            yield "is open, and the last section does not say what is missing"
    elif not TEST.search(line.shown_by):
        yield "names no test"
    if line.status not in ("holds", "open"):
        yield from problems_of_decision(line.status, root)
    if line.shown_by != "none" and TEST.sub("", line.shown_by).strip(", "):
        yield f"{TEST.sub('', line.shown_by).strip(', ')!r} does not name a test"
    for named in TEST.finditer(line.shown_by):
        yield from problems_of_test(named, root)


def problems_of_decision(status: str, root: Path) -> Iterator[str]:
    named = DECISION.fullmatch(status)
    if named is None:
        yield f"status {status!r}; expected holds, open or a link to a decision"
        return
    decisions = root / "docs" / "decisions"
    if not (decisions / named[1]).is_file():
        yield f"there is no decision {named[1]}"
    elif f"({named[1]})" not in (decisions / "README.md").read_text("utf-8"):
        yield f"decision {named[1]} is not in the list of decisions"


def problems_of_test(named: re.Match[str], root: Path) -> Iterator[str]:
    path = root / named["file"]
    if not path.is_file():
        yield f"there is no file {named['file']}"
    elif named["name"] not in functions_of(path):
        yield f"there is no test {named['name']} in {named['file']}"
    elif named["id"] and not words_occur(named["id"], path):
        yield f"{named['file']} has no parameter {named['id']!r}"


@cache
def functions_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    found = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in tree.body if isinstance(node, found))


def words_occur(identity: str, path: Path) -> bool:
    """Ids are created from the words of the file."""
    text = path.read_text("utf-8")
    return all(re.search(rf"\b{word}\b", text) for word in re.findall(r"\w+", identity))


def test_every_statement_is_shown_by_a_test_or_is_a_decision(
    root: Path, documents: dict[str, str]
) -> None:
    document = read(documents["docs/reference/conformance.md"])

    assert len(document.lines) >= STATEMENTS_LEAST
    assert list(problems(document, root)) == []


HERE = "`tests/tidy/test_conformance.py::test_a_planted_breach_is_found`"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"| XX-1 | It works. | holds | {HERE} |", ""),
        (f"| XX-1 | It works. | holds | {HERE}, {HERE} |", ""),
        ("| XX-1 | It works. | holds | none |", "names no test"),
        ("| XX-1 | It works. | [decision](../decisions/stop-after.md) | none |", "names no test"),
        (f"| XX-1 | It works. | [decision](../decisions/stop-after.md) | {HERE} |", ""),
        (f"| XX-1 | It works. | [decision](../decisions/no.md) | {HERE} |", "no decision no.md"),
        (f"| XX-1 | It works. | maybe | {HERE} |", "status 'maybe'"),
        ("| XX-1 | It works. | holds | `tests/tidy/test_no.py::test_no` |", "there is no file"),
        (
            "| XX-1 | It works. | holds | `tests/tidy/test_conformance.py::test_no` |",
            "there is no test test_no",
        ),
        (f"| XX-1 | It works. | holds | {HERE[:-1]}[HERE]` |", ""),
        (f"| XX-1 | It works. | holds | {HERE[:-1]}[{'a' * 9}]` |", "has no parameter"),
        (f"| XX-1 | It works. | holds | {HERE}, by hand |", "'by hand' does not name a test"),
        (
            f"| XX-1 | It works. | holds | {HERE} |\n| XX-1 | Again. | holds | {HERE} |",
            "the id is used twice",
        ),
        ("| XX-1 | It works. | open | none |", "does not say what is missing"),
        ("| XX-1 | It works. | open | none |\n\n## Open\n\n| XX-1 | A test. |", ""),
        (
            f"| XX-1 | It works. | holds | {HERE} |\n\n## Open\n\n| XX-1 | A test. |",
            "no line with this id is open",
        ),
    ],
)
def test_a_planted_breach_is_found(root: Path, text: str, found: str) -> None:
    found_problems = list(problems(read(f"{text}\n"), root))

    assert len(found_problems) == bool(found), found_problems
    assert not found or found in found_problems[0]
