"""What the first bytes of a disk file say: its format, and other files that it refers to. Pure.

A qcow2 file can name a backing file and an external data file, and QEMU opens whatever they name for the
guest. The head is read here, before any tool is given the file, because tools that probe a format may open
what it refers to.
"""

from dataclasses import dataclass

HEAD_BYTES = 4096
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


@dataclass(frozen=True, slots=True)
class Backing:
    """Where in the file the name of the backing file is."""

    offset: int
    length: int


def format_of(head: bytes) -> str:
    """By the magic number; what has none is raw."""
    if head.startswith(_QCOW2_MAGIC):
        return QCOW2
    if head[_VDI_OFFSET : _VDI_OFFSET + len(_VDI_MAGIC)] == _VDI_MAGIC:
        return "vdi"
    return next((name for magic, name in _OTHERS.items() if head.startswith(magic)), RAW)


def has_external_data(head: bytes) -> bool:
    """Whether a qcow2 file keeps its data in another file."""
    is_recent = int.from_bytes(head[4:8], "big") >= 3
    return is_recent and bool(int.from_bytes(head[72:80], "big") & _EXTERNAL_DATA)


def backing_of(head: bytes) -> Backing | None:
    """None: the qcow2 file is whole by itself."""
    offset = int.from_bytes(head[8:16], "big")
    length = int.from_bytes(head[16:20], "big")
    return Backing(offset, min(length, _NAME_LENGTH_MAX)) if offset else None
