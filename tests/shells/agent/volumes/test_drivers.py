"""Volume drivers with the real mount, losetup and mkfs.

The kernel of a test host may lack NFS, and there is no Ceph cluster: fake programs replace `mount -t nfs` (an
overlay that keeps its files) and `rbd` (images as files on loop devices). Errors without a server are tested
with the real programs.
"""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from builders import a_supervisor
from persys.agent.journal.store import Journal
from persys.agent.metrics import Metrics
from persys.agent.settings import AgentSettings
from persys.agent.volumes.ceph_rbd import Ceph, CephDriver
from persys.agent.volumes.detect import Drivers, detect_drivers
from persys.agent.volumes.driver import Driver
from persys.agent.volumes.filesystems import Mounts, mounted_at
from persys.agent.volumes.local import LocalDriver
from persys.agent.volumes.managed import ManagedVolumes
from persys.agent.volumes.nfs import Export, NfsDriver
from persys.agent.volumes.programs import Programs
from persys.agent.volumes.registry import VolumeRegistry
from persys.errors import InvalidError, NotFoundError
from persys.infra.aio.path_calls import DirectPathCalls
from persys.infra.clock import SystemClock
from persys.model.ids import NodeId, Revision, WorkloadId
from persys.model.spec import ContainerSpec, ManagedVolume, VMSpec, WorkloadType
from persys.model.workload import Desired, Order

WEB = WorkloadId("web")
PATHS = DirectPathCalls()
DISK = ManagedVolume("data", size_gb=1)
SYSTEM_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"

