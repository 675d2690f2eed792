"""Which tests can find a mutation of a module, from the cheapest to the most expensive.

A unit or property test that does not import the module, directly or not, cannot find it and is left out.
Tests of shells start processes: all of a shell's tests count if the shell imports the module. Within a suite,
tests that import the module most directly come first.
"""

import ast
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from mutations.rules import ROOT

SEEDS = range(1, 13)
SIMULATION = "simulation"
NEAREST = "nearest"
_TESTS = "tests"
_FOLDERS = {
    "unit": "tests/unit",
    "properties": "tests/properties",
    "store": "tests/contracts/store",
    SIMULATION: "tests/simulation",
    "scheduler": "tests/shells/scheduler",
    "agent": "tests/shells/agent",
}
_PROGRAMS = {"scheduler": "src/persys/scheduler/app.py", "agent": "src/persys/agent/app.py"}
_WORLD = "src/persys/sim/world.py"


class Suite(NamedTuple):
    """Test files for pytest in this order; none: the simulation."""

    name: str
    files: tuple[str, ...]


def suites_for(module: str) -> list[Suite]:
    """For the path of a module, from the root of the project."""
    nearest = [
        path
        for name in _FOLDERS
        if name != SIMULATION
        for path in _files_of(name, module)
        if _distances(path).get(module) == 1 or Path(path).stem == f"test_{Path(module).stem}"
    ]
    suites = [Suite(NEAREST, tuple(nearest))] if nearest else []
    for name in _FOLDERS:
        if name == SIMULATION:
            if module in _distances(_WORLD):
                suites.append(Suite(name, ()))
        elif files := [path for path in _files_of(name, module) if path not in nearest]:
            suites.append(Suite(name, tuple(files)))
    return suites


def suite_of(test: str) -> str:
    """The suite that a test belongs to, by its path."""
    return next(name for name, folder in _FOLDERS.items() if test.startswith(folder))


def _files_of(suite: str, module: str) -> list[str]:
    program = _PROGRAMS.get(suite)
    if program is not None and module not in _distances(program):
        return []
    paths = sorted(
        path.relative_to(ROOT).as_posix() for path in (ROOT / _FOLDERS[suite]).rglob("test_*.py")
    )
    far = len(_modules())
    ranked = sorted((_distances(path).get(module, far), path) for path in paths)
    return [path for distance, path in ranked if distance < far or program is not None]


@cache
def _distances(path: str) -> dict[str, int]:
    """Over how many imports each module is reached."""
    found = {path: 0}
    waiting = deque([path])
    while waiting:
        one = waiting.popleft()
        for target in _imports(one):
            if target not in found:
                found[target] = found[one] + 1
                waiting.append(target)
    return found


@cache
def _imports(path: str) -> frozenset[str]:
    names = _modules()
    found = set(_conftests(path))
    for name in _imported_names(ROOT / path):
        # `from package import module` names a module, `from module import noun` does not.
        target = names.get(name) or names.get(name.rpartition(".")[0])
        if target is not None and target != path:
            found.add(target)
    return frozenset(found)


def _imported_names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (one.name for one in names)
            case ast.ImportFrom(module=str(module), names=names):
                yield from (f"{module}.{one.name}" for one in names)


def _conftests(path: str) -> Iterator[str]:
    """What pytest imports before a test."""
    if Path(path).name.startswith("test_"):
        for folder in Path(path).parents:
            conftest = folder / "conftest.py"
            if folder.parts[:1] == (_TESTS,) and (ROOT / conftest).exists():
                yield conftest.as_posix()


@cache
def _modules() -> dict[str, str]:
    """The path of each module of this project, by its name."""
    found = {}
    for base in ("src", _TESTS):
        for path in (ROOT / base).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT / base).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path.relative_to(ROOT).as_posix()
    return found
