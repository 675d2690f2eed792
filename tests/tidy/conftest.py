"""The source tree for the house rules, read once."""

import ast
from pathlib import Path

import pytest

_UNWATCHED = {"node_modules", "bin", "build", "dev", "dist", "site", "wheels", "__pycache__"}


@pytest.fixture(scope="session")
def root() -> Path:
    return Path(__file__).parents[2]


@pytest.fixture(scope="session")
def sources(root: Path) -> dict[str, str]:
    """The text of each source file, by its path under src/persys, without generated code."""
    package = root / "src" / "persys"
    return {
        path.relative_to(package).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(package.rglob("*.py"))
        if "gen" not in path.relative_to(package).parts
    }


@pytest.fixture(scope="session")
def trees(sources: dict[str, str]) -> dict[str, ast.Module]:
    """The syntax tree of each file of `sources`, parsed once."""
    return {path: ast.parse(text) for path, text in sources.items()}


@pytest.fixture(scope="session")
def documents(root: Path) -> dict[str, str]:
    """The text of each document, by its path in the project."""
    paths = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    return {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in sorted(paths)}


@pytest.fixture(scope="session")
def texts(root: Path) -> dict[str, str]:
    """Every text file of the project that is not generated, by its path in the project."""
    found: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if any(part.startswith(".") or part in _UNWATCHED for part in parts):
            continue
        if "gen" in parts or path.suffix in (".png", ".pyc", ".so") or not path.is_file():
            continue
        if not any(part.endswith(".egg-info") for part in parts):
            found["/".join(parts)] = path.read_text(encoding="utf-8")
    return found
