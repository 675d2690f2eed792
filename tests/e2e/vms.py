"""VMs as libvirt reports them, and directories for their disks."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pages
from e2e.cluster import BIN, Cluster
from e2e.waiting import eventually
from persys.wire.gen.control.v1 import control_pb2 as pb

GUESTS = Path(__file__).resolve().parents[2] / ".cache" / "guest"
TINY = GUESTS / "tiny.qcow2"
URI = "qemu:///system"
# For an emulated VM on two busy cores.
BOOT_SECONDS = 240
_DEADLINE_SECONDS = 120


def virsh(*words: str, uri: str = URI, check: bool = True) -> str:
    result = subprocess.run(
        ["virsh", "-q", "-c", uri, *words],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    assert result.returncode == 0 or not check, f"virsh {' '.join(words)}: {result.stderr}"
    return result.stdout.strip()


def add_image(cluster: Cluster, name: str, path: Path) -> None:
    result = subprocess.run(
        [BIN / "persysctl", "--scheduler", cluster.target, "image", "add", name, path],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    assert result.returncode == 0, f"persysctl image add: {result.stderr}{result.stdout}"


@contextmanager
def vm_directory(uri: str = URI) -> Iterator[tuple[Path, dict[str, str]]]:
    """A directory for VMs and the agent settings for it. Both are removed at the end.

    Not below tmp_path: QEMU runs as another user, who cannot read it.
    """
    # The name is a prefix of host names, which have no underscores.
    directory = Path("/var/tmp") / f"machines-{uuid4().hex[:8]}"
    directory.mkdir(mode=0o755)
    settings = {
        "PERSYS_VM_ENABLED": "true",
        "PERSYS_LIBVIRT_URI": uri,
        "PERSYS_VM_ACCEL": "tcg",
        "PERSYS_VM_POOL": directory.name,
        "PERSYS_VM_IMAGES_DIR": str(directory / "images"),
        "PERSYS_VM_DISKS_DIR": str(directory / "disks"),
        "PERSYS_VM_DIR": str(directory / "vms"),
    }
    try:
        yield directory, settings
    finally:
        for name in domains(directory, uri):
            virsh("destroy", name, uri=uri, check=False)
            virsh("undefine", name, uri=uri, check=False)
        virsh("pool-destroy", directory.name, uri=uri, check=False)
        virsh("pool-undefine", directory.name, uri=uri, check=False)
        shutil.rmtree(directory)


def domains(directory: Path, uri: str = URI) -> list[str]:
    """Domains with a disk in the directory, running or not."""
    names = virsh("list", "--all", "--name", uri=uri).split()
    return sorted(
        name for name in names if str(directory) in virsh("dumpxml", name, uri=uri, check=False)
    )


def volumes(directory: Path, uri: str = URI) -> list[str]:
    """The volumes of the pool of this directory, as libvirt reports them."""
    if directory.name not in virsh("pool-list", "--all", "--name", uri=uri).split():
        return []
    virsh("pool-refresh", directory.name, uri=uri)
    return [line.split()[0] for line in virsh("vol-list", directory.name, uri=uri).splitlines()]


def page(address: str, path: str) -> str:
    """A page of the web server in a tiny guest; empty if it does not respond."""
    return pages.page(f"http://{address}/{path}", timeout=5)


def served_page(address: str, path: str) -> str:
    """A page of the web server in a tiny guest, as soon as it is served."""
    responses: list[str] = []

    def is_served() -> bool:
        responses.append(page(address, path))
        return responses[-1] != ""

    eventually(is_served, f"the guest serves {path}", within=BOOT_SECONDS)
    return responses[-1]


def a_vm(*, script: str = "", image: str = "tiny", restart: str = "no") -> pb.WorkloadSpec:
    cloud_init = pb.CloudInitConfig(user_data=f"#!/bin/sh\n{script}\n" if script else "")
    return pb.WorkloadSpec(
        type="vm",
        vm=pb.VMSpec(
            vcpus=1,
            memory_mb=160,
            os_image=image,
            networks=[pb.NetworkConfig(bridge="default", dhcp=True)],
            cloud_init=cloud_init,
            restart_policy=restart,
            stop_grace_seconds=5,
        ),
    )
