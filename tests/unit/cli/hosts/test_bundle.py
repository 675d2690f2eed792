"""The archive for the hosts."""

import csv
import tarfile
import zipfile
from pathlib import Path

import pytest

from persys.cli.framework.exit_codes import UsageError
from persys.cli.hosts.bundle import own_wheel, pack


def a_file(directory: Path, name: str, content: bytes = b"x") -> str:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def test_the_wheel_of_this_installation_has_programs_units_and_pinned_dependencies(
    tmp_path: Path,
) -> None:
    with zipfile.ZipFile(own_wheel(tmp_path)) as wheel:
        names = set(wheel.namelist())
        (info,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        record = wheel.read(f"{info}/RECORD").decode()
        assert b"persysctl" in wheel.read(f"{info}/entry_points.txt")
        assert b"--hash=" in wheel.read("persys/cli/hosts/runtime.txt")

    assert "persys/cli/hosts/systemd/persys-agent.service" in names
    assert "persys/scheduler/__main__.py" in names
    assert not [name for name in names if name.endswith(".pyc")]
    assert {row[0] for row in csv.reader(record.splitlines())} == names


def test_the_same_installation_makes_the_same_wheel(tmp_path: Path) -> None:
    (first := tmp_path / "1").mkdir()
    (second := tmp_path / "2").mkdir()

    assert own_wheel(first).read_bytes() == own_wheel(second).read_bytes()


def test_a_wheel_is_packed_with_the_wheels_of_its_dependencies(tmp_path: Path) -> None:
    given = a_file(tmp_path, "persys-1-py3-none-any.whl")
    a_file(tmp_path, "house/grpcio-1.whl")
    a_file(tmp_path, "house/notes.txt")

    package = pack([given], str(tmp_path / "house"), tmp_path)

    with tarfile.open(package.bundle) as tar:
        assert tar.getnames() == ["persys-1-py3-none-any.whl", "wheels/grpcio-1.whl"]
    assert package.title == "persys-1-py3-none-any.whl"
    assert not package.debs


def test_the_digest_depends_on_the_content_only(tmp_path: Path) -> None:
    given = a_file(tmp_path, "persys-1-py3-none-any.whl", b"one")
    first = pack([given], "", tmp_path).digest
    Path(given).touch()
    again = pack([given], "", tmp_path).digest
    Path(given).write_bytes(b"two")

    assert again == first
    assert pack([given], "", tmp_path).digest != first


def test_several_debian_packages_are_packed(tmp_path: Path) -> None:
    given = [a_file(tmp_path, f"persys-{part}_1_all.deb") for part in ("agent", "ca", "ctl")]

    package = pack(given, "", tmp_path)

    assert package.debs
    assert package.title == "3 packages"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a.whl", "b.whl"], "expected one .whl file, or .deb files"),
        (["a.whl", "b.deb"], "expected one .whl file, or .deb files"),
        (["a.tar.gz"], "expected one .whl file, or .deb files"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, names: list[str], expected: str) -> None:
    given = [a_file(tmp_path, name) for name in names]

    with pytest.raises(UsageError, match=expected):
        pack(given, "", tmp_path)


def test_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="invalid --package"):
        pack([str(tmp_path / "absent.whl")], "", tmp_path)
    with pytest.raises(UsageError, match="invalid --wheelhouse"):
        pack([a_file(tmp_path, "a.whl")], str(tmp_path / "absent"), tmp_path)
    with pytest.raises(UsageError, match="--wheelhouse needs a wheel"):
        pack([a_file(tmp_path, "a.deb")], str(tmp_path), tmp_path)
