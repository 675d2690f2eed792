"""Calls to the Docker Engine. The only file that knows aiodocker.

An answer is an answer, also a no: EngineError with its HTTP status. No answer is RuntimeUnavailableError,
and so is one that is too large or cannot be understood: it costs that one call.
What would surprise: an engine that is shutting down still answers on the connections that it has, and fails
whatever it is asked to do. So a failure that is its own counts only if it takes new connections too.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import Any

import aiodocker
import aiohttp
from aiodocker.stream import Stream, _ExecParser
from yarl import URL

from persys.agent.runtimes.docker_frames import FRAME_BYTES_MAX
from persys.errors import RuntimeUnavailableError, SettingsError, UnavailableError
from persys.infra.aio.offload import off_loop

DEADLINE_SECONDS = 20.0
KNOCK_DEADLINE_SECONDS = 3.0
ANSWER_BYTES_MAX = 32 * 1024 * 1024  # a list of ten thousand containers
LINE_BYTES_MAX = 1024 * 1024  # of a stream of events
_MESSAGE_BYTES_MAX = 64 * 1024  # of a no
_PARSED_ON_LOOP_BYTES_MAX = 256 * 1024
_PING, _VERSION = "_ping", "version"
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


class AnswerTooLargeError(RuntimeUnavailableError):
    """The engine said more than is read, so nothing is known."""

    def __init__(self, asked: str, bytes_max: int) -> None:
        super().__init__(f"docker's answer to {asked} is larger than {bytes_max} bytes")


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
            async with asyncio.timeout(KNOCK_DEADLINE_SECONDS), _asked(fresh, "GET", _PING):
                pass
        except (EngineError, *_NO_ANSWER) as err:
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
            return await _parsed(await _content(answer, f"{method} {path}"))

    async def read(self, path: str, *, params: Mapping[str, str], bytes_max: int) -> bytes:
        """The raw answer, its end if it is longer than `bytes_max`."""
        content, size = b"", 0
        async with self._answer("GET", path, params, None, DEADLINE_SECONDS) as answer:
            async for chunk in answer.content.iter_any():
                content = (content + chunk)[-bytes_max:]
                size += len(chunk)
                if size > ANSWER_BYTES_MAX:
                    raise AnswerTooLargeError(f"GET {path}", ANSWER_BYTES_MAX)
        return content

    async def stream(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str] | None = None,
        begins_within: float | None = DEADLINE_SECONDS,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """JSON lines as they come. Ends only when the engine ends it. The reader sets the deadline.

        `begins_within`: seconds until the engine must have begun its answer; None if the reader bounds that.
        """
        async with self._begun(method, path, params, begins_within, headers) as answer:
            yield {}  # the engine listens from here on
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > LINE_BYTES_MAX:
                    raise AnswerTooLargeError(f"{method} {path}", LINE_BYTES_MAX)
                for line in lines:
                    if line.strip():
                        yield _object(line)

    async def chunks(
        self, path: str, *, params: Mapping[str, str], silence: float | None
    ) -> AsyncGenerator[bytes, None]:
        """The raw answer as it comes; a slow reader slows the sender down.

        `silence`: seconds after which an engine that sends nothing more gives no answer; None: it may.
        """
        async with self._begun("GET", path, params, DEADLINE_SECONDS) as answer:
            while chunk := await _next(answer, silence):
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
                await self._find_version()
                await stream._init()
            _bound_frames(stream, tty=tty)
            yield Duplex(stream)
        except aiodocker.DockerError as err:
            raise EngineError(err.status, err.message) from err
        except _NO_ANSWER as err:
            raise RuntimeUnavailableError(_SILENCE) from err
        finally:
            await stream.close()

    @asynccontextmanager
    async def _begun(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        begins_within: float | None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that may last for ever once it has begun."""
        try:
            async with (
                asyncio.timeout(begins_within) as deadline,
                self._answer(method, path, params, None, None, headers) as answer,
            ):
                deadline.reschedule(None)
                yield answer
        except TimeoutError as err:
            raise RuntimeUnavailableError(_SILENCE) from err

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
            async with asyncio.timeout(deadline):
                version = await self._find_version()
                async with _asked(
                    self._docker, method, f"{version}/{path}", params, data, headers
                ) as answer:
                    yield answer
        except EngineError as err:
            if err.status not in _OF_THE_REQUEST:
                await self.knock()
            raise
        except _NO_ANSWER as err:
            raise RuntimeUnavailableError(_SILENCE) from err

    async def _find_version(self) -> str:
        """Asked once: every call names it."""
        if self._docker.api_version == "auto":
            async with _asked(self._docker, "GET", _VERSION) as answer:
                told = await _parsed(await _content(answer, f"GET {_VERSION}"))
            with understood("its version"):
                self._docker.api_version = f"v{told['ApiVersion']}"
        return self._docker.api_version


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


