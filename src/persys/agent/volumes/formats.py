"""The file systems that a volume of a size can have: how each is made, and grown while it is mounted."""

from pathlib import Path

from msgspec import Struct

from persys.agent.volumes.tools import LONG_SECONDS, Tools

_NOT_FOUND = 2  # blkid: nothing that it knows
_MENDED = 1  # e2fsck: whatever was wrong is right now


class Format(Struct, frozen=True):
    make: tuple[str, ...]  # before the device
    grow: tuple[str, ...]  # before the device or the mount
    grows_by_device: bool = False
    check: tuple[str, ...] = ()  # before growing it unmounted; none: it cannot be grown so


# None of them may discard: that would give back the blocks that the pool has reserved.
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
    """Why this node makes no such file system; "" if it does."""
    if fs_type not in FORMATS:
        return f"{fs_type!r} is not known here; expected {', '.join(FORMATS)}"
    known = FORMATS[fs_type]
    if missing := tools.missing(known.make[0], known.grow[0]):
        return f"{fs_type!r} needs {' and '.join(missing)}, not installed on this node"
    return ""


async def make(fs_type: str, device: Path, tools: Tools) -> None:
    await tools.run(*FORMATS[fs_type].make, str(device), deadline=LONG_SECONDS)


async def grow(fs_type: str, device: str, mount: Path, tools: Tools) -> None:
    """To all that the device has now, while it is mounted: nothing has to be read for that."""
    known = FORMATS[fs_type]
    target = device if known.grows_by_device else str(mount)
    await tools.run(*known.grow, target, deadline=LONG_SECONDS)


def grows_unmounted(fs_type: str) -> bool:
    return bool(FORMATS[fs_type].check)


async def grow_unmounted(fs_type: str, device: str, tools: Tools) -> None:
    known = FORMATS[fs_type]
    await tools.run(*known.check, device, deadline=LONG_SECONDS, ok=(0, _MENDED))
    await tools.run(*known.grow, device, deadline=LONG_SECONDS)


async def type_on(device: Path, tools: Tools) -> str:
    """The file system that is there; "" if the device is blank."""
    ran = await tools.run(
        "blkid", "-p", "-s", "TYPE", "-o", "value", str(device), ok=(0, _NOT_FOUND)
    )
    return ran.out.strip()
