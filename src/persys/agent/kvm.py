"""Whether guests really run on KVM here: a device that opens proves nothing, so a very small guest is tried.

Some virtual machines pass on a /dev/kvm on which guests hang, or take fifty times as long as emulated ones.
The guest that is tried is a boot sector of a few instructions which ends its own machine with a code that
nothing else gives. It runs emulated first: KVM that takes far longer than that is of no use. What was found
holds until the machine starts anew or has another QEMU, and is kept beside the journal.
"""

import asyncio
import json
import platform
import shutil
import tempfile
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import structlog

from persys.infra.clock import Clock
from persys.infra.files import write_whole

log = structlog.get_logger()

DEVICE = Path("/dev/kvm")
DEADLINE_SECONDS = 5.0
_PATIENCE_SECONDS = 1.5  # for KVM on a busy machine, however quick emulation was
_TIMES_EMULATED = 4
_TRIES = 2
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PORT = 0xF4
_WORD = 0x2A
_SECTOR_BYTES = 512
# mov al, WORD; mov dx, PORT; out dx, al; then sleep for ever: hlt; jmp back to it.
_CODE = bytes([0xB0, _WORD, 0xBA, _PORT, 0x00, 0xEE, 0xF4, 0xEB, 0xFD])
_ENDED_BY_GUEST = _WORD << 1 | 1  # what QEMU makes of that word


class Accel(StrEnum):
    KVM = "kvm"
    TCG = "tcg"  # emulation: everything runs, slowly


async def find_accel(wish: str, found_path: Path, clock: Clock) -> Accel:
    """`wish` is kvm, tcg or auto. `found_path` keeps what was found for the next start of the agent."""
    if wish != "auto":
        return Accel(wish)
    if not has_device():
        return Accel.TCG
    qemu = qemu_binary()
    if qemu is None:
        return Accel.KVM  # libvirt is elsewhere or knows its own QEMU: it will say so
    circumstances = _circumstances(qemu)
    if (known := _read(found_path, circumstances)) is not None:
        return known
    accel = Accel.KVM if await _is_useful(qemu, clock) else Accel.TCG
    if accel is Accel.TCG:
        log.warning(
            "kvm.useless",
            reason=f"{DEVICE} is here, but guests hang or crawl on it",
            accel=accel.value,
        )
    write_whole(found_path, json.dumps(circumstances | {"accel": accel.value}).encode())
    return accel


def has_device() -> bool:
    return DEVICE.exists()


def qemu_binary() -> str | None:
    return shutil.which(f"qemu-system-{platform.machine()}") or shutil.which("qemu-kvm")


async def _is_useful(qemu: str, clock: Clock) -> bool:
    begun_at = clock.monotonic()
    if not await runs_a_guest(qemu, Accel.TCG):
        return await runs_a_guest(qemu, Accel.KVM)  # nothing to compare with
    emulated = clock.monotonic() - begun_at
    deadline = min(DEADLINE_SECONDS, max(_PATIENCE_SECONDS, _TIMES_EMULATED * emulated))
    for _ in range(_TRIES):
        if await runs_a_guest(qemu, Accel.KVM, deadline=deadline):
            return True
    return False


async def runs_a_guest(qemu: str, accel: Accel, *, deadline: float = DEADLINE_SECONDS) -> bool:
    with tempfile.TemporaryDirectory() as directory:
        disk = Path(directory) / "boot"
        disk.write_bytes(_boot_sector())
        process = await asyncio.create_subprocess_exec(
            *_command(qemu, accel, disk),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(deadline):
                return await process.wait() == _ENDED_BY_GUEST
        except TimeoutError:
            return False
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


def _boot_sector() -> bytes:
    return _CODE.ljust(_SECTOR_BYTES - 2, b"\0") + b"\x55\xaa"


def _command(qemu: str, accel: Accel, disk: Path) -> list[str]:
    return [
        qemu,
        *("-accel", accel.value, "-machine", "pc", "-m", "16", "-smp", "1"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-drive", f"file={disk},format=raw,if=ide,readonly=off,snapshot=on"),
        *("-device", f"isa-debug-exit,iobase={_PORT:#x},iosize=0x1"),
    ]


def _circumstances(qemu: str) -> dict[str, str]:
    status = Path(qemu).resolve().stat()
    return {
        "boot_id": _BOOT_ID.read_text(encoding="ascii").strip(),
        "qemu": f"{qemu} {status.st_size} {status.st_mtime_ns}",
    }


def _read(path: Path, circumstances: dict[str, str]) -> Accel | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        accel = Accel(found.pop("accel"))
    except (OSError, ValueError, AttributeError, KeyError):
        return None
    return accel if found == circumstances else None
