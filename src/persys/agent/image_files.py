"""Image files on their way into the store: written and summed piece by piece, then looked at.

What would surprise: an image that refers to another file is refused. QEMU would open that file on this node
for the guest, whatever it is.
"""

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from functools import partial
from io import BufferedWriter
from pathlib import Path
from typing import Any

from msgspec import Struct

from persys.agent.commands import Ran, run
from persys.core.disk_formats import (
    HEAD_BYTES,
    QCOW2,
    RAW,
    backing_of,
    format_of,
    has_external_data,
)
from persys.errors import RefusedError, UnavailableError
from persys.infra.aio.path_calls import LONG_SECONDS, PathCalls, PathTimeoutError
from persys.model.volume import GIB

QEMU_IMG_SECONDS = 120.0
PART_SECONDS = 120.0  # for whoever sends to send more
VIRTUAL_SIZE_MAX = 64 * 1024 * GIB
FREE_BYTES_MIN = GIB // 2  # the node itself needs some room
FORMATS = (QCOW2, RAW)
_REFERS = "it refers to another file; expected one that is whole by itself"
_SECTOR = 512
_SAID_LENGTH_MAX = 300
# As qemu-img ends a check: sound, or clusters are taken that nobody uses, or it cannot check this format.
_SOUND = (0, 3, 63)


class BadImageError(RefusedError):
    """What came is no image that a machine can start from. Trying again brings the same."""


class Written(Struct, frozen=True):
    sha256: str
    size_bytes: int


class Looked(Struct, frozen=True):
    format: str
    virtual_size_bytes: int


async def write(
    path: Path,
    parts: AsyncIterator[bytes],
    paths: PathCalls,
    *,
    expected: str,
    size_bytes: int = 0,
    told: Callable[[int], None],
) -> Written:
    """To a new file, all on the disk when this returns. Raises RefusedError, and what `parts` raises.

    `size_bytes` is how much was announced, 0: not known. A source that sends more is not read to its end.
    """
    digest, size = hashlib.sha256(), 0
    try:
        file = await paths.run(path, partial(_created, path), discard=BufferedWriter.close)
        try:
            async with aclosing(_in_time(parts)) as coming:
                async for part in coming:
                    if 0 < size_bytes < size + len(part):
                        raise RefusedError(
                            f"more than the {size_bytes} bytes came that were announced"
                        )
                    await paths.run(path, partial(_append, path, file, part, digest))
                    size += len(part)
                    told(size)
            await paths.run(path, partial(_sync, file), deadline_seconds=LONG_SECONDS)
        finally:
            with suppress(PathTimeoutError):  # closing waits for a write that does not return
                await paths.run(path, file.close)
    except OSError as err:
        raise RefusedError(f"the image cannot be written: {err.strerror}") from err
    if expected and digest.hexdigest() != expected.lower():
        raise BadImageError(f"its sha256 is {digest.hexdigest()}; expected {expected.lower()}")
    return Written(digest.hexdigest(), size)


async def look(path: Path, paths: PathCalls) -> Looked:
    """What it is, if a machine can start from it. Raises RefusedError, BadImageError."""
    try:
        size = (await paths.run(path, path.stat)).st_size
        if not size:
            raise BadImageError("it is empty")
        form = await paths.run(path, partial(_format_of, path))
    except OSError as err:
        raise RefusedError(f"the image cannot be read: {err.strerror}") from err
    if form not in FORMATS:
        raise BadImageError(f"its format is {form}; expected {' or '.join(FORMATS)}")
    ran = await _qemu_img("info", "-f", form, "--output=json", str(path))
    if not ran.ok:
        raise BadImageError(f"it is broken: {_said(ran)}")
    try:
        told = json.loads(ran.out)
        looked = Looked(str(told["format"]), int(told["virtual-size"]))
        details = (told.get("format-specific") or {}).get("data") or {}
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise RefusedError("qemu-img describes it in unknown words") from err
    _check(looked, told, details)
    if looked.format == "raw" and size % _SECTOR:  # qemu-img tells a rounded size
        raise BadImageError(f"it is no disk: {size} bytes are no multiple of {_SECTOR}")
    if looked.format == "qcow2":
        checked = await _qemu_img("check", "-q", "-f", looked.format, str(path))
        if checked.code not in _SOUND:
            raise BadImageError(f"it is broken: {_said(checked)}")
    return looked


def _check(looked: Looked, told: dict[str, Any], details: dict[str, Any]) -> None:
    if told.get("backing-filename") or details.get("data-file"):
        raise BadImageError(_REFERS)
    if told.get("encrypted"):
        raise BadImageError("it is encrypted, and nobody would know the key")
    if not 0 < looked.virtual_size_bytes <= VIRTUAL_SIZE_MAX:
        problem = f"a disk of it would have {looked.virtual_size_bytes} bytes"
        raise BadImageError(f"{problem}; expected 1 to {VIRTUAL_SIZE_MAX}")


def _format_of(path: Path) -> str:
    """From its first bytes. To let a tool guess would let it open what the image names. BadImageError."""
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    form = format_of(head)
    if form == QCOW2 and (backing_of(head) is not None or has_external_data(head)):
        raise BadImageError(_REFERS)
    return form


def room_below(path: Path) -> int:
    """Bytes that an image may take there. Blocks."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize - FREE_BYTES_MIN


def _created(path: Path) -> BufferedWriter:
    return path.open("xb")


def _append(path: Path, file: BufferedWriter, part: bytes, digest: Any) -> None:
    if room_below(path.parent) < len(part):
        raise RefusedError(f"there is no room for it in {path.parent}")
    file.write(part)
    digest.update(part)


def _sync(file: BufferedWriter) -> None:
    file.flush()
    os.fsync(file.fileno())


async def _in_time(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    while True:
        try:
            async with asyncio.timeout(PART_SECONDS):
                part = await anext(parts, None)
        except OSError as err:  # a TimeoutError is one
            raise UnavailableError(f"nothing more of it comes: {err or 'no news'}") from err
        if part is None:
            return
        yield part


async def _qemu_img(verb: str, *words: str) -> Ran:
    try:
        return await run(["qemu-img", verb, *words], env=os.environ, deadline=QEMU_IMG_SECONDS)
    except TimeoutError as err:
        raise BadImageError(f"qemu-img {verb} does not end with it") from err
    except OSError as err:
        raise RefusedError(f"qemu-img cannot be run: {err.strerror}; install qemu-utils") from err


def _said(ran: Ran) -> str:
    return " ".join((ran.err or ran.out).split())[-_SAID_LENGTH_MAX:]
