"""The file systems of volumes with a size: commands to create and to grow each."""

from pathlib import Path

from msgspec import Struct

from persys.agent.volumes.programs import LONG_SECONDS, Tools

_NOT_FOUND = 2  # exit code of blkid: no known signature
_CORRECTED = 1  # exit code of e2fsck: errors were corrected


class Format(Struct, frozen=True):
    make: tuple[str, ...]  # before the device
    grow: tuple[str, ...]  # before the device or the mount point
    grows_by_device: bool = False
    check: tuple[str, ...] = ()  # before an unmounted resize; empty if not supported


# Without discard, which would release the blocks that the pool has reserved.
FORMATS = {
    "ext4": Format(
        ("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard"),
        ("resize2fs",),
        grows_by_device=True,
        check=("e2fsck", "-f", "-p"),
    ),
    "xfs": Format(("mkfs.xfs", "-q", "-f", "-K"), ("xfs_growfs",)),
    "btrfs": Format(("mkfs.btrfs", "-q", "-f", "-K"), ("btrfs", "filesystem", "resize", "max")),
}


def problem_with(fs_type: str, tools: Tools) -> str:
    """Why this node cannot create such a file system, or ""."""
    if fs_type not in FORMATS:
        return f"invalid file system {fs_type!r}: expected {', '.join(FORMATS)}"
    known = FORMATS[fs_type]
    if missing := tools.missing(known.make[0], known.grow[0]):
        return f"file system {fs_type!r} needs {' and '.join(missing)}: install them on this node"
    return ""


async def make(fs_type: str, device: Path, tools: Tools) -> None:
    await tools.run(*FORMATS[fs_type].make, str(device), deadline=LONG_SECONDS)


async def grow(fs_type: str, device: str, mount: Path, tools: Tools) -> None:
    """Grow a mounted file system to the size of its device."""
    known = FORMATS[fs_type]
    target = device if known.grows_by_device else str(mount)
    await tools.run(*known.grow, target, deadline=LONG_SECONDS)


def grows_unmounted(fs_type: str) -> bool:
    return bool(FORMATS[fs_type].check)


async def grow_unmounted(fs_type: str, device: str, tools: Tools) -> None:
    known = FORMATS[fs_type]
    await tools.run(*known.check, device, deadline=LONG_SECONDS, ok=(0, _CORRECTED))
    await tools.run(*known.grow, device, deadline=LONG_SECONDS)


async def type_on(device: Path, tools: Tools) -> str:
    """The file system on the device, or "" if it is blank."""
    ran = await tools.run(
        "blkid", "-p", "-s", "TYPE", "-o", "value", str(device), ok=(0, _NOT_FOUND)
    )
    return ran.out.strip()