@contextmanager
def understood(what: str) -> Iterator[None]:
    """Around the reading of an answer: one that lacks something is no answer. RuntimeUnavailableError."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as err:
        raise RuntimeUnavailableError(f"docker describes {what} in unknown words") from err


def as_unavailable(err: EngineError) -> RuntimeUnavailableError:
    """For calls to which no answer of the engine but success says anything."""
    return RuntimeUnavailableError(f"docker says {err.status}: {err.message}")


@asynccontextmanager
async def _asked(
    docker: aiodocker.Docker,
    method: str,
    path: str,
    params: Mapping[str, str] | None = None,
    data: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer, whose body is not read yet. Raises EngineError, and those of _NO_ANSWER."""
    url = docker._canonicalize_url(path, versioned_api=False)
    said = {"Content-Type": "application/json", **(headers or {})}
    async with docker.session.request(
        method, url, params=dict(params or {}), data=data, headers=said
    ) as answer:
        try:
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise EngineError(answer.status, await _message(answer))
            yield answer
        finally:
            if not answer.content.at_eof():
                answer.close()


async def _content(answer: aiohttp.ClientResponse, asked: str) -> bytes:
    content = bytearray()
    async for chunk in answer.content.iter_any():
        content += chunk
        if len(content) > ANSWER_BYTES_MAX:
            raise AnswerTooLargeError(asked, ANSWER_BYTES_MAX)
    return bytes(content)


async def _next(answer: aiohttp.ClientResponse, silence: float | None) -> bytes:
    """What comes next; empty at the end. Raises TimeoutError."""
    async with asyncio.timeout(silence):
        return await answer.content.readany()


async def _message(answer: aiohttp.ClientResponse) -> str:
    """What a no says, or the beginning of it."""
    content = b""
    while len(content) < _MESSAGE_BYTES_MAX and (chunk := await answer.content.readany()):
        content += chunk
    try:
        return str(json.loads(content)["message"])
    except (ValueError, TypeError, KeyError):
        return content[:_MESSAGE_BYTES_MAX].decode("utf-8", "replace").strip()


async def _parsed(content: bytes) -> Any:
    """None if there is nothing. Raises ValueError, RuntimeUnavailableError."""
    if not content:
        return None
    if len(content) <= _PARSED_ON_LOOP_BYTES_MAX:
        return json.loads(content)
    try:
        return await off_loop(partial(json.loads, content))
    except UnavailableError as err:
        raise RuntimeUnavailableError(str(err)) from err


def _object(line: bytes) -> dict[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError("a line that is not an object")
    return found


class _BoundedParser(_ExecParser):
    """Ends the session when a frame does not end."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        ended, rest = super().feed_data(data)
        if len(self._buf) > FRAME_BYTES_MAX:
            self.queue.set_exception(aiohttp.ClientPayloadError("a frame is too large"))
            return True, b""
        return ended, rest


def _bound_frames(stream: Stream, *, tty: bool) -> None:
    """aiodocker keeps a frame until it is whole, whatever size its header says."""
    connection = stream._resp.connection if stream._resp is not None else None
    if connection is None or connection.protocol is None or tty:
        return
    before: Any = connection.protocol._payload_parser
    bounded = _BoundedParser(stream._queue, tty=tty)
    bounded._buf = before._buf
    connection.protocol.set_parser(bounded, stream._queue)
