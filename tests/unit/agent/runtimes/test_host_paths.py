"""Host paths are opened without following symbolic links, and compared with the mounts."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from persys.agent.runtimes import host_paths
from persys.agent.runtimes.host_paths import (
    HostBind,
    HostPathError,
    hold,
    open_below,
    replaced_source,
)
from persys.infra.mount_table import read_mount_table
from persys.model.status import FailureReason


@pytest.fixture(params=["openat2", "walk"])
def opened(request: pytest.FixtureRequest) -> Callable[[Path, str], int]:
    """Opens a relative path below a directory, with the system call or without it."""
    how = {"openat2": host_paths._open_beneath, "walk": host_paths._walk_beneath}[request.param]

    def open_it(root: Path, path: str) -> int:
        anchor = os.open(root, os.O_PATH)
        try:
            return how(anchor, path, os.O_PATH)
        finally:
            os.close(anchor)

    return open_it


def test_a_plain_path_is_opened(tmp_path: Path, opened: Callable[[Path, str], int]) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    found = opened(tmp_path, "a/b")
    assert os.fstat(found).st_ino == (tmp_path / "a" / "b").stat().st_ino
    os.close(found)


@pytest.mark.parametrize("path", ["link", "link/inside", "real/last"])
def test_a_symlink_anywhere_in_the_path_is_refused(
    tmp_path: Path, opened: Callable[[Path, str], int], path: str
) -> None:
    (tmp_path / "real" / "inside").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "last").symlink_to("inside")

    with pytest.raises(OSError, match="symbolic links") as refused:
        opened(tmp_path, path)

    assert refused.value.errno == errno.ELOOP


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to("/etc"), FailureReason.INVALID_SPEC),
        (lambda path: path.symlink_to(path), FailureReason.INVALID_SPEC),
        (lambda path: None, FailureReason.STORAGE_ERROR),
    ],
    ids=["link", "loop", "missing"],
)
def test_a_path_that_cannot_be_used_is_a_failure(
    tmp_path: Path, make: Callable[[Path], None], reason: FailureReason
) -> None:
    make(tmp_path / "data")

    with pytest.raises(HostPathError) as refused:
        open_below("/", str(tmp_path / "data"))

    assert refused.value.failure.reason is reason


def test_missing_directories_are_created_but_not_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside")

    os.close(open_below(str(tmp_path / "root"), str(tmp_path / "root" / "a" / "b"), create=True))
    with pytest.raises(HostPathError):
        open_below(str(tmp_path / "root"), str(tmp_path / "root" / "link" / "b"), create=True)

    assert (tmp_path / "root" / "a" / "b").is_dir()
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_source_replaced_during_the_start_is_detected(tmp_path: Path) -> None:
    """The mount table of this process replaces that of a container."""
    mount = next(entry for entry in read_mount_table() if entry.mount_point == "/proc")
    data = tmp_path / "data"
    data.mkdir()
    held = hold(HostBind(str(data), "/", mount.mount_point))
    same = hold(HostBind("/proc", "/", "/proc"))

    assert "was replaced" in replaced_source([held], os.getpid())
    assert replaced_source([same], os.getpid()) == ""
    assert replaced_source([held], 2**22 + 1) == ""
    held.close()
    same.close()
