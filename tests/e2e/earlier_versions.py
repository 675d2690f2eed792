"""Earlier versions of Persys from the history of this repository, run beside the current one.

They use the libraries of the current version: requirements/runtime.txt has not changed since.
"""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

# The previous version while the repository has no tag vX.Y.Z: the last commit named persys-compute.
_UNTAGGED = "dc4a977a3593fa005fe9de4a7695494978542c7a"
_ROOT = Path(__file__).resolve().parents[2]
_GIT = ("git", "-c", f"safe.directory={_ROOT}", "-C", str(_ROOT))
_SECONDS = 120


def previous_version() -> str:
    """The newest release before this commit, which is what users upgrade from and go back to."""
    tag = _git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*", "HEAD^")
    return tag.stdout.decode().strip() if tag.returncode == 0 else _UNTAGGED


def source_of(commit: str, directory: Path) -> Path:
    """The value of PYTHONPATH for that version."""
    _extract(commit, directory, "src")
    return directory / "src"


def install_wheel_of(commit: str, directory: Path) -> Path:
    """Build the wheel of that version and install it. Returns the value of PYTHONPATH."""
    source, wheels, installed = (directory / name for name in ("source", "wheels", "installed"))
    _extract(commit, source)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(source))
    (wheel,) = wheels.glob("*.whl")
    _pip("install", "--no-deps", "--no-compile", "--target", str(installed), str(wheel))
    return installed


def _extract(commit: str, directory: Path, *folders: str) -> None:
    if _git("cat-file", "-e", f"{commit}^{{commit}}").returncode != 0:
        # A shallow clone lacks it. Servers provide single commits by their full id.
        _git("fetch", "--quiet", "--depth", "1", "origin", commit)
    packed = _git("archive", commit, *folders)
    assert packed.returncode == 0, (
        f"{packed.stderr.decode()}\nthis test needs the history: git fetch --unshallow"
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as tar:
        tar.extractall(directory, filter="data")


def _pip(*words: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*_GIT, *words], capture_output=True, timeout=_SECONDS, check=False)
