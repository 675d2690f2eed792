"""Disk files that refer to another file or cannot be read are rejected."""

from pathlib import Path

import pytest

from persys.agent.runtimes.vm.libvirt import VmError
from persys.agent.runtimes.vm.storage.qemu_img import backing_chain


def a_head(*, version: int = 3, backing_at: int = 0, backing_length: int = 0) -> bytes:
    head = bytearray(4096)
    head[:4] = b"QFI\xfb"
    head[4:8] = version.to_bytes(4, "big")
    head[8:16] = backing_at.to_bytes(8, "big")
    head[16:20] = backing_length.to_bytes(4, "big")
    head[100:104] = (104).to_bytes(4, "big")
    return bytes(head)


@pytest.mark.parametrize("backing_at", [(2 << 20) + 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1])
def test_a_backing_file_outside_the_first_cluster_is_rejected(
    tmp_path: Path, backing_at: int
) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(a_head(backing_at=backing_at, backing_length=9))

    with pytest.raises(VmError, match="backing file"):
        backing_chain("vda", str(disk), bases=tmp_path / "images")


def test_a_disk_without_backing_file_is_accepted(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(a_head())

    assert backing_chain("vda", str(disk), bases=tmp_path / "images") == [str(disk)]
