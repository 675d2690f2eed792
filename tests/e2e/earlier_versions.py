"""Earlier versions of Persys from the history of this repository, run beside the current one.

They use the libraries of the current version: requirements/runtime.txt has not changed since.
"""

import io
import subprocess
import tarfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_GIT = ("git", "-c", f"safe.directory={_ROOT}", "-C", str(_ROOT))
_SECONDS = 120


def source_of(commit: str, directory: Path) -> Path:
    """The value of PYTHONPATH for that version."""
    if _git("cat-file", "-e", f"{commit}^{{commit}}").returncode != 0:
        # A shallow clone lacks it. Servers provide single commits by their full id.
        _git("fetch", "--quiet", "--depth", "1", "origin", commit)
    packed = _git("archive", commit, "src")
    assert packed.returncode == 0, (
        f"{packed.stderr.decode()}\nthis test needs the history: git fetch --unshallow"
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        tar.extractall(directory, filter="data")
    return directory / "src"


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*_GIT, *words], capture_output=True, timeout=_SECONDS, check=False)
