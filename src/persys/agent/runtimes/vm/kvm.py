"""Detects whether KVM works on this host, by running a minimal test guest.

Nested virtualization may offer a /dev/kvm on which guests hang or run far slower than with emulation. The
test guest is a boot sector of a few instructions that exits with a known code. It runs under emulation first:
if KVM takes much longer, it is not used. The result is stored next to the journal, and is valid until the
host reboots or QEMU changes.
"""

import json
import os
import platform
import shutil
import tempfile
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path

import structlog

from persys.agent.node.host import boot_id
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError
from persys.infra.atomic_files import write_file
from persys.infra.clock import Clock
from persys.infra.subprocesses import run

log = structlog.get_logger()

DEVICE = Path("/dev/kvm")
DEADLINE_SECONDS = 5.0
_KVM_SECONDS_MIN = 1.5  # the least deadline for KVM, on a busy host
_TIMES_EMULATED = 4
_TRIES = 2
_PORT = 0xF4
_WORD = 0x2A
_SECTOR_BYTES = 512
_DISK = "boot"
# mov al, WORD; mov dx, PORT; out dx, al; then halt: hlt; jmp back to it.
_CODE = bytes([0xB0, _WORD, 0xBA, _PORT, 0x00, 0xEE, 0xF4, 0xEB, 0xFD])
_ENDED_BY_GUEST = _WORD << 1 | 1  # the exit code of QEMU for that word


class Accel(StrEnum):
    KVM = "kvm"
    TCG = "tcg"  # emulation: slow, but works everywhere


async def detect_accel(configured: str, found_path: Path, clock: Clock, paths: PathCalls) -> Accel:
    """`configured` is kvm, tcg or auto. `found_path` stores the result for the next start of the agent."""
    if configured != "auto":
        return Accel(configured)
    if not has_device():
        return Accel.TCG
    qemu = qemu_binary()
    if qemu is None:
        return Accel.KVM  # libvirt is remote or has its own QEMU: it reports a problem itself
    try:
        return await _test_kvm(qemu, found_path, clock, paths)
    except (OSError, PathTimeoutError) as err:  # cannot write the disk of the guest
        log.warning("kvm.not_tried", reason=str(err), accel=Accel.TCG.value)
        return Accel.TCG


async def _test_kvm(qemu: str, found_path: Path, clock: Clock, paths: PathCalls) -> Accel:
    """Raises OSError, PathTimeoutError."""
    host_state = await paths.run(qemu, partial(_host_state, qemu))
    known = await paths.run(found_path, partial(_read, found_path, host_state))
    if known is not None:
        return known
    accel = Accel.KVM if await _is_useful(qemu, clock, paths) else Accel.TCG
    if accel is Accel.TCG:
        log.warning(
            "kvm.useless",
            reason=f"{DEVICE} exists, but the test guest hangs or is too slow",
            accel=accel.value,
        )
    found = json.dumps(host_state | {"accel": accel.value}).encode()
    with suppress(OSError, PathTimeoutError):  # tested again at the next start
        await paths.run(found_path, partial(write_file, found_path, found))
    return accel


def has_device() -> bool:
    return DEVICE.exists()


def qemu_binary() -> str | None:
    return shutil.which(f"qemu-system-{platform.machine()}") or shutil.which("qemu-kvm")


async def _is_useful(qemu: str, clock: Clock, paths: PathCalls) -> bool:
    begun_at = clock.monotonic()
    if not await runs_a_guest(qemu, Accel.TCG, paths):
        return await runs_a_guest(qemu, Accel.KVM, paths)  # no emulated run to compare with
    emulated = clock.monotonic() - begun_at
    deadline = min(DEADLINE_SECONDS, max(_KVM_SECONDS_MIN, _TIMES_EMULATED * emulated))
    for _ in range(_TRIES):
        if await runs_a_guest(qemu, Accel.KVM, paths, deadline=deadline):
            return True
    return False


async def runs_a_guest(
    qemu: str, accel: Accel, paths: PathCalls, *, deadline: float = DEADLINE_SECONDS
) -> bool:
    """Whether the test guest exits as expected. Raises OSError, PathTimeoutError."""
    temporary = tempfile.gettempdir()
    directory = await paths.run(temporary, _disk_directory, discard=_remove)
    try:
        command = _command(qemu, accel, directory / _DISK)
        return (await run(command, env=os.environ, deadline=deadline)).code == _ENDED_BY_GUEST
    except OSError:  # includes TimeoutError
        return False
    finally:
        await paths.run(temporary, partial(_remove, directory))


def _disk_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="persys-kvm-"))
    try:
        (directory / _DISK).write_bytes(_boot_sector())
    except BaseException:
        _remove(directory)
        raise
    return directory


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)


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


def _host_state(qemu: str) -> dict[str, str]:
    status = Path(qemu).resolve().stat()
    return {
        "boot_id": boot_id(),
        "qemu": f"{qemu} {status.st_size} {status.st_mtime_ns}",
    }


def _read(path: Path, host_state: dict[str, str]) -> Accel | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        accel = Accel(found.pop("accel"))
    except (OSError, ValueError, AttributeError, KeyError):
        return None
    return accel if found == host_state else None
