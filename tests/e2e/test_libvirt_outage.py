"""libvirtd is killed or hangs: VMs continue and are not reported as absent."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e import vms
from e2e.cluster import Cluster
from e2e.vms import BOOT_SECONDS, TINY, a_vm, add_image
from own_libvirtd import OwnLibvirtd


@pytest.fixture(scope="module")
def libvirtd() -> Iterator[OwnLibvirtd]:
    created = OwnLibvirtd()
    created.start()
    yield created
    created.close()


@pytest.fixture(scope="module")
def vm_directory(libvirtd: OwnLibvirtd) -> Iterator[tuple[Path, dict[str, str]]]:
    with vms.vm_directory(libvirtd.uri) as created:
        yield created


@pytest.fixture(scope="module")
def cluster_settings(vm_directory: tuple[Path, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {"agent": vm_directory[1]}


def test_promise_11_vms_are_unknown_during_a_libvirtd_outage_and_unchanged_after_it(
    cluster: Cluster, libvirtd: OwnLibvirtd, names: Callable[[int], list[str]]
) -> None:
    one, late = names(2)
    add_image(cluster, "tiny", TINY)
    cluster.apply(one, a_vm())
    cluster.wait_for(one, "Running", within=BOOT_SECONDS)
    run = libvirtd.virsh("domid", one).stdout

    libvirtd.kill()
    cluster.wait_for(one, "Unknown")
    cluster.apply(late, a_vm())
    libvirtd.start()
    cluster.wait_for(one, "Running", within=5)
    cluster.wait_for(late, "Running", within=BOOT_SECONDS)
    assert libvirtd.domains() == sorted([one, late])
    assert libvirtd.virsh("domid", one).stdout == run

    libvirtd.freeze()
    cluster.wait_for_all([one, late], "Unknown")
    libvirtd.thaw()
    cluster.wait_for_all([one, late], "Running", within=5)
    assert libvirtd.domains() == sorted([one, late])
    assert libvirtd.virsh("domid", one).stdout == run

    cluster.delete_all([one, late])
    cluster.wait_until_gone([one, late])
    assert libvirtd.domains() == []
