"""Sources of VM images: an http or https URL, or a file on this node."""

import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import aiohttp
from msgspec import Struct

from persys.agent.runtimes.host_paths import HostBind, HostPathError, open_below
from persys.agent.workloads.node_policy import NodePolicy
from persys.errors import InvalidError, NotFoundError, RefusedError, UnavailableError
from persys.infra.aio.path_calls import PathCalls, PathTimeoutError

PART_BYTES = 1024 * 1024
CONNECT_SECONDS = 20.0
SILENCE_SECONDS = 60.0
REDIRECTS_MAX = 5
_GONE = (404, 410)


class Source(Struct):
    """The content of an image and its size; 0: unknown."""

    parts: AsyncIterator[bytes]
    size_bytes: int = 0


@asynccontextmanager
async def open_source(url: str, policy: NodePolicy, paths: PathCalls) -> AsyncIterator[Source]:
    """Open a source. Raises NotFoundError, RefusedError (permanent) or UnavailableError (temporary)."""
    parts = urlsplit(url)
    match parts.scheme:
        case "http" | "https":
            async with _from_web(url) as source:
                yield source
        case "file":
            if parts.netloc not in ("", "localhost"):
                raise InvalidError(
                    "url",
                    f"invalid URL '{url}': a file must be on this node; expected file:///path",
                )
            async with _from_file(unquote(parts.path), policy, paths) as source:
                yield source
        case _:
            raise InvalidError(
                "url",
                f"invalid URL '{url}': expected http, https or file, for example https://example.org/debian.qcow2",
            )


@asynccontextmanager
async def _from_web(url: str) -> AsyncIterator[Source]:
    timeout = aiohttp.ClientTimeout(
        total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS
    )
    # No content encoding: the checksum is that of the file itself.
    headers = {"Accept-Encoding": "identity"}
    try:
        async with (
            aiohttp.ClientSession(
                timeout=timeout, headers=headers, auto_decompress=False
            ) as session,
            session.get(url, max_redirects=REDIRECTS_MAX) as answer,
        ):
            _check(url, answer.status)
            yield Source(answer.content.iter_chunked(PART_BYTES), answer.content_length or 0)
    except (aiohttp.InvalidURL, aiohttp.TooManyRedirects) as err:
        raise RefusedError(f"invalid URL '{url}': {err or 'too many redirects'}") from err
    except (aiohttp.ClientError, TimeoutError) as err:
        raise UnavailableError(f"no response from {url}: {err or type(err).__name__}") from err


def _check(url: str, status: int) -> None:
    if status in _GONE:
        raise NotFoundError("image", f"{url} returned HTTP status {status}")
    if status >= 500 or status == 429:
        raise UnavailableError(f"{url} returned HTTP status {status}")
    if status != 200:
        raise RefusedError(f"{url} returned HTTP status {status}")


@asynccontextmanager
async def _from_file(path: str, policy: NodePolicy, paths: PathCalls) -> AsyncIterator[Source]:
    if problem := policy.problem_with(path):
        raise RefusedError(problem)
    try:
        opening = partial(_regular, policy.bind(path, ""))
        file, size = await paths.run(path, opening, discard=lambda found: found[0].close())
        try:
            yield Source(_read(path, file, paths), size)
        finally:
            with suppress(PathTimeoutError):  # closing waits for a read that does not return
                await paths.run(path, file.close)
    except HostPathError as err:
        if err.missing:
            raise NotFoundError("image", f"{path} on this node") from err
        raise
    except OSError as err:
        raise RefusedError(f"cannot read {path}: {err.strerror}") from err


def _regular(wanted: HostBind) -> tuple[BinaryIO, int]:
    """The open file and its size."""
    # O_NONBLOCK: do not wait for the writer of a named pipe.
    flags = os.O_RDONLY | os.O_NONBLOCK
    descriptor = open_below(wanted.root, wanted.source, flags=flags)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise RefusedError(f"{wanted.source} is not a regular file")
    return os.fdopen(descriptor, "rb"), found.st_size


async def _read(path: str, file: BinaryIO, paths: PathCalls) -> AsyncGenerator[bytes, None]:
    while part := await paths.run(path, partial(file.read, PART_BYTES)):
        yield part
