"""Atomic and durable writes of files, private by default."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

PRIVATE = 0o600
PUBLIC = 0o644
Stamp = tuple[int, int, int]


class CertificateFiles(NamedTuple):
    """The paths of a certificate, its key and the trusted roots, all in PEM."""

    certificate: Path
    key: Path
    roots: Path


def stamp(path: Path) -> Stamp:
    """A value that changes with each change of the file. A missing file has one too."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0, 0
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def write_file(path: Path, content: bytes, *, mode: int = PRIVATE) -> None:
    """Replace a file atomically. Raises OSError; the old content is unchanged then."""
    write_files([(path, content, mode)])


def write_files(files: Sequence[tuple[Path, bytes, int]]) -> None:
    """Write all files to disk before the first is renamed; only a crash between renames can separate them."""
    written: list[tuple[Path, Path]] = []
    try:
        for path, content, mode in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f".{path.name}.new")
            written.append((new, path))
            _write(new, content, mode)
        for new, path in written:
            new.replace(path)
    finally:
        for new, _ in written:
            new.unlink(missing_ok=True)
    for folder in {path.parent for path, _, _ in files}:
        _sync(folder)


def _write(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)  # left by a crash, possibly with another mode
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # independent of the umask
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
