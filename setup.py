"""Files outside the package that the wheel installs below share/: manual pages and examples.

All other settings are in pyproject.toml. They are here because their folders have to be listed one by one.
"""

from collections.abc import Iterator
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent


def installed(folder: str, target: str) -> Iterator[tuple[str, list[str]]]:
    """Each directory below `target`, and the files of the clone that it gets."""
    files = sorted(path for path in (ROOT / folder).rglob("*") if path.is_file())
    kept = [path for path in files if "__pycache__" not in path.parts]
    for directory in sorted({path.parent for path in kept}):
        below = directory.relative_to(ROOT / folder)
        names = [str(path.relative_to(ROOT)) for path in kept if path.parent == directory]
        yield str(Path(target, below)), names


setup(
    data_files=[
        *installed("man", "share/man/man1"),
        *installed("examples", "share/persys/examples"),
    ]
)
