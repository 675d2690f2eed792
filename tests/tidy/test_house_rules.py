"""House rules over the syntax tree of src. Each rule is shown to find a planted breach."""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

CLOCKS = frozenset(
    {
        "time.time",
        "time.time_ns",
        "time.monotonic",
        "time.monotonic_ns",
        "time.perf_counter",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
    }
)
STRAY_TASKS = frozenset({"asyncio.create_task", "asyncio.ensure_future", "asyncio.gather"})
# Each third-party client is imported in one module.
CLIENT_MODULES = {
    "aiodocker": {"agent/runtimes/docker/engine.py"},
    "boto3": {"providers/ec2.py"},
    "botocore": {"providers/ec2.py"},
    "cronsim": {"core/jobs/cron.py"},
    "libcloud": {"providers/libcloud.py"},
    "sqlite3": {
        "store/sqlite.py",
        "agent/journal/store.py",
        "ca/database.py",
        "gateway/database.py",
        "sim/fakes/journal_disk.py",
    },
    "persys.store.gen": {"store/etcd.py"},
    "websockets": {"client/rest/exec.py"},
    "dns": {"infra/net/srv.py", "infra/net/dns_wire.py"},
    "opentelemetry": {"infra/telemetry/otlp.py"},
    # One loader with limits for all YAML that anyone sends.
    "yaml": {"core/bounded_yaml.py"},
    "msgspec.yaml": set(),
}
OUTERMOST_FRAME = "infra/process.py"
# Contains unexpected exceptions in the work for one key.
SUPERVISOR = "infra/aio/supervisor.py"
# Calls in threads: an exception is passed on to the future that the caller awaits.
PASS_ON = ("infra/aio/path_calls.py", "agent/runtimes/vm/libvirt.py")
_BROAD = re.compile(r"\beverything\b|\bException\b|\bBaseException\b")
_EXITS = ("__exit__", "__aexit__")
LINES_MAX = 600
FUNCTION_LINES_MAX = 60
VAGUE_NAMES = frozenset({"utils", "helpers", "common", "manager", "base", "misc"})
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")
HOST_PATH = re.compile(r"(?<![\w.~*])/(work|root|home|Users)\b(?!-)")

Rule = Callable[[str, str, ast.Module], Iterator[str]]


def no_clock(path: str, _text: str, tree: ast.Module) -> Iterator[str]:
    """The clock is read only in infra/clock.py."""
    if path != "infra/clock.py":
        yield from uses_of(tree, CLOCKS)


def no_stray_task(_path: str, _text: str, tree: ast.Module) -> Iterator[str]:
    """Every task has an owner: a TaskGroup, held under a name that ends in 'group'."""
    yield from uses_of(tree, STRAY_TASKS)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "create_task":
            owner = ast.unparse(node.value)
            if owner != "asyncio" and not owner.lower().endswith("group"):
                yield f"line {node.lineno}: {owner}.create_task"


def no_broad_except(path: str, _text: str, tree: ast.Module) -> Iterator[str]:
    """Only the outermost frame of a process and the supervisor may catch everything; others may clean up
    and raise it again, or pass it on to the future of the waiting caller."""
    if path in (OUTERMOST_FRAME, SUPERVISOR):
        return
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler():
                caught = "everything" if node.type is None else ast.unparse(node.type)
                if caught == "BaseException" and _raises_again(node, path):
                    continue
                if _BROAD.search(caught):
                    yield f"line {node.lineno}: except {caught}"
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name in _EXITS:
                if path not in PASS_ON and "return True" in ast.unparse(node):
                    yield f"line {node.lineno}: {node.name} suppresses every exception"
            case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress")):
                if _BROAD.search(", ".join(map(ast.unparse, node.args))):
                    yield f"line {node.lineno}: {ast.unparse(node)}"
            case ast.keyword(arg="return_exceptions"):
                yield f"line {node.value.lineno}: return_exceptions"


