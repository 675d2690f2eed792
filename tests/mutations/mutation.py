"""One mutation: a text that is replaced within one function.

The place is named by file, function and the occurrence of the old text in that function, so that edits
elsewhere do not make the list stale.
"""

import ast
from collections.abc import Iterator
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Mutation(NamedTuple):
    id: int
    rule: str
    area: str
    file: str
    function: str
    occurrence: int
    old: str
    new: str

    def applied_to(self, source: str) -> str | None:
        """The mutated source; None if the function no longer has the old text so often."""
        lines = Lines(source)
        spans = [
            lines.span(node) for name, node in functions(ast.parse(source)) if name == self.function
        ]
        if len(spans) != 1:
            return None
        begin, end = spans[0]
        old = self.old.encode()
        at = begin - len(old)
        for _ in range(self.occurrence):
            at = lines.data.find(old, at + len(old), end)
            if at < 0:
                return None
        return (lines.data[:at] + self.new.encode() + lines.data[at + len(old) :]).decode()


class Lines:
    """A source as bytes, because positions in a syntax tree count bytes."""

    def __init__(self, source: str) -> None:
        self.data = source.encode()
        self._begins = [0]
        for line in self.data.splitlines(keepends=True):
            self._begins.append(self._begins[-1] + len(line))

    def span(
        self, first: ast.stmt | ast.expr, last: ast.stmt | ast.expr | None = None
    ) -> tuple[int, int]:
        """Where a node begins and where it, or another one, ends."""
        last = last or first
        assert last.end_lineno is not None
        assert last.end_col_offset is not None
        return (
            self._begins[first.lineno - 1] + first.col_offset,
            self._begins[last.end_lineno - 1] + last.end_col_offset,
        )

    def text(self, node: ast.stmt | ast.expr) -> str:
        begin, end = self.span(node)
        return self.data[begin:end].decode()

    def occurrence(self, function: Function, begin: int, old: str) -> int | None:
        """The number of the occurrence that begins here; None if it overlaps with an earlier one."""
        at, end = self.span(function)
        number, wanted = 0, old.encode()
        while (at := self.data.find(wanted, at, end)) >= 0:
            number += 1
            if at == begin:
                return number
            at += len(wanted)
        return None


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Each function with its qualified name, without the `<locals>` of Python's own."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{node.name}"
            if not isinstance(node, ast.ClassDef):
                yield name, node
            yield from functions(node, f"{name}.")
        else:
            yield from functions(node, prefix)
