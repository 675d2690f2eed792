"""Failing VMs: each reports the correct cause."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e import vms
from e2e.cluster import Cluster
from e2e.vms import BOOT_SECONDS, TINY, a_vm, add_image
from own_libvirtd import OwnLibvirtd
from persys.wire.gen.control.v1 import control_pb2 as pb

MIB = 1 << 20
TABLE_AT = 40  # position of the L1 table offset in a qcow2 header
GIB = 1 << 30
POOL_GIB = 6
# Free space beside the filler, and the amount that is written.
LEFT_MIB = 40
WRITTEN_MIB = 130


@pytest.fixture(scope="module")
def small_disk() -> Iterator[Path]:
    """A small file system."""
    with tempfile.TemporaryDirectory(prefix="small-", dir="/var/tmp") as directory:
        Path(directory).chmod(0o755)
        image, mounted = Path(directory) / "image", Path(directory) / "mounted"
        mounted.mkdir()
        with image.open("wb") as file:
            file.truncate(POOL_GIB * GIB)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, mounted], check=True)
        yield mounted
        subprocess.run(["umount", mounted], check=True)


@pytest.fixture(scope="module")
def libvirtd(small_disk: Path) -> Iterator[OwnLibvirtd]:
    """A separate one: that of the host may not see mounts created after its start."""
    created = OwnLibvirtd()
    created.start()
    yield created
    created.close()


@pytest.fixture(scope="module")
def vm_directory(libvirtd: OwnLibvirtd, small_disk: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    with vms.vm_directory(libvirtd.uri) as (directory, settings):
        yield directory, {**settings, "PERSYS_VM_DISKS_DIR": str(small_disk)}


@pytest.fixture(scope="module")
def cluster_settings(vm_directory: tuple[Path, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {"agent": vm_directory[1]}


@pytest.mark.full  # unit tests and tests of the runtime have each cause
def test_a_failed_vm_reports_its_cause(
    cluster: Cluster,
    libvirtd: OwnLibvirtd,
    vm_directory: tuple[Path, dict[str, str]],
    small_disk: Path,
    names: Callable[[int], list[str]],
) -> None:
    directory, _ = vm_directory
    panicking, corrupted, full = names(3)
    add_image(cluster, "tiny", TINY)
    other = directory / "other.qcow2"
    subprocess.run(["qemu-img", "convert", "-O", "qcow2", TINY, other], check=True)
    add_image(cluster, "rotten", other)
    _corrupt_newest_image(directory / "images")
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(small_disk).free - LEFT_MIB * MIB)

    cluster.apply(panicking, a_vm(script="echo c >/proc/sysrq-trigger"))
    cluster.apply(corrupted, a_vm(image="rotten"))

    view = cluster.wait_for(corrupted, "Failed", within=BOOT_SECONDS)
    assert "qemu-img check" in view.reason.message
    view = cluster.wait_for(panicking, "Failed", within=BOOT_SECONDS)
    # A guest that needs more than a minute on a busy host counts as booted.
    assert view.failure_reason in ("VM_BOOT_FAILED", "RUNTIME_ERROR")
    assert "the guest crashed" in view.reason.message
    assert "sysrq" in str(view.metadata), "the end of its console"

    cluster.delete_all([panicking, corrupted])
    cluster.apply(full, _a_vm_that_fills_its_disk())
    view = cluster.wait_for(full, "Failed", within=BOOT_SECONDS)
    assert "no space left" in view.reason.message

    filler.unlink()
    cluster.wait_for(full, "Running", within=BOOT_SECONDS)
    cluster.delete_all([full])
    cluster.wait_until_gone([panicking, corrupted, full])
    assert libvirtd.domains() == []
    assert [path.name for path in small_disk.iterdir()] == ["lost+found"]


def _corrupt_newest_image(images: Path) -> None:
    """Overwrite the tables of the newest image in the store, without a change of its size."""
    path = max((images / "files").iterdir(), key=lambda path: path.stat().st_mtime)
    with path.open("r+b") as file:
        file.seek(TABLE_AT)
        table = int.from_bytes(file.read(8), "big")
        file.seek(table)
        file.write(b"\xa5" * 64)


def _a_vm_that_fills_its_disk() -> pb.WorkloadSpec:
    spec = a_vm(script=f"dd if=/dev/zero of=/dev/vda bs=1M seek=100 count={WRITTEN_MIB}")
    spec.vm.disks.append(pb.DiskConfig(size_gb=1))
    return spec
