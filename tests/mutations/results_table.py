"""The results of the mutations as a table of Markdown: written, and read again."""

import re
from collections.abc import Mapping, Sequence

from mutations.mutation import Mutation
from mutations.suites import SIMULATION
from mutations.trial import MISSED, STALE, Result

BEGIN = "<!-- written by `scripts/mutate table` -->"
END = "<!-- end of the table -->"
_TEST = re.compile(r"`(?P<test>[^`]+)`")
_SEED = re.compile(r"(?P<seed>seed \d+), invariant `(?P<invariant>[^`]+)`")
_HEAD = ("No.", "Rule", "File", "Function", "Suite", "Found by")


def rows(
    mutations: Sequence[Mutation], results: Mapping[int, Result], reasons: Mapping[int, str]
) -> list[str]:
    """One line for each mutation, below the head of the table."""
    lines = [_row(_HEAD), _row(["---"] * len(_HEAD))]
    for one in mutations:
        suite, finder = _finding(results.get(one.id), reasons.get(one.id, ""))
        file = one.file.removeprefix("src/persys/")
        lines.append(_row((str(one.id), one.rule, f"`{file}`", f"`{one.function}`", suite, finder)))
    return lines


def in_document(text: str, table: Sequence[str]) -> str:
    """The document with this table instead of the one between its two marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join((before + BEGIN, "", *table, "", END + after))


def recorded(text: str) -> dict[int, Result]:
    """The results in the table of a document. Mutations that no test found are left out."""
    _, _, rest = text.partition(BEGIN)
    table, _, _ = rest.partition(END)
    found = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if len(cells) != len(_HEAD) or not cells[0].isdigit():
            continue
        number, suite, finder = int(cells[0]), cells[4], cells[5]
        if seed := _SEED.fullmatch(finder):
            found[number] = Result(number, suite, f"{seed['seed']}: {seed['invariant']}", 0)
        elif test := _TEST.fullmatch(finder):
            found[number] = Result(number, suite, f"tests/{test['test']}", 0)
    return found


def _finding(result: Result | None, reason: str) -> tuple[str, str]:
    """The suite, and the test or the invariant of the simulation that found it."""
    if result is None:
        return ("none" if reason else "not run"), reason
    if result.found_by in (MISSED, STALE):
        return "none", reason
    if result.found_by == SIMULATION:
        seed, _, text = result.test.partition(": ")
        invariant, _, _ = text.partition(":")
        return SIMULATION, f"{seed}, invariant `{invariant}`"
    return result.found_by, f"`{result.test.removeprefix('tests/')}`"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
