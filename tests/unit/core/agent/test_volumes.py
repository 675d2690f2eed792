"""Which changes of a volume are possible with existing data."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from persys.core.agent.storage import DriverCapabilities, check_volume, updated_volume
from persys.model.ids import WorkloadId
from persys.model.node import Volume
from persys.model.spec import ManagedVolume

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOCAL = DriverCapabilities(sizes=True, disks=True)
NFS = DriverCapabilities(shares=True)
CEPH = DriverCapabilities(sizes=True, needs_size=True, disks=True)


def a_volume(**fields: object) -> Volume:
    known = Volume(WorkloadId("web"), "data", "local", NOW, size_gb=5, fs_type="ext4")
    return replace(known, **fields)


def a_managed_volume(**fields: object) -> ManagedVolume:
    return replace(ManagedVolume("data"), **fields)


@pytest.mark.parametrize(
    ("field", "wanted", "known", "can"),
    [
        ("size_gb", a_managed_volume(size_gb=4), a_volume(), LOCAL),
        ("size_gb", a_managed_volume(size_gb=4), a_volume(size_gb=0, fs_type=""), LOCAL),
        ("size_gb", a_managed_volume(driver="nfs", size_gb=4), None, NFS),
        ("size_gb", a_managed_volume(driver="ceph-rbd"), None, CEPH),
        ("fs_type", a_managed_volume(fs_type="xfs"), a_volume(), LOCAL),
        ("fs_type", a_managed_volume(fs_type="xfs"), None, LOCAL),
        ("driver", a_managed_volume(driver="nfs"), a_volume(), NFS),
        ("name", a_managed_volume(size_gb=5), a_volume(as_disk=True), LOCAL),
        ("access_mode", a_managed_volume(access_mode="ReadWriteMany"), None, LOCAL),
        ("access_mode", a_managed_volume(access_mode="sometimes"), None, NFS),
        (
            "access_mode",
            a_managed_volume(driver="nfs"),
            a_volume(driver="nfs", shared=True, size_gb=0),
            NFS,
        ),
    ],
)
def test_an_invalid_volume_is_refused_with_its_field(
    field: str, wanted: ManagedVolume, known: Volume | None, can: DriverCapabilities
) -> None:
    rejection = check_volume(wanted, known, can, as_disk=False)

    assert rejection is not None
    assert rejection.field == field


def test_a_vm_disk_requires_a_size() -> None:
    shared = check_volume(a_managed_volume(driver="nfs"), None, NFS, as_disk=True)
    endless = check_volume(a_managed_volume(), None, LOCAL, as_disk=True)

    assert shared is not None
    assert shared.field == "driver"
    assert endless is not None
    assert endless.field == "size_gb"


def test_a_volume_keeps_its_size_when_the_spec_no_longer_sets_one() -> None:
    known = a_volume(retain=True)
    wanted = a_managed_volume(retain=True)

    assert check_volume(wanted, known, LOCAL, as_disk=False) is None
    same = updated_volume(wanted, known, workload_id=known.workload_id, as_disk=False, now=NOW)
    assert same == replace(known, attached=True)


def test_a_directory_volume_of_an_earlier_version_stays_a_directory() -> None:
    known = a_volume(size_gb=0, fs_type="")
    wanted = a_managed_volume(fs_type="ext4")

    assert check_volume(wanted, known, LOCAL, as_disk=False) is None
    same = updated_volume(wanted, known, workload_id=known.workload_id, as_disk=False, now=NOW)
    assert (same.size_gb, same.fs_type) == (0, "")


managed_volumes = st.builds(
    ManagedVolume,
    name=st.just("data"),
    driver=st.sampled_from(["local", "nfs", "ceph-rbd"]),
    size_gb=st.integers(0, 9),
    access_mode=st.sampled_from(["", "ReadWriteOnce", "ReadWriteMany"]),
    fs_type=st.sampled_from(["", "ext4", "xfs"]),
    retain=st.booleans(),
)
abilities = st.builds(
    DriverCapabilities, sizes=st.booleans(), needs_size=st.booleans(), shares=st.booleans()
)


@given(managed_volumes, managed_volumes, abilities)
def test_for_any_request_a_volume_keeps_its_pool_type_and_size(
    first: ManagedVolume, then: ManagedVolume, can: DriverCapabilities
) -> None:
    workload_id = WorkloadId("web")
    if check_volume(first, None, can, as_disk=False) is not None:
        return
    known = updated_volume(first, None, workload_id=workload_id, as_disk=False, now=NOW)
    if check_volume(then, known, can, as_disk=False) is not None:
        return
    after = updated_volume(then, known, workload_id=workload_id, as_disk=False, now=NOW)

    assert (after.driver, after.fs_type, after.shared) == (
        known.driver,
        known.fs_type,
        known.shared,
    )
    assert after.size_gb >= known.size_gb
    assert bool(after.size_gb) == bool(known.size_gb)
