"""Files of a container as tar archives, through Docker's archive API."""

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from http import HTTPStatus

from persys.agent.runtimes.docker.engine import Engine, EngineError, parsing_response
from persys.agent.runtimes.docker.exec_logs import ContainerPart, refusal

_STAT = "X-Docker-Container-Path-Stat"
_DIRECTORY = 1 << 31  # in the file mode of Go
_LINK = 1 << 27
# Docker reads the files of a stopped disk, and may wait for a volume.
_SILENCE_SECONDS = 60.0


class ContainerFiles:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def is_directory(self, part: ContainerPart, path: str) -> bool | None:
        """None if there is no such path. A link counts as what it refers to."""
        found = await self._stat(part, path)
        if found is not None and found[0] & _LINK and found[1]:
            found = await self._stat(part, found[1]) or found
        return None if found is None else bool(found[0] & _DIRECTORY)

    async def _stat(self, part: ContainerPart, path: str) -> tuple[int, str] | None:
        """The mode, and the absolute target of a link."""
        try:
            headers = await self._engine.head(
                f"containers/{part.id}/archive", params={"path": path}
            )
        except EngineError as err:
            if err.status == HTTPStatus.NOT_FOUND:
                return None
            raise refusal(err) from err
        with parsing_response(path):
            stat = json.loads(base64.b64decode(headers[_STAT]))
            return int(stat["mode"]), str(stat.get("linkTarget") or "")

    async def read(self, part: ContainerPart, path: str) -> AsyncGenerator[bytes, None]:
        """The archive in chunks. Its first entry has the last part of the path as its name."""
        try:
            async with aclosing(
                self._engine.chunks(
                    f"containers/{part.id}/archive",
                    params={"path": path},
                    silence=_SILENCE_SECONDS,
                )
            ) as chunks:
                async for chunk in chunks:
                    yield chunk
        except EngineError as err:
            raise refusal(err) from err

    async def write(self, part: ContainerPart, folder: str, archive: AsyncIterator[bytes]) -> None:
        """Extract an archive in a directory of the container. Raises RefusedError."""
        params = {"path": folder, "noOverwriteDirNonDir": "true"}
        try:
            await self._engine.upload(f"containers/{part.id}/archive", params=params, body=archive)
        except EngineError as err:
            raise refusal(err) from err
