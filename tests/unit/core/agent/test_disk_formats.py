"""Headers of disk files, with files created by the real qemu-img."""

import subprocess
from pathlib import Path

import pytest

from persys.core.agent.storage import HEAD_BYTES, backing_of, format_of, has_external_data


def a_disk(path: Path, *words: str) -> bytes:
    command = ["qemu-img", "create", "-q", *words, str(path), "1M"]
    subprocess.run(command, check=True, timeout=60)
    return path.read_bytes()[:HEAD_BYTES]


@pytest.mark.parametrize("form", ["qcow2", "raw", "vmdk", "vdi", "qed", "vhdx"])
def test_disk_formats_are_detected_by_their_magic_bytes(tmp_path: Path, form: str) -> None:
    assert format_of(a_disk(tmp_path / "disk", "-f", form)) == form


@pytest.mark.parametrize("compat", ["0.10", "1.1"])
def test_a_disk_that_is_whole_refers_to_nothing(tmp_path: Path, compat: str) -> None:
    head = a_disk(tmp_path / "disk", "-f", "qcow2", "-o", f"compat={compat}")

    assert backing_of(head) is None
    assert not has_external_data(head)


@pytest.mark.parametrize("compat", ["0.10", "1.1"])
def test_a_backing_file_is_found(tmp_path: Path, compat: str) -> None:
    a_disk(tmp_path / "base", "-f", "raw")
    option = f"compat={compat}"
    words = ("-f", "qcow2", "-o", option, "-b", str(tmp_path / "base"), "-F", "raw")
    head = a_disk(tmp_path / "disk", *words)

    backing = backing_of(head)

    assert backing is not None
    name = (tmp_path / "disk").read_bytes()[backing.offset :][: backing.length]
    assert name == str(tmp_path / "base").encode()


def test_an_external_data_file_is_found(tmp_path: Path) -> None:
    option = f"data_file={tmp_path / 'data'}"

    assert has_external_data(a_disk(tmp_path / "disk", "-f", "qcow2", "-o", option))


def test_an_external_data_file_that_is_only_named_is_found(tmp_path: Path) -> None:
    option = f"data_file={tmp_path / 'data'}"
    head = bytearray(a_disk(tmp_path / "disk", "-f", "qcow2", "-o", option))
    head[72:80] = bytes(8)  # declares that it needs no other file

    assert has_external_data(bytes(head))
