"""Calls to the Docker Engine API. The only module that imports aiodocker.

An error response is an EngineError with its HTTP status. No response is a RuntimeUnavailableError, and so is
a response that is too large or has an unexpected form: only that call fails.

An engine that is shutting down still responds on existing connections and fails every request. An error of
the engine itself therefore counts only if the engine also accepts a new connection.
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

from persys.agent.runtimes.docker.log_frames import FRAME_BYTES_MAX
from persys.errors import PersysError, RuntimeUnavailableError, SettingsError, UnavailableError
from persys.infra.aio.offload import off_loop

DEADLINE_SECONDS = 20.0
REACHABLE_DEADLINE_SECONDS = 3.0
RESPONSE_BYTES_MAX = 32 * 1024 * 1024  # a list of 10,000 containers
LINE_BYTES_MAX = 1024 * 1024  # in a stream of events
_MESSAGE_BYTES_MAX = 64 * 1024  # of an error response
_PARSED_ON_LOOP_BYTES_MAX = 256 * 1024
_PING, _VERSION = "_ping", "version"
# ValueError: the response is not JSON, so it does not come from Docker.
_NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError, ValueError)
_NOT_RESPONDING = "docker is not responding"
# Errors of the request. They are valid even if the engine is shutting down.
_OF_THE_REQUEST = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
# Docker sends every line separately. Lines that arrive within this time are sent as one chunk.
_GATHER_SECONDS = 0.003
_GATHERED_BYTES = 32 * 1024


class EngineError(Exception):
    """An error response of the engine. Callers distinguish cases by `status`."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class ResponseTooLargeError(RuntimeUnavailableError):
    """The response exceeds the limit and was not read."""

    def __init__(self, request: str, bytes_max: int) -> None:
        super().__init__(f"docker's response to {request} is larger than {bytes_max} bytes")