def _raises_again(handler: ast.ExceptHandler, path: str) -> bool:
    leaves = any(isinstance(node, ast.Return) for node in ast.walk(handler))
    return ast.unparse(handler.body[-1]) == "raise" and (path in PASS_ON or not leaves)


def one_module_per_client(path: str, _text: str, tree: ast.Module) -> Iterator[str]:
    """Each engine's client is imported in one file."""
    for line, module in imports_of(tree):
        for client, modules in CLIENT_MODULES.items():
            if f"{module}.".startswith(f"{client}.") and path not in modules:
                yield f"line {line}: imports {module}"


def nothing_unfinished(_path: str, text: str, _tree: ast.Module) -> Iterator[str]:
    """What is in the tree is done."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := UNFINISHED.search(line):
            yield f"line {number}: {found[0]}"


def no_long_file(_path: str, text: str, _tree: ast.Module) -> Iterator[str]:
    """One idea per file."""
    if (count := len(text.splitlines())) > LINES_MAX:
        yield f"{count} lines"


def no_long_function(_path: str, _text: str, tree: ast.Module) -> Iterator[str]:
    """A function is read without scrolling."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                yield f"line {node.lineno}: {node.name} has {count} lines"


def no_vague_name(path: str, _text: str, _tree: ast.Module) -> Iterator[str]:
    """A module name describes its content."""
    for word in path.removesuffix(".py").split("/"):
        if word in VAGUE_NAMES:
            yield f"is called {word}"


def no_print(path: str, _text: str, tree: ast.Module) -> Iterator[str]:
    """Processes log; only command-line programs print."""
    if not (path.startswith("cli/") or path == OUTERMOST_FRAME or path.endswith("__main__.py")):
        yield from uses_of(tree, frozenset({"print"}))


def no_host_path(_path: str, text: str, _tree: ast.Module) -> Iterator[str]:
    """No file knows the machine it was written on."""
    for number, line in enumerate(text.splitlines(), 1):
        if found := HOST_PATH.search(line):
            yield f"line {number}: {found[0]}"


def says_what_it_is(path: str, text: str, tree: ast.Module) -> Iterator[str]:
    """A module with code begins with what it is."""
    if text.strip() and ast.get_docstring(tree) is None:
        yield f"{path} has no docstring"


@dataclass(frozen=True)
class Case:
    rule: Rule
    breaches: tuple[tuple[str, str], ...]
    allowed: tuple[tuple[str, str], ...]


