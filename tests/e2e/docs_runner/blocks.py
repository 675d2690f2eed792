"""The fenced blocks of the documents, and the comments directly above them.

    <!-- not run: REASON -->    it needs more than one host, or another test runs it
    <!-- ends with: 1 -->       its exit code, if that is not 0
    <!-- shows: TEXT -->        text that its output must contain; may be repeated

Blocks tagged `sh` are scripts. Of those tagged `console` the lines that begin with `$ ` are commands, the
others are output.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
RUNNABLE = frozenset({"sh", "console"})
NOT_RUNNABLE = frozenset({"text", "yaml", "json", "mermaid", "python", "ini"})
# In this order, because they share one cluster; the others follow.
FIRST = ("README.md", "docs/tutorial/first-steps.md")
# They start more nodes, build images or boot a VM; only `make test-full` runs them.
FULL = frozenset(
    {
        "examples/ci-runner/README.md",
        "examples/three-nodes/README.md",
        "examples/vm-appliance/README.md",
    }
)
# Generated from the parser, whose examples another test parses.
GENERATED = frozenset({"docs/reference/commands.md"})

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)
_DIRECTIVE = re.compile(r"<!-- (not run|ends with|shows): (.+?) -->")
_COMMENTS_ABOVE = re.compile(r"(?:^ *<!-- .+? -->\n+)+\Z", re.M)
_PROMPT = "$ "


class Block(NamedTuple):
    document: str
    line: int
    tag: str
    text: str
    skip_reason: str  # why it is not run
    code: int
    shows: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def is_run(self) -> bool:
        return self.tag in RUNNABLE and not self.skip_reason

    @property
    def script(self) -> str:
        """The commands of the block."""
        if self.tag != "console":
            return self.text
        lines = self.text.splitlines()
        return "\n".join(line.removeprefix(_PROMPT) for line in lines if line.startswith(_PROMPT))


def documents() -> list[str]:
    """All documents with blocks, in the order in which they are run."""
    found = list(ROOT.glob("*.md"))
    for folder in ("docs", "examples", "deploy"):
        found += (ROOT / folder).rglob("*.md")
    names = {path.relative_to(ROOT).as_posix() for path in found} - GENERATED
    return [*FIRST, *sorted(names - set(FIRST))]


def blocks_of(document: str) -> list[Block]:
    return list(blocks_in(document, (ROOT / document).read_text("utf-8")))


def blocks_in(document: str, text: str) -> Iterator[Block]:
    for found in _FENCE.finditer(text):
        indent, tag, content = found.groups()
        directives = _directives_above(text[: found.start()])
        yield Block(
            document=document,
            line=text.count("\n", 0, found.start()) + 1,
            tag=tag,
            text=re.sub(rf"^{indent}", "", content, flags=re.M),
            skip_reason=" ".join(_all(directives, "not run")),
            code=int((_all(directives, "ends with") or ["0"])[0]),
            shows=tuple(_all(directives, "shows")),
        )


def _directives_above(before: str) -> Sequence[tuple[str, str]]:
    comments = _COMMENTS_ABOVE.search(before)
    return _DIRECTIVE.findall(comments[0]) if comments else ()


def _all(directives: Sequence[tuple[str, str]], word: str) -> list[str]:
    return [text for key, text in directives if key == word]
