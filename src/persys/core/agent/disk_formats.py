"""Reads the header of a disk file: its format, and the other files that it refers to.

A qcow2 file can name a backing file and an external data file, and QEMU opens them for the guest. The header
is parsed here before any tool gets the file, because tools that probe a format may open the referenced files.
"""

from collections.abc import Iterator
from dataclasses import dataclass

HEAD_BYTES = 4096
CLUSTER_BYTES_MAX = 2 << 20  # of qcow2; a backing file is named in the first cluster
QCOW2 = "qcow2"
RAW = "raw"
_QCOW2_MAGIC = b"QFI\xfb"
_OTHERS = {
    b"KDMV": "vmdk",
    b"COWD": "vmdk",
    b"# Disk DescriptorFile": "vmdk",
    b"vhdxfile": "vhdx",
    b"conectix": "vpc",
    b"QED\0": "qed",
    b"WithoutFreeSpace": "parallels",
    b"WithouFreSpacExt": "parallels",
}
_VDI_MAGIC, _VDI_OFFSET = b"\x7f\x10\xda\xbe", 64
_NAME_LENGTH_MAX = 1023  # of a backing file, by the format's own rule
_EXTERNAL_DATA = 1 << 2  # an incompatible feature of version 3
_DATA_FILE_NAME = 0x44415441  # the extension of the header that names the file
_OLD_HEADER_BYTES = 72


@dataclass(frozen=True, slots=True)
class Backing:
    """Where in the file the name of the backing file is."""

    offset: int
    length: int


def format_of(head: bytes) -> str:
    """By the magic number; a file without one is raw."""
    if head.startswith(_QCOW2_MAGIC):
        return QCOW2
    if head[_VDI_OFFSET : _VDI_OFFSET + len(_VDI_MAGIC)] == _VDI_MAGIC:
        return "vdi"
    return next((name for magic, name in _OTHERS.items() if head.startswith(magic)), RAW)


def has_external_data(head: bytes) -> bool:
    """Whether a qcow2 file has its data in another file, or names such a file without the feature flag."""
    is_recent = _number(head, 4, 4) >= 3
    needs_it = is_recent and bool(_number(head, 72, 8) & _EXTERNAL_DATA)
    return needs_it or _DATA_FILE_NAME in _extensions(head, is_recent=is_recent)


def backing_of(head: bytes) -> Backing | None:
    """None: the qcow2 file has no backing file."""
    offset, length = _number(head, 8, 8), _number(head, 16, 4)
    return Backing(offset, min(length, _NAME_LENGTH_MAX)) if offset else None


def _extensions(head: bytes, *, is_recent: bool) -> Iterator[int]:
    """The types of the header extensions in the given bytes."""
    at = _number(head, 100, 4) if is_recent else _OLD_HEADER_BYTES
    while at + 8 <= len(head) and (kind := _number(head, at, 4)):
        yield kind
        length = _number(head, at + 4, 4)
        at += 8 + length + -length % 8


def _number(head: bytes, at: int, length: int) -> int:
    return int.from_bytes(head[at : at + length], "big")
