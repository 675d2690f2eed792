"""Errors, limits and timeouts of calls to the Docker Engine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from persys.agent.runtimes.docker import engine as docker_engine
from persys.agent.runtimes.docker.engine import (
    LINE_BYTES_MAX,
    RESPONSE_BYTES_MAX,
    Engine,
    EngineError,
    ResponseTooLargeError,
)
from persys.agent.runtimes.docker.log_frames import Frames, FrameTooLargeError
from persys.errors import RuntimeUnavailableError

PING = b"GET /_ping"
VERSION = b'{"ApiVersion": "1.41"}'


class StatusSocket:
    """A socket that returns one status for all requests except pings.

    After close it still responds on open connections, as an engine that shuts down.
    """

    def __init__(self, status: int) -> None:
        self._status = status
        self._server: asyncio.Server | None = None
        self._open: list[asyncio.StreamWriter] = []

    @asynccontextmanager
    async def at(self, path: Path) -> AsyncIterator[Engine]:
        self._server = await asyncio.start_unix_server(self._serve, path)
        engine = Engine(f"unix://{path}")
        try:
            yield engine
        finally:
            await engine.close()
            self.close()
            for writer in self._open:
                writer.close()

    def close(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                asks = head.startswith((PING, b"GET /version"))
                status, body = (200, VERSION) if asks else (self._status, b'{"message": "no"}')
                kind = b"Content-Type: application/json\r\n"
                writer.write(
                    b"HTTP/1.1 %d X\r\n%bContent-Length: %d\r\n\r\n%b"
                    % (status, kind, len(body), body)
                )
        except asyncio.IncompleteReadError:
            return


@pytest.mark.parametrize("status", [400, 403, 404, 409, 500])
async def test_an_error_of_a_running_engine_is_final(status: int, tmp_path: Path) -> None:
    async with StatusSocket(status).at(tmp_path / "socket") as engine:
        with pytest.raises(EngineError) as error:
            await engine.call("POST", "containers/web/start")

    assert error.value.status == status


@pytest.mark.parametrize("status", [403, 500, 503])
async def test_an_error_of_an_engine_that_shuts_down_is_unavailable(
    status: int, tmp_path: Path
) -> None:
    status_socket = StatusSocket(status)
    async with status_socket.at(tmp_path / "socket") as engine:
        with pytest.raises(EngineError):
            await engine.call("POST", "containers/web/start")
        status_socket.close()

        with pytest.raises(RuntimeUnavailableError):
            await engine.call("POST", "containers/web/start")


@pytest.mark.parametrize("status", [400, 404, 409])
async def test_a_request_error_counts_even_if_the_engine_shuts_down(
    status: int, tmp_path: Path
) -> None:
    status_socket = StatusSocket(status)
    async with status_socket.at(tmp_path / "socket") as engine:
        with pytest.raises(EngineError):
            await engine.call("GET", "containers/web/json")
        status_socket.close()

        with pytest.raises(EngineError):
            await engine.call("GET", "containers/web/json")


class EndlessEngine:
    """An engine that sends an endless response."""

    def __init__(self, chunk: bytes, status: int = 200) -> None:
        # Python 3.12 and later need quadratic time for many small writes.
        self._chunk = chunk * (4096 // max(1, len(chunk)) + 1)
        self._status = status
        self._connections = 0
        self._over = asyncio.Event()
        self._over.set()
        self.written = 0

    @asynccontextmanager
    async def at(self, path: Path) -> AsyncIterator[Engine]:
        server = await asyncio.start_unix_server(self._serve, path)
        engine = Engine(f"unix://{path}")
        try:
            yield engine
        finally:
            await engine.close()
            server.close()
            async with asyncio.timeout(30):
                await self._over.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        self._over.clear()
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    if head.startswith((PING, b"GET /version")):
                        length = b"Content-Length: %d\r\n\r\n" % len(VERSION)
                        writer.write(b"HTTP/1.1 200 X\r\n" + length + VERSION)
                        continue
                    await self._flood(reader, writer)
        finally:
            writer.close()
            self._connections -= 1
            if not self._connections:
                self._over.set()

    async def _flood(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %d X\r\nConnection: close\r\n\r\n" % self._status)
        while True:
            writer.write(self._chunk)
            self.written += len(self._chunk)
            await writer.drain()


class SilentEngine(EndlessEngine):
    """An engine that accepts a request and sends no response, or only the headers."""

    def __init__(self, *, begins: bool = False) -> None:
        super().__init__(b"")
        self._begins = begins

    async def _flood(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._begins:
            writer.write(b"HTTP/1.1 200 X\r\nConnection: close\r\n\r\n")
        await reader.readexactly(1)  # until the caller disconnects


async def test_an_endless_response_fails_only_its_call(tmp_path: Path) -> None:
    flood = EndlessEngine(b"x" * 65536)
    async with flood.at(tmp_path / "socket") as engine:
        with pytest.raises(ResponseTooLargeError, match="GET containers/web/json is larger than"):
            await engine.call("GET", "containers/web/json")

        await engine.check_reachable()
    assert flood.written < 2 * RESPONSE_BYTES_MAX


async def test_an_endless_log_fails_only_its_call(tmp_path: Path) -> None:
    async with EndlessEngine(b"x" * 65536).at(tmp_path / "socket") as engine:
        with pytest.raises(ResponseTooLargeError):
            await engine.read("containers/web/logs", params={}, bytes_max=1024)


async def test_an_endless_line_ends_its_stream(tmp_path: Path) -> None:
    flood = EndlessEngine(b"x" * 65536)
    async with flood.at(tmp_path / "socket") as engine:
        with pytest.raises(ResponseTooLargeError):
            async for _ in engine.stream("GET", "events", params={}):
                pass
    assert flood.written < 4 * LINE_BYTES_MAX


@pytest.mark.parametrize("path", ["events", "containers/web/logs"])
async def test_a_stream_that_does_not_start_is_unavailable(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read(engine: Engine) -> None:
        if path == "events":
            async for _ in engine.stream("GET", path, params={}, begins_within=0.2):
                pass
        async for _ in engine.chunks(path, params={}, silence=None):
            pass

    monkeypatch.setattr(docker_engine, "DEADLINE_SECONDS", 0.2)
    async with SilentEngine().at(tmp_path / "socket") as engine:
        async with asyncio.timeout(20):
            with pytest.raises(RuntimeUnavailableError):
                await read(engine)


async def test_a_log_that_stalls_is_unavailable(tmp_path: Path) -> None:
    async with SilentEngine(begins=True).at(tmp_path / "socket") as engine:
        async with asyncio.timeout(20):
            with pytest.raises(RuntimeUnavailableError):
                async for _ in engine.chunks("containers/web/logs", params={}, silence=0.2):
                    pass


async def test_an_endless_error_message_is_cut(tmp_path: Path) -> None:
    async with EndlessEngine(b"no " * 1000, status=404).at(tmp_path / "socket") as engine:
        with pytest.raises(EngineError) as error:
            await engine.call("GET", "containers/web/json")

    assert error.value.status == 404
    assert error.value.message.startswith("no no no")
    assert len(error.value.message) < 100_000


@pytest.mark.parametrize("line", [b"[]\n", b"7\n", b"{\n", b"\xff\n"])
async def test_a_line_that_is_not_an_object_is_unavailable(line: bytes, tmp_path: Path) -> None:
    async with EndlessEngine(line).at(tmp_path / "socket") as engine:
        with pytest.raises(RuntimeUnavailableError):
            async for _ in engine.stream("GET", "events", params={}):
                pass


def test_a_frame_with_a_huge_size_ends_the_session() -> None:
    with pytest.raises(FrameTooLargeError):
        Frames().feed(b"\x01\0\0\0\xff\xff\xff\xff")