class Engine:
    def __init__(self, host: str) -> None:
        self._host = host
        try:
            self._docker = _opened(host)
        except ValueError as err:
            raise SettingsError(
                f"invalid DOCKER_HOST {host!r}: {err}; expected for example unix:///var/run/docker.sock"
            ) from err

    async def close(self) -> None:
        await self._docker.close()

    async def check_reachable(self) -> None:
        """Check that the engine responds on a new connection. Raises RuntimeUnavailableError."""
        fresh = _opened(self._host)
        try:
            async with asyncio.timeout(REACHABLE_DEADLINE_SECONDS), _request(fresh, "GET", _PING):
                pass
        except (EngineError, *_NO_ANSWER) as err:
            raise RuntimeUnavailableError(_NOT_RESPONDING) from err
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
        """The JSON of the response, or None if it is empty."""
        async with self._open_response(method, path, params, body, deadline) as answer:
            return await _parsed(await _content(answer, f"{method} {path}"))

    async def read(self, path: str, *, params: Mapping[str, str], bytes_max: int) -> bytes:
        """The last `bytes_max` bytes of the raw response."""
        content, size = b"", 0
        async with self._open_response("GET", path, params, None, DEADLINE_SECONDS) as answer:
            async for chunk in answer.content.iter_any():
                content = (content + chunk)[-bytes_max:]
                size += len(chunk)
                if size > RESPONSE_BYTES_MAX:
                    raise ResponseTooLargeError(f"GET {path}", RESPONSE_BYTES_MAX)
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
        """JSON lines as they arrive, until the engine closes the stream. The caller sets the deadline.

        `begins_within`: seconds in which the response must start; None if the caller bounds that.
        """
        async with self._open_stream(method, path, params, begins_within, headers) as answer:
            yield {}  # the stream is open; later events are not missed
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > LINE_BYTES_MAX:
                    raise ResponseTooLargeError(f"{method} {path}", LINE_BYTES_MAX)
                for line in lines:
                    if line.strip():
                        yield _object(line)

    async def chunks(
        self, path: str, *, params: Mapping[str, str], silence: float | None
    ) -> AsyncGenerator[bytes, None]:
        """The raw response as it arrives. A slow reader slows the sender down.

        `silence`: seconds without data after which the engine counts as not responding; None for no limit.
        """
        async with self._open_stream("GET", path, params, DEADLINE_SECONDS) as answer:
            while chunk := await _next(answer, silence):
                if len(chunk) < _GATHERED_BYTES:
                    await asyncio.sleep(_GATHER_SECONDS)
                    chunk += answer.content.read_nowait()
                yield chunk

    async def head(self, path: str, *, params: Mapping[str, str]) -> Mapping[str, str]:
        """The headers of a response without a body."""
        async with self._open_response("HEAD", path, params, None, DEADLINE_SECONDS) as answer:
            return answer.headers

    async def upload(
        self, path: str, *, params: Mapping[str, str], body: AsyncIterator[bytes]
    ) -> None:
        """PUT a tar archive as it arrives. A slow engine slows the sender down; the caller sets the deadline.

        A PersysError of `body` aborts the request and is raised.
        """
        failed: list[PersysError] = []

        async def content() -> AsyncIterator[bytes]:
            try:
                async for chunk in body:
                    yield chunk
            except PersysError as err:
                failed.append(err)
                raise

        try:
            version = await self._find_version()
            async with _request(
                self._docker,
                "PUT",
                f"{version}/{path}",
                params,
                content(),
                {"Content-Type": "application/x-tar"},
            ) as answer:
                await _content(answer, f"PUT {path}")
        except _NO_ANSWER as err:
            if failed:
                raise failed[0] from err
            raise RuntimeUnavailableError(_NOT_RESPONDING) from err

    @asynccontextmanager
    async def open_exec(self, path: str, *, tty: bool) -> AsyncIterator["Duplex"]:
        """Start a prepared exec and connect to its input and output."""

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
            raise RuntimeUnavailableError(_NOT_RESPONDING) from err
        finally:
            await stream.close()

    @asynccontextmanager
    async def _open_stream(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        begins_within: float | None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response without a time limit once it has started."""
        try:
            async with (
                asyncio.timeout(begins_within) as deadline,
                self._open_response(method, path, params, None, None, headers) as answer,
            ):
                deadline.reschedule(None)
                yield answer
        except TimeoutError as err:
            raise RuntimeUnavailableError(_NOT_RESPONDING) from err

    @asynccontextmanager
    async def _open_response(
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
                async with _request(
                    self._docker, method, f"{version}/{path}", params, data, headers
                ) as answer:
                    yield answer
        except EngineError as err:
            if err.status not in _OF_THE_REQUEST:
                await self.check_reachable()
            raise
        except _NO_ANSWER as err:
            raise RuntimeUnavailableError(_NOT_RESPONDING) from err

    async def _find_version(self) -> str:
        """The API version, fetched once and used in every call."""
        if self._docker.api_version == "auto":
            async with _request(self._docker, "GET", _VERSION) as answer:
                found = await _parsed(await _content(answer, f"GET {_VERSION}"))
            with parsing_response("its version"):
                self._docker.api_version = f"v{found['ApiVersion']}"
        return self._docker.api_version


class Duplex:
    """A connection to a process inside a container, with backpressure in both directions."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    async def read(self) -> tuple[int, bytes] | None:
        """1 for standard output or 2 for standard error, with the data; None at the end."""
        message = await self._stream.read_out()
        return None if message is None else (message.stream, message.data)

    async def write(self, data: bytes) -> None:
        with suppress(ConnectionError):  # the process has ended; read() reports it
            if self._is_open():
                await self._stream.write_in(data)

    def end_input(self) -> None:
        """Close the input of the process. Its output is still read."""
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
def parsing_response(what: str) -> Iterator[None]:
    """Guards the parsing of a response: an unexpected form raises RuntimeUnavailableError."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as err:
        raise RuntimeUnavailableError(f"unexpected response from docker about {what}") from err


def as_unavailable(err: EngineError) -> RuntimeUnavailableError:
    """For calls where any error response means that nothing is known."""
    return RuntimeUnavailableError(f"docker returned status {err.status}: {err.message}")


@asynccontextmanager
async def _request(
    docker: aiodocker.Docker,
    method: str,
    path: str,
    params: Mapping[str, str] | None = None,
    data: str | AsyncIterator[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[aiohttp.ClientResponse]:
    """Send a request. The body of the response is not read yet. Raises EngineError and _NO_ANSWER."""
    url = docker._canonicalize_url(path, versioned_api=False)
    sent = {"Content-Type": "application/json", **(headers or {})}
    async with docker.session.request(
        method, url, params=dict(params or {}), data=data, headers=sent
    ) as answer:
        try:
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise EngineError(answer.status, await _message(answer))
            yield answer
        finally:
            if not answer.content.at_eof():
                answer.close()


async def _content(answer: aiohttp.ClientResponse, request: str) -> bytes:
    content = bytearray()
    async for chunk in answer.content.iter_any():
        content += chunk
        if len(content) > RESPONSE_BYTES_MAX:
            raise ResponseTooLargeError(request, RESPONSE_BYTES_MAX)
    return bytes(content)


async def _next(answer: aiohttp.ClientResponse, silence: float | None) -> bytes:
    """The next chunk, empty at the end. Raises TimeoutError."""
    async with asyncio.timeout(silence):
        return await answer.content.readany()


async def _message(answer: aiohttp.ClientResponse) -> str:
    """The message of an error response, cut to the limit."""
    content = b""
    while len(content) < _MESSAGE_BYTES_MAX and (chunk := await answer.content.readany()):
        content += chunk
    try:
        return str(json.loads(content)["message"])
    except (ValueError, TypeError, KeyError):
        return content[:_MESSAGE_BYTES_MAX].decode("utf-8", "replace").strip()


async def _parsed(content: bytes) -> Any:
    """Decode JSON, None if empty. Raises ValueError, RuntimeUnavailableError."""
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
        raise ValueError("expected a JSON object per line")
    return found


class _BoundedParser(_ExecParser):
    """Ends the session when a frame exceeds the limit."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        ended, rest = super().feed_data(data)
        if len(self._buf) > FRAME_BYTES_MAX:
            self.queue.set_exception(aiohttp.ClientPayloadError("frame too large"))
            return True, b""
        return ended, rest


def _bound_frames(stream: Stream, *, tty: bool) -> None:
    """Limit the frame size: aiodocker buffers a frame of any size until it is complete."""
    connection = stream._resp.connection if stream._resp is not None else None
    if connection is None or connection.protocol is None or tty:
        return
    before: Any = connection.protocol._payload_parser
    bounded = _BoundedParser(stream._queue, tty=tty)
    bounded._buf = before._buf
    connection.protocol.set_parser(bounded, stream._queue)
