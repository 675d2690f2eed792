"""Files outside the package that the wheel installs below share/, and the check that the dashboard is built.

All other settings are in pyproject.toml. The files are here because their
folders have to be listed one by one.
"""

from collections.abc import Iterator
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
PAGE = ROOT / "src" / "persys" / "gateway" / "dashboard" / "static" / "index.html"


class Build(build_py):
    def run(self) -> None:
        if not self.editable_mode and not PAGE.is_file():
            raise SystemExit("error: the dashboard is not built: run `make install` first")
        super().run()


def installed(folder: str, target: str) -> Iterator[tuple[str, list[str]]]:
    """Each directory below `target`, and the files of the clone that it gets."""
    files = sorted(path for path in (ROOT / folder).rglob("*") if path.is_file())
    kept = [path for path in files if "__pycache__" not in path.parts]
    for directory in sorted({path.parent for path in kept}):
        below = directory.relative_to(ROOT / folder)
        names = [str(path.relative_to(ROOT)) for path in kept if path.parent == directory]
        yield str(Path(target, below)), names


setup(
    cmdclass={"build_py": Build},
    data_files=[
        *installed("man", "share/man/man1"),
        *installed("examples", "share/persys/examples"),
    ],
)
