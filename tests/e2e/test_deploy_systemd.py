"""deploy/install into a directory, as for a host image; systemd verifies the units."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2]
PARTS = ("agent", "ca", "gateway", "scheduler")
UNITS = (*(f"persys-{part}.service" for part in PARTS), "persys-federation@.service")
SYSTEM_UNITS = Path("/usr/lib/systemd/system")
# Without an index, as on a host without internet access; compilation takes most of the time.
PIP = {
    "PIP_NO_COMPILE": "no",
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": str(SOURCE / "deploy" / "docker" / "wheels"),
}


def install(root: Path, *parts: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SOURCE / "deploy" / "install", "--root", root, "--python", sys.executable, *parts],
        env={**os.environ, **PIP},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    subprocess.run([SOURCE / "scripts" / "wheels"], timeout=280, check=True)
    created = tmp_path_factory.mktemp("root")
    edited = created / "etc" / "persys" / "agent.env"
    edited.parent.mkdir(parents=True)
    edited.write_text("PERSYS_NODE_LABELS=zone=eu\n")
    (created / "opt" / "persys" / "older-version").mkdir(parents=True)
    done = install(created)
    assert done.returncode == 0, done.stderr
    yield created
    shutil.rmtree(created)


def test_systemd_accepts_the_units(root: Path) -> None:
    # Our units depend on units of the system.
    shutil.copytree(SYSTEM_UNITS, root / "usr" / "lib" / "systemd" / "system", symlinks=True)

    units = [unit.replace("@", "@east") for unit in UNITS]
    result = subprocess.run(
        [
            "systemd-analyze",
            "verify",
            "--man=no",
            "--recursive-errors=one",
            f"--root={root}",
            *units,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    logged_errors = [line for line in result.stderr.splitlines() if "persys" in line]
    assert (result.returncode, logged_errors) == (0, []), result.stderr


def test_programs_use_the_installed_interpreter(root: Path) -> None:
    for program in ("persysctl", "persys-federation", *(f"persys-{part}" for part in PARTS)):
        head = (root / "opt" / "persys" / "bin" / program).read_text().splitlines()[0]
        assert head == "#!/opt/persys/bin/python"


def test_units_and_programs_are_in_the_usual_directories(root: Path) -> None:
    for unit in UNITS:
        assert (root / "etc" / "systemd" / "system" / unit).is_file()
    link = root / "usr" / "local" / "bin" / "persys-agent"
    assert link.readlink() == Path("/opt/persys/bin/persys-agent")


def test_an_older_version_is_replaced_completely(root: Path) -> None:
    assert [path.name for path in (root / "opt").iterdir()] == ["persys"]
    assert not (root / "opt" / "persys" / "older-version").exists()


def test_the_installed_programs_run(root: Path) -> None:
    venv = root / "opt" / "persys"
    shown = subprocess.run(
        [venv / "bin" / "python", venv / "bin" / "persys-scheduler", "--print-config"],
        env={"PATH": os.environ["PATH"]},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert "grpc_port = 8085" in shown.stdout


def test_edited_files_are_kept_and_keys_are_private(root: Path) -> None:
    etc = root / "etc" / "persys"

    assert (etc / "agent.env").read_text() == "PERSYS_NODE_LABELS=zone=eu\n"
    assert {path.stem for path in etc.glob("*.env")} == set(PARTS)
    for private in (etc / "certs" / "persys-scheduler", etc / "federation"):
        assert private.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("words", [("typo",), ("--python", "/bin/false")])
def test_invalid_arguments_are_refused_before_anything_is_written(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = install(tmp_path / "root", *words)

    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert not (tmp_path / "root").exists()
