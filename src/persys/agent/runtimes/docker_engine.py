"""Calls to the Docker Engine. The only file that knows aiodocker.

An answer is an answer, also a no: EngineError with its HTTP status. No answer is RuntimeUnavailableError.
What would surprise: an engine that is shutting down still answers on the connections that it has, and fails
whatever it is asked to do. So a failure that is its own counts only if it takes new connections too.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any

import aiodocker
import aiohttp
from aiodocker.stream import Stream
from yarl import URL

from persys.errors import RuntimeUnavailableError, SettingsError

DEADLINE_SECONDS = 20.0
KNOCK_DEADLINE_SECONDS = 3.0
# What aiodocker says when it could not connect.
_NO_CONNECTION = 900
# A ValueError is an answer that is no JSON: whoever gave it was not Docker.
_NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
_SILENCE = "docker gives no answer"
# What is wrong with the request, or not there: that is so whether the engine stays or goes.
_OF_THE_REQUEST = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
# What comes close together travels together: Docker sends every line by itself.
_GATHER_SECONDS = 0.003
_GATHERED_BYTES = 32 * 1024


class EngineError(Exception):
    """The engine said no. Callers tell the cases apart by `status`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Engine:
    def __init__(self, host: str) -> None:
        self._host = host
        try:
            self._docker = _opened(host)
        except ValueError as err:
            raise SettingsError(f"DOCKER_HOST={host!r}: {err}") from err

    async def close(self) -> None:
        await self._docker.close()

    async def knock(self) -> None:
        """Whether the engine answers on a new connection. RuntimeUnavailableError: it does not."""
        fresh = _opened(self._host)
        try:
            async with (
                asyncio.timeout(KNOCK_DEADLINE_SECONDS),
                fresh._query("_ping", versioned_api=False) as answer,
            ):
                await answer.read()
        except (aiodocker.DockerError, *_NO_ANSWER) as err:
            raise RuntimeUnavailableError(_SILENCE) from err
        finally:
            await fresh.close()

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        deadline: float = DEADLINE_SECONDS,
    ) -> Any:
        """The JSON of the answer, None if it has none."""
        async with self._answer(method, path, params, body, deadline) as answer:
            content = await answer.read()
            return json.loads(content) if content else None

    async def read(self, path: str, *, params: Mapping[str, str], bytes_max: int) -> bytes:
        """The raw answer, its end if it is longer than `bytes_max`."""
        content = b""
        async with self._answer("GET", path, params, None, DEADLINE_SECONDS) as answer:
            async for chunk in answer.content.iter_any():
                content = (content + chunk)[-bytes_max:]
        return content

    async def stream(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """JSON lines as they come. Ends only when the engine ends it. Whoever reads sets the deadline."""
        async with self._answer(method, path, params, None, None, headers) as answer:
            yield {}  # the engine listens from here on
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.strip():
                        yield json.loads(line)

    async def chunks(self, path: str, *, params: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """The raw answer as it comes; whoever reads slowly is sent slowly. Without a deadline."""
        async with self._answer("GET", path, params, None, None) as answer:
            while chunk := await answer.content.readany():
                if len(chunk) < _GATHERED_BYTES:
                    await asyncio.sleep(_GATHER_SECONDS)
                    chunk += answer.content.read_nowait()
                yield chunk

    @asynccontextmanager
    async def converse(self, path: str, *, tty: bool) -> AsyncIterator["Duplex"]:
        """Start what was prepared, and speak with it both ways."""

        async def setup() -> tuple[URL, bytes, bool]:
            return URL(path), json.dumps({"Detach": False, "Tty": tty}).encode(), tty

        stream = Stream(self._docker, setup)
        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await stream._init()
            yield Duplex(stream)
        except aiodocker.DockerError as err:
            raise EngineError(err.status, err.message) from err
        except _NO_ANSWER as err:
            raise RuntimeUnavailableError(_SILENCE) from err
        finally:
            await stream.close()

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: object,
        deadline: float | None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        data = None if body is None else json.dumps(body)
        try:
            async with (
                asyncio.timeout(deadline),
                self._docker._query(
                    path, method, params=dict(params or {}), data=data, headers=headers
                ) as answer,
            ):
                try:
                    yield answer
                finally:
                    if not answer.content.at_eof():
                        answer.close()
        except aiodocker.DockerError as err:
            if err.status == _NO_CONNECTION:
                raise RuntimeUnavailableError(_SILENCE) from err
            if err.status not in _OF_THE_REQUEST:
                await self.knock()
            raise EngineError(err.status, err.message) from err
        except _NO_ANSWER as err:
            raise RuntimeUnavailableError(_SILENCE) from err


class Duplex:
    """A connection to a process inside a container. Both ways hold back a sender that is too quick."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def read(self) -> tuple[int, bytes] | None:
        """1 and what it wrote, or 2 for its standard error; None at its end."""
        message = await self._stream.read_out()
        return None if message is None else (message.stream, message.data)

    async def write(self, data: bytes) -> None:
        with suppress(ConnectionError):  # it has ended, as reading will tell
            if self._is_open():
                await self._stream.write_in(data)

    def end_input(self) -> None:
        """It reads the end of its input; what it writes still comes."""
        answer = self._stream._resp
        transport = answer.connection.transport if answer and answer.connection else None
        if transport is not None and transport.can_write_eof():
            transport.write_eof()

    def _is_open(self) -> bool:
        answer = self._stream._resp
        return bool(answer and answer.connection and answer.connection.transport)


def _opened(host: str) -> aiodocker.Docker:
    """Connects on first use. Raises ValueError."""
    return aiodocker.Docker(url=host, timeout=aiohttp.ClientTimeout(sock_connect=5.0))


def as_unavailable(err: EngineError) -> RuntimeUnavailableError:
    """For calls to which no answer of the engine but success says anything."""
    return RuntimeUnavailableError(f"docker says {err.status}: {err.message}")
