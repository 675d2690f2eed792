"""Parses the kernel's mount table, /proc/<pid>/mountinfo."""

import re
from pathlib import Path
from typing import NamedTuple

_ESCAPED = re.compile(r"\\([0-7]{3})")


class MountEntry(NamedTuple):
    number: int
    device: str  # major:minor
    root: str  # the directory or file of the file system that is mounted
    mount_point: str
    fs_type: str
    source: str


def read_mount_table(pid: int | None = None) -> list[MountEntry]:
    """All mounts of this or another process; a later one hides an earlier one. Raises OSError."""
    path = Path("/proc", "self" if pid is None else str(pid), "mountinfo")
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    return [_entry(line) for line in text.splitlines()]


def _entry(line: str) -> MountEntry:
    head, _, tail = line.partition(" - ")
    number, _, device, root, mount_point, *_ = head.split(" ")
    fs_type, source, *_ = tail.split(" ")
    return MountEntry(
        int(number), device, _plain(root), _plain(mount_point), fs_type, _plain(source)
    )


def _plain(text: str) -> str:
    """Decode octal escapes, which the table uses for spaces and other characters."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)