MOUNT = """#!/bin/sh
# mount -t nfs -o OPTIONS SOURCE AT
if [ "$2" != nfs ]; then exec {real} "$@"; fi
exec {real} -t overlay -o lowerdir={room}/lower,upperdir={room}/upper,workdir={room}/scratch "$5" "$6"
"""
RBD = """#!/bin/sh
cd {room} || exit 1
while [ $# -gt 0 ]; do
  case "$1" in
    --id|--keyring|--cluster) shift 2 ;;
    *) break ;;
  esac
done
last() {{ for word; do :; done; echo "${{word#rbd/}}"; }}
case "$1" in
  ls) ls | sed 's/.*/"&"/' | paste -s -d, | sed 's/.*/[&]/' ;;
  info) f=${{2#rbd/}}; [ -e "$f" ] || exit 2; echo "{{\\"size\\": $(stat -c %s "$f")}}" ;;
  create) f=$(last "$@"); [ -e "$f" ] && exit 17; truncate -s "$3" "$f" ;;
  resize) f=$(last "$@"); truncate -s "$3" "$f"; losetup -j "$f" | cut -d: -f1 | xargs -r losetup -c ;;
  map) losetup -f --show "{room}/$(last "$@")" ;;
  unmap)
    losetup -d "$2"
    while grep -qs '^{room}/' "/sys/block/${{2##*/}}/loop/backing_file"; do sleep 0.02; done ;;
  device)
    losetup -n -O NAME,BACK-FILE | grep ' {room}/' |
      sed 's|\\([^ ]*\\) *{room}/\\(.*\\)|{{"pool": "rbd", "name": "\\2", "device": "\\1"}}|' |
      paste -s -d, | sed 's/.*/[&]/' ;;
  rm) rm "$(last "$@")" ;;
  *) exit 1 ;;
esac
"""


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A directory; mounts below it are removed after the test."""
    yield tmp_path
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    for line in reversed(lines):
        if (at := line.split()[4]).startswith(f"{tmp_path}/"):
            subprocess.run(["umount", at], check=True)
    for line in _losetup(tmp_path):
        subprocess.run(["losetup", "-d", line.split()[0]], check=True)


def _losetup(room: Path) -> list[str]:
    listed = subprocess.run(
        ["losetup", "-n", "-O", "NAME,BACK-FILE"], capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if f" {room}/" in line]


@asynccontextmanager
async def volumes_of(room: Path, *made: tuple[str, object]) -> AsyncIterator[ManagedVolumes]:
    """Volumes with their own journal and these drivers; drivers that are functions get the registry."""
    journal = Journal(room / "state.db", cluster_id="c", node_id=NodeId("n"))
    volume_registry = VolumeRegistry(journal)
    drivers: dict[str, Driver] = {
        name: each(volume_registry) if callable(each) else each  # type: ignore[misc]  # one of the two
        for name, each in made
    }
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(journal.run(a_supervisor(), Metrics().journal.written))
        yield ManagedVolumes(Drivers(drivers, {}), volume_registry, SystemClock(), PATHS)
        writing.cancel()
    journal.close()


def an_order(*volumes: ManagedVolume, workload_id: WorkloadId = WEB, vm: bool = False) -> Order:
    spec = (
        VMSpec(vcpus=1, memory_mb=64, managed_volumes=volumes)
        if vm
        else ContainerSpec(image="demo", managed_volumes=volumes)
    )
    kind = WorkloadType.VM if vm else WorkloadType.CONTAINER
    return Order(workload_id, kind, Revision("r1"), 1, Desired.RUNNING, spec)


def local(room: Path) -> tuple[str, LocalDriver]:
    return "local", LocalDriver(room / "local", Programs(), PATHS)


def stand_in(room: Path, name: str, text: str) -> Programs:
    programs = room / "bin"
    programs.mkdir(exist_ok=True)
    (programs / name).write_text(text)
    (programs / name).chmod(0o755)
    return Programs(f"{programs}:{SYSTEM_PATH}")


async def test_a_vm_volume_is_a_disk_that_grows(room: Path) -> None:
    async with volumes_of(room, local(room)) as volumes:
        assert await volumes.prepare(an_order(DISK, vm=True)) is None
        disk = volumes.disk(WEB, "data")
        assert disk.stat().st_size == 1 << 30
        assert mounted_at(room / "local/web/data") is None

        larger = replace(DISK, size_gb=2)
        assert await volumes.prepare(an_order(larger, vm=True)) is None

        assert disk.stat().st_size == 2 << 30
        blocks = await Programs().run("dumpe2fs", "-h", str(disk))
        assert f"Block count:              {(2 << 30) // 4096}" in blocks.out
        assert _losetup(room) == []


async def test_a_file_system_of_a_workload_is_mounted_without_setuid_and_devices(
    room: Path,
) -> None:
    mounts = Mounts(Programs(), PATHS)
    await mounts.mount("tmpfs", room / "made", "tmpfs")

    flags = os.statvfs(room / "made").f_flag
    assert flags & os.ST_NOSUID
    assert flags & os.ST_NODEV
    await mounts.unmount(room / "made")


async def test_a_lost_volume_is_not_recreated(room: Path) -> None:
    async with volumes_of(room, local(room)) as volumes:
        await volumes.prepare(an_order(DISK, vm=True))
        volumes.disk(WEB, "data").unlink()

        failure = await volumes.prepare(an_order(DISK, vm=True))

        assert failure is not None
        assert failure.code == "VolumeLost"
        assert not volumes.disk(WEB, "data").exists()


async def test_a_volume_reserves_its_space_on_creation(room: Path) -> None:
    async with volumes_of(room, local(room)) as volumes:
        await volumes.prepare(an_order(DISK, vm=True))

        assert volumes.disk(WEB, "data").stat().st_blocks * 512 >= 1 << 30


async def test_a_directory_that_is_older_than_the_registry_is_found(room: Path) -> None:
    (room / "local/web/data").mkdir(parents=True)
    (room / "local/web/data/file").write_text("kept")
    async with volumes_of(room, local(room)) as volumes:
        (seen,) = await volumes.inventory()
        assert (seen.workload_id, seen.name, seen.size_bytes) == ("web", "data", 0)
        assert seen.used_bytes > 0

        assert await volumes.prepare(an_order(ManagedVolume("data"))) is None
        assert (volumes.path(WEB, "data") / "file").read_text() == "kept"

        await volumes.delete(WEB, "data")
        assert await volumes.inventory() == []


async def test_a_foreign_mount_at_the_volume_path_is_not_changed(room: Path) -> None:
    at = room / "local/web/data"
    at.mkdir(parents=True)
    await Programs().run("mount", "-t", "tmpfs", "other", str(at))
    (at / "theirs").write_text("kept")
    async with volumes_of(room, local(room)) as volumes:
        failure = await volumes.remove(WEB, frozenset({"data"}))

    assert failure is not None
    assert failure.code == "VolumeBusy"
    assert (at / "theirs").exists()


async def test_a_volume_in_use_is_kept_until_it_is_released(room: Path) -> None:
    async with volumes_of(room, local(room)) as volumes:
        await volumes.prepare(an_order(DISK))
        file = volumes.path(WEB, "data") / "open"
        with file.open("w"):
            failure = await volumes.remove(WEB, frozenset({"data"}))

            assert failure is not None
            assert failure.code == "VolumeBusy"

        assert await volumes.remove(WEB, frozenset({"data"})) is None
        assert _losetup(room) == []


async def test_without_the_programs_a_size_is_rejected_by_name(room: Path) -> None:
    bare = LocalDriver(room / "local", Programs(str(room)), PATHS)
    async with volumes_of(room, ("local", bare)) as volumes:
        with pytest.raises(
            InvalidError, match=r"size_gb: a volume with a size needs mount and umount and losetup"
        ):
            await volumes.check(an_order(DISK))
        await volumes.check(an_order(ManagedVolume("data")))


async def test_a_driver_without_its_programs_is_unavailable_and_names_them(
    room: Path,
) -> None:
    settings = AgentSettings(
        storage_nfs_server="server", storage_nfs_export="/e", storage_ceph_pool="rbd"
    )
    journal = Journal(room / "state.db", cluster_id="c", node_id=NodeId("n"))

    found = detect_drivers(settings, VolumeRegistry(journal), Programs(str(room)), PATHS)

    assert list(found.available) == ["local"]
    assert found.remedies == {
        "nfs": "install mount, umount, mount.nfs",
        "ceph-rbd": "install rbd, mount, umount, blkid",
    }
    journal.close()


async def test_an_unreachable_server_is_a_mount_failure(room: Path) -> None:
    export = Export("127.0.0.1", "/none", "port=1,timeo=1,retrans=0,retry=0", room / "stage")
    nfs = (
        "nfs",
        lambda volume_registry: NfsDriver(export, "c", volume_registry, Programs(), PATHS),
    )
    async with volumes_of(room, nfs) as volumes:
        failure = await volumes.prepare(an_order(ManagedVolume("data", driver="nfs")))

        assert failure is not None
        assert failure.code == "MountFailed"
        assert failure.retryable
        assert await volumes.inventory() == []
        assert mounted_at(room / "stage") is None


@pytest.fixture
def nfs(room: Path) -> tuple[str, object]:
    for name in ("lower", "upper", "scratch", "stage"):
        (room / name).mkdir()
    tools = stand_in(room, "mount", MOUNT.format(real="/usr/bin/mount", room=room))
    export = Export("server", "/srv", "", room / "stage")
    return "nfs", lambda volume_registry: NfsDriver(export, "c", volume_registry, tools, PATHS)


async def test_an_export_is_mounted_once_and_until_its_last_use(
    room: Path, nfs: tuple[str, object]
) -> None:
    volume = ManagedVolume("data", driver="nfs", retain=True)
    other = WorkloadId("other")
    async with volumes_of(room, nfs) as volumes:
        assert await volumes.prepare(an_order(volume)) is None
        assert await volumes.prepare(an_order(volume, workload_id=other)) is None
        (volumes.path(WEB, "data") / "file").write_text("kept")
        assert list(volumes.path(other, "data").iterdir()) == []

        await volumes.release(WEB)
        assert mounted_at(room / "stage") is not None
        await volumes.release(other)
        assert mounted_at(room / "stage") is None

        assert await volumes.prepare(an_order(volume)) is None
        assert (volumes.path(WEB, "data") / "file").read_text() == "kept"
        assert await volumes.remove(WEB, frozenset({"data"})) is None
        assert mounted_at(room / "stage") is None
        assert not (room / "upper/c/web/data").exists()


class BlockedProgram:
    """Replaces a program by one that waits until it may continue."""

    def __init__(self, room: Path, name: str) -> None:
        self._began, self._may_end = room / "began", room / "may_end"
        wait = f"touch {self._began}; while [ ! -e {self._may_end} ]; do sleep 0.02; done"
        stand_in(room, name, f'#!/bin/sh\n{wait}\nexec /bin/{name} "$@"\n')

    async def until_called(self) -> None:
        async with asyncio.timeout(30):
            while not self._began.exists():  # noqa: ASYNC110 - no event signals it
                await asyncio.sleep(0.01)

    def release(self) -> None:
        self._may_end.touch()


async def test_a_long_removal_does_not_delay_another_volume(
    room: Path, nfs: tuple[str, object]
) -> None:
    rm = BlockedProgram(room, "rm")
    volume, other = ManagedVolume("data", driver="nfs"), WorkloadId("other")
    async with volumes_of(room, nfs) as volumes, asyncio.TaskGroup() as group:
        assert await volumes.prepare(an_order(volume)) is None
        removal = group.create_task(volumes.remove(WEB, frozenset({"data"})))
        await rm.until_called()

        assert await volumes.prepare(an_order(volume, workload_id=other)) is None
        await volumes.release(other)
        assert not removal.done()
        assert mounted_at(room / "stage") is not None

        rm.release()
        assert await removal is None
        assert mounted_at(room / "stage") is None
        assert not (room / "upper/c/web/data").exists()


async def test_an_export_stays_mounted_while_a_volume_is_being_attached(
    room: Path, nfs: tuple[str, object]
) -> None:
    volume, other = ManagedVolume("data", driver="nfs"), WorkloadId("other")
    async with volumes_of(room, nfs) as volumes, asyncio.TaskGroup() as group:
        assert await volumes.prepare(an_order(volume)) is None
        mkdir = BlockedProgram(room, "mkdir")
        attached = group.create_task(volumes.prepare(an_order(volume, workload_id=other)))
        await mkdir.until_called()

        await volumes.release(WEB)
        mkdir.release()

        assert await attached is None
        assert (room / "upper/c/other/data").is_dir()
        await volumes.release(other)
        assert mounted_at(room / "stage") is None


async def test_a_shared_volume_is_deleted_with_its_last_workload(
    room: Path, nfs: tuple[str, object]
) -> None:
    shared = ManagedVolume("pool", driver="nfs", access_mode="ReadWriteMany")
    other = WorkloadId("other")
    async with volumes_of(room, nfs) as volumes:
        await volumes.prepare(an_order(shared))
        await volumes.prepare(an_order(shared, workload_id=other))
        (volumes.path(WEB, "pool") / "file").write_text("ours")
        assert (volumes.path(other, "pool") / "file").read_text() == "ours"

        assert await volumes.remove(WEB, frozenset({"pool"})) is None
        assert (volumes.path(other, "pool") / "file").read_text() == "ours"

        assert await volumes.remove(other, frozenset({"pool"})) is None
        assert not any((room / "upper/c/.shared").iterdir())
        assert mounted_at(room / "stage") is None


async def test_an_rbd_image_is_created_mapped_grown_and_removed(room: Path) -> None:
    images = room / "images"
    images.mkdir()
    tools = stand_in(room, "rbd", RBD.format(room=images))
    ceph = Ceph("", "rbd", "persys", "/no/keyring", room / "stage")
    volume = ManagedVolume("data", driver="ceph-rbd", size_gb=1)
    async with volumes_of(room, ("ceph-rbd", CephDriver(ceph, "c", tools, PATHS))) as volumes:
        assert await volumes.prepare(an_order(volume)) is None
        (volumes.path(WEB, "data") / "file").write_text("kept")
        await volumes.release(WEB)
        assert _losetup(room) == []

        assert await volumes.prepare(an_order(replace(volume, size_gb=2))) is None
        assert (volumes.path(WEB, "data") / "file").read_text() == "kept"
        found = os.statvfs(volumes.path(WEB, "data"))
        assert found.f_blocks * found.f_frsize > 1.5 * (1 << 30)

        assert await volumes.remove(WEB, frozenset({"data"})) is None
        assert list(images.iterdir()) == []
        assert _losetup(room) == []
        with pytest.raises(NotFoundError):
            await volumes.delete(WEB, "data")


async def test_a_ceph_that_does_not_respond_is_not_an_empty_pool(room: Path) -> None:
    """rbd exits with the same code as for a missing image."""
    tools = stand_in(room, "rbd", "#!/bin/sh\nexit 2\n")
    ceph = Ceph("", "rbd", "", "", room / "stage")
    volume = ManagedVolume("data", driver="ceph-rbd", size_gb=1)
    async with volumes_of(room, ("ceph-rbd", CephDriver(ceph, "c", tools, PATHS))) as volumes:
        failure = await volumes.prepare(an_order(volume))

    assert failure is not None
    assert failure.code == "ToolFailed"
    assert failure.retryable
