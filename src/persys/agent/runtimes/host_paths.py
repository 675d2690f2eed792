"""Opens host paths of a spec safely, and verifies what a container has mounted.

A path is opened with openat2 below an allowed root and without following symbolic links; on kernels without
openat2, component by component with O_NOFOLLOW. Docker takes a path, not a descriptor, so it would follow a
link that is swapped in between the check and the mount. Therefore the descriptor stays open while the
container starts, and the container's mount table is compared with it afterwards.

All functions block: call them from a thread, with a deadline.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from persys.errors import RefusedError
from persys.infra.mount_table import MountEntry, read_mount_table
from persys.model.status import Failure, FailureReason

DIRECTORY_MODE = 0o755
_SYS_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_LIBC = ctypes.CDLL(None, use_errno=True)
# ENOSYS: an old kernel; EPERM: a seccomp profile without this system call.
_NO_OPENAT2 = (errno.ENOSYS, errno.EPERM)
# The path must not be used, so a retry cannot succeed without a new spec.
_PERMANENT = (errno.ELOOP, errno.EXDEV, errno.ENAMETOOLONG, errno.EINVAL)


class HostPathError(RefusedError):
    """A host path cannot be used. `failure` has the reason."""

    def __init__(self, failure: Failure, *, missing: bool) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.missing = missing


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class Origin(NamedTuple):
    """A file or directory, identified by its device and its path inside that file system."""

    device: str
    path: str


class HostBind(NamedTuple):
    """A bind mount: the host path, the allowed root above it, and the path in the container."""

    source: str
    root: str
    target: str
    create: bool = False  # create a missing directory, as Compose does


@dataclass(frozen=True, slots=True)
class HeldBind:
    """An open bind source. The caller closes it."""

    bind: HostBind
    origin: Origin
    descriptor: int

    def close(self) -> None:
        os.close(self.descriptor)


def hold(bind: HostBind) -> HeldBind:
    """Raises HostPathError."""
    descriptor = open_below(bind.root, bind.source, create=bind.create)
    try:
        return HeldBind(bind, _origin_of(descriptor), descriptor)
    except BaseException:
        os.close(descriptor)
        raise


def open_below(root: str, path: str, *, flags: int = os.O_PATH, create: bool = False) -> int:
    """Open `path` below `root` without following symbolic links. Raises HostPathError."""
    relative = PurePosixPath(path).relative_to(root).as_posix()
    try:
        anchor = os.open(root, os.O_PATH | os.O_CLOEXEC)
    except OSError as err:
        raise _host_path_error(root, err) from err
    try:
        if relative == ".":
            return os.open(f"/proc/self/fd/{anchor}", flags | os.O_CLOEXEC)
        if create:
            _make_directories(anchor, relative)
        return _open_beneath(anchor, relative, flags | os.O_CLOEXEC)
    except OSError as err:
        raise _host_path_error(path, err) from err
    finally:
        os.close(anchor)


def replaced_source(held: Iterable[HeldBind], pid: int) -> str:
    """Describe a source that was replaced before the container mounted it; "" if none, or unknown."""
    try:
        table = {entry.mount_point: entry for entry in read_mount_table(pid)}
    except OSError:
        return ""  # the container has exited, or its processes are not visible from here
    for one in held:
        entry = table.get(os.path.normpath(one.bind.target))
        if entry is not None and Origin(entry.device, entry.root) != one.origin:
            return (
                f"{one.bind.source} was replaced while the container started: "
                f"{one.bind.target} is {entry.root}, not {one.origin.path}"
            )
    return ""


def _open_beneath(anchor: int, relative: str, flags: int) -> int:
    how = _OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
    found = _LIBC.syscall(
        _SYS_OPENAT2, anchor, os.fsencode(relative), ctypes.byref(how), ctypes.sizeof(how)
    )
    if found >= 0:
        return int(found)
    code = ctypes.get_errno()
    if code in _NO_OPENAT2:
        return _walk_beneath(anchor, relative, flags)
    raise OSError(code, os.strerror(code), relative)


def _walk_beneath(anchor: int, relative: str, flags: int) -> int:
    """The same without openat2. O_PATH opens a symbolic link itself, so each component is checked."""
    *parents, last = PurePosixPath(relative).parts
    current = os.dup(anchor)
    try:
        for name in parents:
            following = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = following
            _refuse_link(current, relative)
        found = os.open(last, flags | os.O_NOFOLLOW, dir_fd=current)
    finally:
        os.close(current)
    try:
        _refuse_link(found, relative)
    except OSError:
        os.close(found)
        raise
    return found


def _refuse_link(descriptor: int, relative: str) -> None:
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), relative)


def _make_directories(anchor: int, relative: str) -> None:
    current = os.dup(anchor)
    try:
        for name in PurePosixPath(relative).parts:
            with suppress(FileExistsError):
                os.mkdir(name, DIRECTORY_MODE, dir_fd=current)
            following = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = following
            if not stat.S_ISDIR(os.fstat(current).st_mode):
                return  # a file, valid as the last component, or a symbolic link, refused when opened
    finally:
        os.close(current)


def _origin_of(descriptor: int) -> Origin:
    path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    number = _mount_number(descriptor)
    entry = next((entry for entry in read_mount_table() if entry.number == number), None)
    if entry is None:
        raise _host_path_error(path, OSError(errno.ENOENT, "its file system is not mounted here"))
    return Origin(entry.device, _inside(entry, path))


def _mount_number(descriptor: int) -> int:
    text = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    numbers = (int(line.split()[1]) for line in text.splitlines() if line.startswith("mnt_id:"))
    return next(numbers, -1)


def _inside(entry: MountEntry, path: str) -> str:
    relative = os.path.relpath(path, entry.mount_point)
    return os.path.normpath(f"{entry.root.rstrip('/')}/{relative}")


def _host_path_error(path: str, err: OSError) -> HostPathError:
    if err.errno in (errno.ELOOP, errno.EXDEV):
        text = f"{path}: a symbolic link is not allowed here; use the real path"
    else:
        text = f"{path}: {err.strerror}"
    is_permanent = err.errno in _PERMANENT
    reason = FailureReason.INVALID_SPEC if is_permanent else FailureReason.STORAGE_ERROR
    failure = Failure(reason, text, retryable=not is_permanent, code="HostPath")
    return HostPathError(failure, missing=err.errno == errno.ENOENT)
