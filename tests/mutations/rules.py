"""The rules that make mutations, and the code to which they apply.

A rule does not apply where it cannot change behaviour: in assertions, in what is logged, measured or raised
as text, and in modules that only explain.
"""

import ast
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from mutations.mutation import Function, Lines, Mutation, functions

ROOT = Path(__file__).resolve().parents[2]

_SCHEDULER = "src/persys/scheduler"
_AGENT = "src/persys/agent"
AREAS: dict[str, tuple[str, ...]] = {
    "core": ("src/persys/core/**/*.py",),
    "commit": (
        *(f"{_SCHEDULER}/{name}/*.py" for name in ("commit", "reconcile", "recovery", "state")),
        "src/persys/store/conflicts.py",
    ),
    "dispatch": (
        f"{_SCHEDULER}/dispatch/*.py",
        f"{_SCHEDULER}/drift/tombstones.py",
    ),
    "fencing": (
        *(f"{_SCHEDULER}/{name}/*.py" for name in ("ha", "membership")),
        f"{_SCHEDULER}/drift/adoption.py",
        f"{_SCHEDULER}/drift/orphans.py",
        "src/persys/store/leases.py",
        f"{_AGENT}/uplink/contact.py",
    ),
    "journal": (
        f"{_AGENT}/journal/*.py",
        *(
            f"{_AGENT}/workloads/{name}.py"
            for name in ("crash_recovery", "orders", "work_queue", "worker")
        ),
    ),
}  # fmt: skip
# These only show data to users or to Prometheus.
EXPLAINING = frozenset({"explain", "remedy"})

_WRITTEN: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
_OPPOSITE: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
_HOLDS_FOR_EQUALS = (ast.Eq, ast.LtE, ast.GtE, ast.Is, ast.In)
# Numbers that tell an old life, an old leader or an old order from the one that counts.
_EPOCHS = ("epoch", "generation", "fence", "instance_id")
_RESERVES = frozenset({"promise", "reserve", "put_hold", "put_tombstone", "settle_room"})
_TURNS = ("locks.hold(", "_reserving.hold(", "_lock", "_slots")
# Waiting for these confirms nothing.
_PAUSES = frozenset({"wait", "sleep", "acquire", "gather", "close", "stop", "abort", "join"})
_TELLING = frozenset({"log", "metrics", "_metrics", "tracing"})


class Place(NamedTuple):
    """Where a rule applies, and what comes of it there."""

    rule: str
    area: str
    file: str
    function: str
    occurrence: int
    old: str
    new: str


def draw(count: int, seed: int) -> list[Mutation]:
    """The same number of each rule, and within a rule one of each area in turn, while there are places."""
    chance = random.Random(seed)
    places = all_places()
    rules = sorted({place.rule for place in places})
    pools = {
        rule: _shuffled([place for place in places if place.rule == rule], chance) for rule in rules
    }
    chosen: list[Place] = []
    while len(chosen) < count and any(pools.values()):
        for rule in rules:
            _choose(pools[rule], chosen)
    ordered = sorted(chosen[:count], key=lambda place: (rules.index(place.rule), *place))
    return [Mutation(number, *place) for number, place in enumerate(ordered, 1)]


def all_places() -> list[Place]:
    return [
        place
        for area, patterns in AREAS.items()
        for pattern in patterns
        for path in sorted(ROOT.glob(pattern))
        if path.stem not in EXPLAINING and not path.stem.startswith("__")
        for place in places_in(path, area)
    ]


def _shuffled(places: list[Place], chance: random.Random) -> list[Place]:
    """At random, but the first of each area come before the second of any, and so on."""
    chance.shuffle(places)
    turns: dict[str, int] = {}
    ordered = []
    for place in places:
        turns[place.area] = turns.get(place.area, 0) + 1
        ordered.append((turns[place.area], list(AREAS).index(place.area), place))
    return [place for _, _, place in sorted(ordered, key=lambda entry: entry[:2])]


def _choose(pool: list[Place], chosen: list[Place]) -> None:
    """The next one that does not come to the same as one that was chosen."""
    effects = {one[2:] for one in chosen}
    while pool:
        place = pool.pop(0)
        if place[2:] not in effects:
            chosen.append(place)
            return


def places_in(path: Path, area: str) -> Iterator[Place]:
    source = path.read_text("utf-8")
    tree = ast.parse(source)
    lines = Lines(source)
    names = [name for name, _ in functions(tree)]
    for name, function in functions(tree):
        if names.count(name) > 1:
            continue
        for found in _Finder(lines, function).found():
            begin, end = found.begin, found.end
            old = lines.data[begin:end].decode()
            occurrence = lines.occurrence(function, begin, old)
            if occurrence is not None:
                file = path.relative_to(ROOT).as_posix()
                yield Place(found.rule, area, file, name, occurrence, old, found.new)


@dataclass(frozen=True, slots=True)
class _Found:
    rule: str
    begin: int
    end: int
    new: str


