"""Preallocated files, and the disk usage of a directory."""

import ctypes
import errno
import os
from pathlib import Path

from persys.agent.volumes.tools import VolumeError
from persys.model.volume import GIB

ENTRIES_MAX = 50_000
_LIBC = ctypes.CDLL(None, use_errno=True)
_SPARSE_ONLY = (errno.EOPNOTSUPP, errno.ENOSYS)


def extend(path: Path, size_bytes: int) -> None:
    """Grow the file to this size, with all blocks reserved if the file system supports it. Never shrinks.

    Raises VolumeError if there is not enough space; the file keeps its size then.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(descriptor)
        pool = os.fstatvfs(descriptor)
        if size_bytes - found.st_blocks * 512 > pool.f_bavail * pool.f_frsize:
            raise _no_space(path, size_bytes)
        code = _allocate(descriptor, size_bytes)
        if code in _SPARSE_ONLY:
            os.truncate(descriptor, max(size_bytes, found.st_size))
        elif code:
            os.truncate(descriptor, found.st_size)
            if code != errno.ENOSPC:
                raise OSError(code, os.strerror(code), str(path))
            raise _no_space(path, size_bytes)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def used_below(directory: Path) -> int:
    """Bytes on disk; 0 if there are too many files to count."""
    used = count = 0
    for parent, _, names in os.walk(directory):
        count += len(names)
        if count > ENTRIES_MAX:
            return 0
        for name in names:
            try:
                used += (Path(parent) / name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue  # it was removed in the meantime
    return used


def _allocate(descriptor: int, size_bytes: int) -> int:
    """Not posix_fallocate, which writes zeros if the file system does not support it."""
    done = _LIBC.fallocate(descriptor, 0, ctypes.c_int64(0), ctypes.c_int64(size_bytes))
    return ctypes.get_errno() if done else 0


def _no_space(path: Path, size_bytes: int) -> VolumeError:
    text = f"not enough space for {size_bytes // GIB} GB at {path.parent}"
    return VolumeError(text, code="PoolFull")
