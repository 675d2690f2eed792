"""The table of calls that the agent makes below its ports, derived from the syntax tree of its source.

A call site is one place in the source that calls a driver: the file system, Docker, libvirt or another
program. A function that only forwards its arguments to a driver is transparent: its callers are the
sites. A new call appears in the table automatically.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import persys.agent
from persys.agent.runtimes.docker.engine import Engine
from persys.agent.runtimes.vm.libvirt import Libvirt
from persys.infra import subprocesses
from persys.infra.aio.path_calls import PathCalls

AGENT = Path(persys.agent.__file__).parent
RUNNER = Path(subprocesses.__file__)  # runs programs for the agent, and opens files for them
PATHS, DOCKER, LIBVIRT, PROGRAMS = "paths", "docker", "libvirt", "programs"
DRIVERS = (PATHS, DOCKER, LIBVIRT, PROGRAMS)
# The drivers themselves: their internal calls are not calls of the agent.
OWN_FILES = {"runtimes/docker/engine.py", "runtimes/vm/libvirt.py"}


class Callee(NamedTuple):
    """A call belongs to a driver if it has this form: `receiver` is the suffix of the object's name."""

    driver: str
    name: str
    receiver: str = ""  # "": a plain function
    file: str = ""  # "": in any file


class Transparent(NamedTuple):
    """A function of the agent whose callers are the sites."""

    file: str
    function: str
    callee: Callee


@dataclass(frozen=True)
class Site:
    driver: str
    file: str  # relative to the package of the agent, or the name of RUNNER
    function: str
    number: int  # of the call within the function, from 1
    first_line: int
    last_line: int
    callee: str  # the name of the called function

    def __str__(self) -> str:
        return f"{self.driver}:{self.file.removesuffix('.py')}:{self.function}#{self.number}"


def public_calls(port: type) -> list[str]:
    return [name for name in vars(port) if not name.startswith("_")]


DIRECT = [
    *(Callee(PATHS, name, "paths") for name in public_calls(PathCalls)),
    *(Callee(DOCKER, name, "engine") for name in public_calls(Engine)),
    *(Callee(LIBVIRT, name, "libvirt") for name in public_calls(Libvirt)),
    *(
        Callee(PROGRAMS, "run", file=file)
        for file in (
            "runtimes/compose/git.py",
            "runtimes/vm/kvm.py",
            "images/files.py",
            "volumes/programs.py",
            "runtimes/compose/cli.py",
            "runtimes/vm/storage/qemu_img.py",
            "runtimes/vm/state_dir.py",
        )
    ),
]
STACK, GARBAGE = "runtimes/compose/project.py", "runtimes/docker/garbage.py"
COMMANDS = "runtimes/compose/cli.py"
TRANSPARENT = [
    Transparent(
        "runtimes/compose/git.py", "_run", Callee(PROGRAMS, "_run", file="runtimes/compose/git.py")
    ),
    Transparent(
        "runtimes/compose/git.py", "_git", Callee(PROGRAMS, "_git", file="runtimes/compose/git.py")
    ),
    Transparent(
        "images/files.py", "_qemu_img", Callee(PROGRAMS, "_qemu_img", file="images/files.py")
    ),
    Transparent("volumes/programs.py", "Programs.run", Callee(PROGRAMS, "run", "programs")),
    Transparent("runtimes/compose/cli.py", "ComposeCli.run", Callee(PROGRAMS, "run", "cli")),
    Transparent(COMMANDS, "ComposeCommands._run", Callee(PROGRAMS, "_run", "self", COMMANDS)),
    Transparent(
        "runtimes/vm/storage/qemu_img.py",
        "_qemu_img",
        Callee(PROGRAMS, "_qemu_img", file="runtimes/vm/storage/qemu_img.py"),
    ),
    Transparent(STACK, "StackResources._call", Callee(DOCKER, "_call", "self", STACK)),
    Transparent(STACK, "StackResources._list", Callee(DOCKER, "_list", "self", STACK)),
    Transparent(STACK, "ProjectNames._list", Callee(DOCKER, "_list", "self", STACK)),
    Transparent(
        STACK,
        "StackResources._call_unless_gone",
        Callee(DOCKER, "_call_unless_gone", "self", STACK),
    ),
    Transparent(GARBAGE, "DockerGarbage._list", Callee(DOCKER, "_list", "self", GARBAGE)),
]


