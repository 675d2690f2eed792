"""Writes and verifies image files before they enter the store: checksum, format, size, consistency.

An image that refers to another file (a backing file or an external data file) is refused: QEMU would open
that file on this node for the guest.
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

from persys.core.agent.storage import (
    HEAD_BYTES,
    QCOW2,
    RAW,
    backing_of,
    format_of,
    has_external_data,
)
from persys.errors import RefusedError, UnavailableError
from persys.infra.aio.path_calls import LONG_SECONDS, PathCalls, PathTimeoutError
from persys.infra.subprocesses import ProgramResult, run
from persys.model.node import GIB

QEMU_IMG_SECONDS = 120.0
PART_SECONDS = 120.0  # timeout for the next chunk
VIRTUAL_SIZE_MAX = 64 * 1024 * GIB
FREE_BYTES_MIN = GIB // 2  # reserved for the node itself
FORMATS = (QCOW2, RAW)
_REFERS = "invalid image: it refers to another file; expected a self-contained image"
_SECTOR = 512
_OUTPUT_LENGTH_MAX = 300
# Exit codes of `qemu-img check`: no errors, leaked clusters only, format does not support checks.
_SOUND = (0, 3, 63)


class BadImageError(RefusedError):
    """The file is not a valid VM image. A retry cannot succeed."""


class Written(Struct, frozen=True):
    sha256: str
    size_bytes: int


class ImageInfo(Struct, frozen=True):
    format: str
    virtual_size_bytes: int


async def write(
    path: Path,
    parts: AsyncIterator[bytes],
    paths: PathCalls,
    *,
    expected: str,
    size_bytes: int = 0,
    progress: Callable[[int], None],
) -> Written:
    """Write chunks to a new file and sync it. Raises RefusedError, and what `parts` raises.

    `size_bytes` is the announced size; 0: unknown. A source that sends more is refused.
    """
    digest, size = hashlib.sha256(), 0
    try:
        file = await paths.run(path, partial(_created, path), discard=BufferedWriter.close)
        try:
            async with aclosing(_in_time(parts)) as coming:
                async for part in coming:
                    if 0 < size_bytes < size + len(part):
                        raise RefusedError(f"received more than the announced {size_bytes} bytes")
                    await paths.run(path, partial(_append, path, file, part, digest))
                    size += len(part)
                    progress(size)
            await paths.run(path, partial(_sync, file), deadline_seconds=LONG_SECONDS)
        finally:
            with suppress(PathTimeoutError):  # closing waits for a write that does not return
                await paths.run(path, file.close)
    except OSError as err:
        raise RefusedError(f"cannot write the image: {err.strerror}") from err
    if expected and digest.hexdigest() != expected.lower():
        raise BadImageError(f"invalid sha256 {digest.hexdigest()}: expected {expected.lower()}")
    return Written(digest.hexdigest(), size)


async def inspect(path: Path, paths: PathCalls) -> ImageInfo:
    """Check an image file and return its format and virtual size. Raises RefusedError, BadImageError."""
    try:
        size = (await paths.run(path, path.stat)).st_size
        if not size:
            raise BadImageError("the image file is empty")
        form = await paths.run(path, partial(_format_of, path))
    except OSError as err:
        raise RefusedError(f"cannot read the image: {err.strerror}") from err
    if form not in FORMATS:
        raise BadImageError(f"invalid image format '{form}': expected {' or '.join(FORMATS)}")
    ran = await _qemu_img("info", "-f", form, "--output=json", str(path))
    if not ran.ok:
        raise BadImageError(f"the image is damaged: {_error_output(ran)}")
    try:
        output = json.loads(ran.out)
        info = ImageInfo(str(output["format"]), int(output["virtual-size"]))
        details = (output.get("format-specific") or {}).get("data") or {}
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise RefusedError(
            "cannot parse the output of qemu-img info; check the installed qemu-utils version"
        ) from err
    _check(info, output, details)
    if info.format == "raw" and size % _SECTOR:  # qemu-img reports a rounded size
        raise BadImageError(
            f"invalid raw image size {size}: expected a multiple of {_SECTOR} bytes"
        )
    if info.format == "qcow2":
        checked = await _qemu_img("check", "-q", "-f", info.format, str(path))
        if checked.code not in _SOUND:
            raise BadImageError(f"the image is damaged: {_error_output(checked)}")
    return info


def _check(info: ImageInfo, output: dict[str, Any], details: dict[str, Any]) -> None:
    if output.get("backing-filename") or details.get("data-file"):
        raise BadImageError(_REFERS)
    if output.get("encrypted"):
        raise BadImageError("encrypted images are not supported")
    if not 0 < info.virtual_size_bytes <= VIRTUAL_SIZE_MAX:
        problem = f"invalid virtual size {info.virtual_size_bytes}"
        raise BadImageError(f"{problem}: expected 1 to {VIRTUAL_SIZE_MAX} bytes")


def _format_of(path: Path) -> str:
    """The format, from the first bytes of the file. Raises BadImageError.

    A tool that probes the format could open files that the image refers to.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    form = format_of(head)
    if form == QCOW2 and (backing_of(head) is not None or has_external_data(head)):
        raise BadImageError(_REFERS)
    return form


def free_bytes_below(path: Path) -> int:
    """Free bytes for images in this directory. Blocks."""
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize - FREE_BYTES_MIN


def _created(path: Path) -> BufferedWriter:
    return path.open("xb")


def _append(path: Path, file: BufferedWriter, part: bytes, digest: Any) -> None:
    if free_bytes_below(path.parent) < len(part):
        raise RefusedError(f"not enough disk space for the image in {path.parent}")
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
        except OSError as err:  # includes TimeoutError
            raise UnavailableError(
                f"the source stopped sending: {err or f'no data for {PART_SECONDS:g} s'}"
            ) from err
        if part is None:
            return
        yield part


async def _qemu_img(verb: str, *words: str) -> ProgramResult:
    try:
        return await run(["qemu-img", verb, *words], env=os.environ, deadline=QEMU_IMG_SECONDS)
    except TimeoutError as err:
        raise BadImageError(
            f"qemu-img {verb} did not finish within {QEMU_IMG_SECONDS:g} s"
        ) from err
    except OSError as err:
        raise RefusedError(f"cannot run qemu-img: {err.strerror}; install qemu-utils") from err


def _error_output(ran: ProgramResult) -> str:
    return " ".join((ran.err or ran.out).split())[-_OUTPUT_LENGTH_MAX:]
