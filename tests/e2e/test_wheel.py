"""The wheel that scripts/wheel builds: its content, its version, and its installation elsewhere."""

import hashlib
import importlib.metadata
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from e2e.process import output

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "LICENSE",
    "README.md",
    "examples",
    "man",
    "pyproject.toml",
    "scripts",
    "setup.py",
    "src",
)
VERSION = "7.8.9"
_SECONDS = 250


def run(*words: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    return output(words, cwd=cwd, variables=variables, seconds=_SECONDS)


def a_copy_of_the_sources(target: Path) -> Path:
    for name in SOURCES:
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, target / name)
        else:
            ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
            shutil.copytree(ROOT / name, target / name, copy_function=shutil.copy, ignore=ignored)
    (target / ".venv").symlink_to(Path(sys.prefix))
    return target


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    return Path(
        run(ROOT / "scripts" / "wheel", target, VERSION=VERSION, SOURCE_DATE_EPOCH="1000000000")
    )


def files_below(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and not {"__pycache__"} & set(path.parts) and path.suffix != ".pyc"
    }


def test_the_wheel_contains_the_package_examples_and_manual_pages(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())

    assert wheel.name == f"persys-{VERSION}-py3-none-any.whl"
    package = {name.removeprefix("persys/") for name in names if name.startswith("persys/")}
    assert package == files_below(ROOT / "src" / "persys")
    share = f"persys-{VERSION}.data/data/share"
    assert {f"{share}/persys/examples/{name}" for name in files_below(ROOT / "examples")} <= names
    assert {f"{share}/man/man1/{name}" for name in files_below(ROOT / "man")} <= names
    assert "persys/gateway/dashboard/static/index.html" in names
    others = {name for name in names if not name.startswith(("persys/", share))}
    assert {name.partition("/")[0] for name in others} == {f"persys-{VERSION}.dist-info"}


def test_the_same_sources_give_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """In another directory, with other times and permissions of the files, and beside an older build."""
    copied = a_copy_of_the_sources(tmp_path)
    (copied / "build" / "lib" / "persys").mkdir(parents=True)
    (copied / "build" / "lib" / "persys" / "removed.py").touch()
    run("chmod", "-R", "go=", "src", cwd=copied)

    again = run(
        "scripts/wheel", "made", cwd=copied, VERSION=VERSION, SOURCE_DATE_EPOCH="1000000000"
    )

    assert Path(again).parent == copied / "made"
    assert _digest(Path(again)) == _digest(wheel)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_programs_report_the_installed_version() -> None:
    assert run(sys.executable, "-m", "persys.cli.persysctl", "version") == (
        f"persysctl {importlib.metadata.version('persys')}"
    )


def a_repository(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "pyproject.toml")
    commit(tmp_path)
    return tmp_path


def git(repository: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    return run("git", *identity, *words, cwd=repository)


def commit(repository: Path) -> str:
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "a")
    return git(repository, "rev-parse", "HEAD")


def version_of(directory: Path) -> str:
    return run(sys.executable, "-m", "setuptools_scm", cwd=directory)


def test_the_version_is_the_tag(tmp_path: Path) -> None:
    repository = a_repository(tmp_path)
    git(repository, "tag", "v1.2.3")

    assert version_of(repository) == "1.2.3"


def test_the_version_after_a_tag_names_the_next_one_and_the_commit(tmp_path: Path) -> None:
    repository = a_repository(tmp_path)
    git(repository, "tag", "v1.2.3")
    head = commit(repository)

    assert version_of(repository) == f"1.2.4.dev1+g{head[:9]}"


def test_the_version_without_a_tag_names_the_commit(tmp_path: Path) -> None:
    repository = a_repository(tmp_path)
    head = commit(repository)

    assert version_of(repository) == f"0.1.dev2+g{head[:9]}"


def test_sources_without_history_have_a_version(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)

    assert version_of(tmp_path) == "0.1.dev0"


def test_make_install_updates_the_version_after_a_commit(tmp_path: Path) -> None:
    """Only the metadata changes; all else is up to date."""
    clone = a_repository(tmp_path)
    for name in ("scripts", "requirements"):
        shutil.copytree(ROOT / name, clone / name)
    shutil.copy(ROOT / "setup.py", clone)
    metadata = clone / ".venv" / "lib" / "python3.11" / "site-packages" / "persys-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Name: persys\nVersion: 1\nSummary: a\n")
    program = clone / ".venv" / "bin" / "python"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    inputs = "requirements/dev.txt pyproject.toml setup.py scripts/install"
    stamp = f"echo \"$(pwd) $(cat {inputs} | sha256sum | cut -d' ' -f1)\" >.venv/.installed"
    run("sh", "-c", stamp, cwd=clone)
    head = commit(clone)

    run("scripts/install", cwd=clone)

    version = f"0.1.dev2+g{head[:9]}"
    assert (metadata / "METADATA").read_text() == f"Name: persys\nVersion: {version}\nSummary: a\n"


@pytest.mark.full
def test_pipx_installs_the_wheel_outside_of_the_clone(wheel: Path, tmp_path: Path) -> None:
    run(ROOT / "scripts" / "wheels")
    variables = {
        "HOME": str(tmp_path),
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "PIPX_MAN_DIR": str(tmp_path / "man"),
        "PIP_FIND_LINKS": str(ROOT / "deploy" / "docker" / "wheels"),
    }

    run(sys.executable, "-m", "pipx", "install", wheel, cwd=tmp_path, **variables)

    programs = {path.name for path in (tmp_path / "bin").iterdir()}
    assert {"persys", "persysctl", "persys-agent", "persys-scheduler"} <= programs
    shown = run(tmp_path / "bin" / "persysctl", "--version", cwd=tmp_path, HOME=str(tmp_path))
    assert shown == f"persysctl {VERSION}"
    assert ".TH" in (tmp_path / "man" / "man1" / "persysctl.1").read_text()
    examples = tmp_path / "pipx" / "venvs" / "persys" / "share" / "persys" / "examples"
    assert files_below(examples) == files_below(ROOT / "examples")
    (tmp_path / "specs").mkdir()
    run(tmp_path / "bin" / "persysctl", "init", "vm", cwd=tmp_path / "specs", HOME=str(tmp_path))
    assert {path.name for path in (tmp_path / "specs").iterdir()} == {
        "vm.yaml",
        "workload.schema.json",
    }
