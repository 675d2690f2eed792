"""Files from secrets are in memory if Docker can access them there."""

import shutil
from pathlib import Path

from msgspec import structs

from persys.agent.runtimes.docker.config_files import ContainerFiles, memory_directory
from persys.infra.mount_table import MountEntry
from persys.model.ids import Revision, WorkloadId
from persys.model.spec import ContainerSpec, FileMount, WorkloadType
from persys.model.workload import Desired, Order

VALUE = b"hunter2-of-the-test"
WEB = WorkloadId("web")


def a_mount(mount_point: str, fs_type: str) -> MountEntry:
    return MountEntry(1, "0:1", "/", mount_point, fs_type, "none")


def an_order(content: bytes = VALUE) -> Order:
    files = (FileMount("/etc/key", content, secret=True), FileMount("/etc/motd", b"hello"))
    spec = ContainerSpec("web", files=files)
    return Order(WEB, WorkloadType.CONTAINER, Revision("r1"), 1, Desired.RUNNING, spec)


def in_clear(directory: Path) -> list[Path]:
    files = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    return [path for path in files if VALUE in path.read_bytes()]


def test_run_is_preferred_to_shared_memory() -> None:
    mounts = [a_mount("/", "ext4"), a_mount("/run", "tmpfs"), a_mount("/dev/shm", "tmpfs")]

    assert memory_directory("", mounts) == Path("/run/persys")
    assert memory_directory("", [mounts[0], mounts[2]]) == Path("/dev/shm/persys")
    assert memory_directory("/mnt/memory", mounts) == Path("/mnt/memory")


def test_a_directory_on_disk_is_not_used() -> None:
    assert memory_directory("", [a_mount("/", "ext4"), a_mount("/run", "ext4")]) is None


def test_an_agent_in_a_container_uses_only_mounted_directories() -> None:
    own = [a_mount("/", "overlay"), a_mount("/run", "tmpfs"), a_mount("/dev/shm", "tmpfs")]

    assert memory_directory("", own) is None
    assert memory_directory("", [*own, a_mount("/run/persys", "tmpfs")]) == Path("/run/persys")


def test_a_value_is_in_memory_and_its_path_is_a_link(tmp_path: Path) -> None:
    files = ContainerFiles(tmp_path / "disk", tmp_path / "memory")

    files.write(an_order())

    key, motd = files.paths(an_order()).values()
    assert key.read_bytes() == VALUE
    assert key.stat().st_mode & 0o777 == 0o400
    assert motd.read_bytes() == b"hello"
    assert in_clear(tmp_path / "disk") == []
    files.remove(WEB)
    assert in_clear(tmp_path) == []


def test_files_are_restored_after_a_reboot(tmp_path: Path) -> None:
    files = ContainerFiles(tmp_path / "disk", tmp_path / "memory")
    files.write(an_order())
    (value,) = in_clear(tmp_path / "memory")
    value.unlink()

    files.restore(an_order())

    assert next(iter(files.paths(an_order()).values())).read_bytes() == VALUE


def test_values_on_disk_from_an_earlier_agent_are_moved_to_memory(tmp_path: Path) -> None:
    ContainerFiles(tmp_path / "disk", None).write(an_order())
    files = ContainerFiles(tmp_path / "disk", tmp_path / "memory")

    files.move_to_memory([an_order(b"a newer value")])

    assert in_clear(tmp_path / "disk") == []
    assert next(iter(files.paths(an_order()).values())).read_bytes() == VALUE


def without_files() -> Order:
    spec = ContainerSpec("web")
    return Order(WEB, WorkloadType.CONTAINER, Revision("r2"), 1, Desired.RUNNING, spec)


def test_files_of_an_earlier_process_are_known_until_they_are_removed(tmp_path: Path) -> None:
    ContainerFiles(tmp_path / "disk", tmp_path / "memory").write(an_order())
    files = ContainerFiles(tmp_path / "disk", tmp_path / "memory")
    assert files.may_have(without_files())

    files.write(without_files())

    assert not files.may_have(without_files())
    assert files.may_have(an_order())
    assert in_clear(tmp_path) == []


def test_secret_values_that_remain_only_in_memory_are_known(tmp_path: Path) -> None:
    earlier = ContainerFiles(tmp_path / "disk", tmp_path / "memory")
    earlier.write(an_order())
    other = WorkloadId("other")
    shutil.rmtree(earlier.directory(WEB))
    files = ContainerFiles(tmp_path / "disk", tmp_path / "memory")

    files.write(structs.replace(without_files(), workload_id=other))

    assert files.may_have(without_files())
    assert not files.may_have(structs.replace(without_files(), workload_id=other))