class _Finder(ast.NodeVisitor):
    """Applies every rule to the body of one function, without functions within it."""

    def __init__(self, lines: Lines, function: Function) -> None:
        self._lines = lines
        self._function = function
        self._found: list[_Found] = []
        self._endless_loops = 0

    def found(self) -> list[_Found]:
        for statement in self._function.body:
            self.visit(statement)
        return self._found

    def _add(self, rule: str, node: ast.stmt | ast.expr, new: str) -> None:
        self._found.append(_Found(rule, *self._lines.span(node), new))

    def _text(self, node: ast.stmt | ast.expr) -> str:
        return self._lines.text(node)

    def _leave_out(self, node: ast.AST) -> None:
        """Nothing in it decides anything; or it is another function, or text."""

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _leave_out  # noqa: N815
    visit_Assert = visit_JoinedStr = _leave_out  # noqa: N815

    def visit_Raise(self, node: ast.Raise) -> None:
        """What is raised is text."""

    def visit_While(self, node: ast.While) -> None:
        endless = isinstance(node.test, ast.Constant)
        self._endless_loops += endless
        self.generic_visit(node)
        self._endless_loops -= endless

    def visit_Call(self, node: ast.Call) -> None:
        if not _TELLING & set(_parts(node.func)):
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg == "fence" and not isinstance(node.value, ast.Constant):
            self._add("ignore an epoch", node.value, "None")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        match node:
            case ast.If(
                body=[ast.Raise() | ast.Return() | ast.Continue() | ast.Break()], orelse=[]
            ):
                self._add("drop a guard", node.test, "False")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        if any(_names_epoch(one) for one in operands) and not any(map(_is_fixed, operands[-1:])):
            self._add("ignore an epoch", node, self._without_epoch(node))
        if len(node.ops) == 1:
            self._swap(node, type(node.ops[0]))
        self.generic_visit(node)

    def _swap(self, node: ast.Compare, op: type[ast.cmpop]) -> None:
        begin, end = self._lines.span(node)
        _, left_end = self._lines.span(node.left)
        right_begin, _ = self._lines.span(node.comparators[0])
        left, between, right = (
            self._lines.data[first:last].decode()
            for first, last in ((begin, left_end), (left_end, right_begin), (right_begin, end))
        )
        swapped = between.replace(_WRITTEN[op], _OPPOSITE[op], 1)
        self._add("swap a comparison", node, f"{left}{swapped}{right}")

    def _without_epoch(self, node: ast.Compare) -> str:
        """What it comes to when all epochs are the same; of compared tuples, what is beside the epoch."""
        match node:
            case ast.Compare(left=ast.Tuple(elts=left), comparators=[ast.Tuple(elts=right)]):
                kept = [
                    pair
                    for pair in zip(left, right, strict=True)
                    if not any(_names_epoch(one) for one in pair)
                ]
                return " == ".join(
                    f"({', '.join(self._text(one) for one in side)},)"
                    for side in zip(*kept, strict=True)
                )
        return str(all(isinstance(op, _HOLDS_FOR_EQUALS) for op in self._between_epochs(node)))

    def _between_epochs(self, node: ast.Compare) -> Sequence[ast.cmpop]:
        operands = [node.left, *node.comparators]
        return [
            op
            for op, left, right in zip(node.ops, operands, operands[1:], strict=False)
            if not _is_fixed(left) and not _is_fixed(right)
        ]

    def visit_AsyncWith(self, node: ast.AsyncWith) -> None:
        context = node.items[0].context_expr
        if len(node.items) == 1 and any(word in self._text(context) for word in _TURNS):
            begin, _ = self._lines.span(node)
            self._found.append(
                _Found("release early", begin, self._lines.span(context)[1], "if True")
            )
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        match node.value:
            case ast.Await(
                value=ast.Call(func=ast.Attribute(value=owner, attr="commit"), args=args) as call
            ) if args:
                self._commit_rules(node, self._text(owner), args[0])
                self._answer_early(node, call)
            case ast.Await(value=ast.Call() as call):
                self._answer_early(node, call)
            case ast.Await():
                self._add("answer early", node, "pass")
            case ast.Call(func=ast.Attribute(attr=name)) if name in _RESERVES:
                self._add("release early", node, "pass")
        self.generic_visit(node)

    def _answer_early(self, node: ast.Expr, call: ast.Call) -> None:
        """It is done, but later than what follows."""
        if not self._endless_loops and _parts(call.func)[-1] not in _PAUSES:
            new = f'__import__("asyncio").ensure_future({self._text(call)})'
            self._add("answer early", node, new)

    def _commit_rules(self, node: ast.Expr, owner: str, change: ast.expr) -> None:
        """Not stored, but remembered; and remembered before it is stored."""
        text = self._text(change)
        if owner.endswith("committer"):
            self._add("skip a commit", node, f"({text}).done()")
            if isinstance(change, ast.Name):
                first = f"{text}.done(); {text}.done = lambda: None; "
                self._add("release early", node, first + self._text(node))
        elif owner.endswith("_state"):
            self._add("skip a commit", node, f"{owner}._remember({text})")
            first = f"{owner}._remember({text}); "
            self._add("release early", node, first + self._text(node))
        else:
            self._add("skip a commit", node, "pass")


def _parts(node: ast.expr) -> list[str]:
    """The names of `a.b.c`, in this order; of what is called, indexed or computed, nothing."""
    match node:
        case ast.Name(id=name):
            return [name]
        case ast.Attribute(value=owner, attr=name):
            return [*_parts(owner), name]
    return [""]


def _names_epoch(node: ast.expr) -> bool:
    return any(
        word in part
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name | ast.Attribute)
        for part in _parts(inner)[-1:]
        for word in _EPOCHS
    )


def _is_fixed(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)