CASES = [
    Case(
        no_clock,
        (
            ("agent/a.py", "import time\nstart = time.monotonic()"),
            ("agent/a.py", "import time as t\nstart = t.time"),
            ("agent/a.py", "from time import monotonic\nmonotonic()"),
            ("agent/a.py", "from datetime import UTC, datetime\ndatetime.now(UTC)"),
            ("agent/a.py", "import datetime\ndatetime.date.today()"),
        ),
        (
            ("infra/clock.py", "import time\ntime.monotonic()"),
            ("cli/a.py", "import time\ntime.sleep(1)"),
            ("agent/a.py", "clock.now()"),
        ),
    ),
    Case(
        no_stray_task,
        (
            ("agent/a.py", "import asyncio\nasyncio.create_task(x())"),
            ("agent/a.py", "from asyncio import gather\ngather(x())"),
            ("agent/a.py", "import asyncio\nasyncio.ensure_future(x())"),
            ("agent/a.py", "asyncio.get_running_loop().create_task(x())"),
        ),
        (("agent/a.py", "group.create_task(x())"), ("agent/a.py", "self._group.create_task(x())")),
    ),
    Case(
        no_broad_except,
        (
            ("agent/a.py", "try:\n  x()\nexcept:\n  pass"),
            ("agent/a.py", "try:\n  x()\nexcept Exception as err:\n  raise"),
            ("agent/a.py", "try:\n  x()\nexcept (OSError, BaseException):\n  pass"),
            ("agent/a.py", "try:\n  x()\nexcept BaseException as err:\n  raise X from err"),
            ("agent/a.py", "try:\n  x()\nexcept BaseException:\n  if y:\n    return\n  raise"),
            ("agent/a.py", "def __exit__(self, *_):\n  return True"),
            ("agent/a.py", "with suppress(OSError, Exception):\n  x()"),
            ("agent/a.py", "f(*work, return_exceptions=True)"),
        ),
        (
            ("infra/process.py", "try:\n  x()\nexcept Exception:\n  pass"),
            ("agent/a.py", "try:\n  x()\nexcept ExceptionGroup:\n  pass"),
            ("agent/a.py", "try:\n  x()\nexcept BaseException:\n  close()\n  raise"),
        ),
    ),
    Case(
        one_module_per_client,
        (
            ("agent/a.py", "import aiodocker"),
            ("agent/a.py", "from aiodocker.exceptions import DockerError"),
            ("scheduler/a.py", "import sqlite3"),
            ("wire/a.py", "import yaml"),
            ("agent/a.py", "from msgspec import yaml"),
            ("store/memory.py", "from persys.store.gen import rpc_pb2"),
            ("store/memory.py", "from persys.store import gen"),
        ),
        (("agent/a.py", "import aiodockerish"), ("store/etcd.py", "import persys.store.gen")),
    ),
    Case(
        nothing_unfinished,
        (("agent/a.py", "x = 1  # TODO"), ("agent/a.py", "raise NotImplementedError")),
        (("agent/a.py", "x = 'TODOS'"),),
    ),
    Case(
        no_long_file,
        (("agent/a.py", "x = 1\n" * 601),),
        (("agent/a.py", "x = 1\n" * 600),),
    ),
    Case(
        no_long_function,
        (("agent/a.py", "def f():\n" + "  x()\n" * 60),),
        (("agent/a.py", "async def f():\n" + "  x()\n" * 59),),
    ),
    Case(
        no_vague_name,
        (("agent/utils.py", ""), ("core/common/a.py", "")),
        (("agent/baseline.py", ""),),
    ),
    Case(
        no_print,
        (("agent/a.py", "print('x')"), ("agent/a.py", "import builtins\nshow = print")),
        (("cli/a.py", "print('x')"), ("agent/__main__.py", "print('x')")),
    ),
    Case(
        no_host_path,
        (("agent/a.py", "x = '/root/x'"), ("agent/a.py", "# see /work")),
        (("agent/a.py", "x = '/workloads/web'"), ("agent/a.py", "x = '/var/lib/persys'")),
    ),
    Case(says_what_it_is, (("agent/a.py", "x = 1"),), (("agent/a.py", '"""A."""'), ("a.py", ""))),
]


def names(case: Case) -> str:
    return getattr(case.rule, "__name__", "")


@pytest.mark.parametrize("case", CASES, ids=names)
def test_the_tree_keeps_the_rule(
    case: Case, sources: dict[str, str], trees: dict[str, ast.Module]
) -> None:
    breaches = [
        f"src/persys/{path}: {breach}"
        for path, text in sources.items()
        for breach in case.rule(path, text, trees[path])
    ]

    assert breaches == [], f"{case.rule.__doc__}"


@pytest.mark.parametrize("case", CASES, ids=names)
def test_the_rule_finds_a_planted_breach_and_nothing_else(case: Case) -> None:
    for path, text in case.breaches:
        assert list(case.rule(path, text, ast.parse(text))), text
    for path, text in case.allowed:
        assert not list(case.rule(path, text, ast.parse(text))), text


def uses_of(tree: ast.Module, forbidden: frozenset[str]) -> Iterator[str]:
    """Each mention of a dotted name, however it was imported."""
    origins = origins_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            head, *rest = dotted(node)
            name = ".".join((origins.get(head, head), *rest))
            if name in forbidden:
                yield f"line {node.lineno}: {name}"


def dotted(node: ast.expr) -> list[str]:
    """The parts of a dotted name; one empty part for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else [""]


def origins_of(tree: ast.Module) -> dict[str, str]:
    """For each imported name the dotted name it stands for."""
    origins: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                origins[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                origins[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return origins


def imports_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"