@cache
def all_sites() -> tuple[Site, ...]:
    files = sorted([*AGENT.rglob("*.py"), RUNNER])
    return tuple(site for path in files for site in _sites_in(path))


def sites_of(driver: str) -> list[Site]:
    return [site for site in all_sites() if site.driver == driver]


def site_at(frame: FrameType | None, driver: str) -> Site | None:
    """The site whose call is in progress: the innermost of this driver on the stack.

    After a timeout the stack ends at an asynchronous generator of the driver: then the site is the first one
    that calls this generator, a runtime before other modules.
    """
    names: set[str] = set()
    while frame is not None:
        line = frame.f_lineno
        names.add(frame.f_code.co_name)
        sites = _by_file(driver).get(frame.f_code.co_filename, ())
        if found := [site for site in sites if site.first_line <= line <= site.last_line]:
            return min(found, key=lambda site: site.last_line - site.first_line)
        frame = frame.f_back
    callers = [site for site in sites_of(driver) if site.callee in names - {"call", "run", "ping"}]
    return min(callers, key=lambda site: not site.file.endswith("/runtime.py"), default=None)


@cache
def _by_file(driver: str) -> dict[str, list[Site]]:
    found: dict[str, list[Site]] = {}
    for site in sites_of(driver):
        path = RUNNER if site.file == RUNNER.name else AGENT / site.file
        found.setdefault(str(path), []).append(site)
    return found


def _sites_in(path: Path) -> Iterator[Site]:
    file = RUNNER.name if path == RUNNER else path.relative_to(AGENT).as_posix()
    if file in OWN_FILES:
        return
    tree = ast.parse(path.read_text())
    ends = _ends_of_blocks(tree)
    for function, node in _functions(tree):
        passes_on = {
            each.callee.driver
            for each in TRANSPARENT
            if (each.file, each.function) == (file, function)
        }
        numbers = dict.fromkeys(DRIVERS, 0)
        for called, last in _called(node, ends):
            driver = driver_of(called, file)
            if driver is not None and driver not in passes_on:
                numbers[driver] += 1
                callee = ast.unparse(called).rpartition(".")[2]
                number = numbers[driver]
                yield Site(driver, file, function, number, called.lineno, last, callee)


def _called(function: ast.AST, ends: dict[ast.Call, int]) -> list[tuple[ast.expr, int]]:
    """The calls in the function, each with its last line.

    A mere reference, as in `partial(engine.call, ...)`, may be called up to the end of the function.
    """
    calls = _calls(function)
    found = [(call.func, ends.get(call, call.end_lineno or call.lineno)) for call in calls]
    direct = {call.func for call in calls}
    last = getattr(function, "end_lineno", 0)
    referred: list[tuple[ast.expr, int]] = [
        (node, last)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node not in direct
    ]
    return sorted(found + referred, key=lambda pair: (pair[0].lineno, pair[0].col_offset))


def driver_of(called: ast.expr, file: str) -> str | None:
    for callee in (*DIRECT, *(each.callee for each in TRANSPARENT)):
        if callee.file in ("", file) and _is_call_of(called, callee):
            return callee.driver
    return None


def _is_call_of(called: ast.expr, callee: Callee) -> bool:
    match called:
        case ast.Name(id=name):
            return not callee.receiver and name == callee.name
        case ast.Attribute(value=value, attr=name):
            owner = ast.unparse(value).rpartition(".")[2].lstrip("_")
            return bool(callee.receiver) and name == callee.name and owner == callee.receiver
        case _:
            return False


def _ends_of_blocks(tree: ast.Module) -> dict[ast.Call, int]:
    """The last line of the block for calls whose result is read in a block, such as a stream."""
    ends: dict[ast.Call, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncWith | ast.AsyncFor):
            heads = (
                [node.iter]
                if isinstance(node, ast.AsyncFor)
                else [item.context_expr for item in node.items]
            )
            calls = [call for head in heads for call in _calls(head)]
            ends |= dict.fromkeys(calls, node.end_lineno or node.lineno)
    return ends


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Each top-level function and method; nested functions are part of it."""
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name, node
            case ast.ClassDef():
                for method in node.body:
                    if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield f"{node.name}.{method.name}", method


def _calls(function: ast.AST) -> list[ast.Call]:
    found = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))
