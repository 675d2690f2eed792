"""Copies files between a caller and a container, as a tar archive, through Docker's archive API.

It works for stopped containers too, and needs no program in the container. Nothing is buffered: a slow
caller slows Docker, and the reverse. An upload that is not completed is aborted.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import PurePosixPath

from persys.agent.runtimes.docker.archive import ContainerFiles
from persys.agent.runtimes.docker.exec_logs import ContainerPart
from persys.errors import InvalidError, NotFoundError, RefusedError
from persys.wire.gen.agent.v1 import agent_pb2

CHUNK_BYTES = 256 * 1024

Inputs = AsyncIterator[agent_pb2.CopyInput]
Write = Callable[[agent_pb2.CopyOutput], Awaitable[None]]


def check_path(path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise InvalidError(
            "start.path",
            f"invalid path {path!r}: expected an absolute path, for example /etc/hosts",
        )


async def download(files: ContainerFiles, part: ContainerPart, path: str, write: Write) -> None:
    found = await files.is_directory(part, path)
    if found is None:
        raise NotFoundError("path", path)
    await write(agent_pb2.CopyOutput(directory=found))
    async with aclosing(files.read(part, path)) as chunks:
        async for chunk in chunks:
            for at in range(0, len(chunk), CHUNK_BYTES):
                await write(agent_pb2.CopyOutput(data=chunk[at : at + CHUNK_BYTES]))
    await write(agent_pb2.CopyOutput(closed=True))


async def upload(
    files: ContainerFiles, part: ContainerPart, path: str, inputs: Inputs, write: Write
) -> None:
    is_directory = bool(await files.is_directory(part, path))
    if not is_directory and path.endswith("/"):
        raise RefusedError(f"{path} is not a directory in the container")
    await write(agent_pb2.CopyOutput(directory=is_directory))
    folder = path if is_directory else str(PurePosixPath(path).parent)
    await files.write(part, folder, _archive(inputs))
    await write(agent_pb2.CopyOutput(closed=True))


async def _archive(inputs: Inputs) -> AsyncIterator[bytes]:
    """Raises if the caller leaves before the end, so that the request to Docker is aborted."""
    async for one in inputs:
        if one.data:
            yield one.data
        if one.closed:
            return
    raise RefusedError("the archive is incomplete: the caller has left")
