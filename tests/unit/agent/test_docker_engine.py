"""What an engine says counts, unless it is on its way out."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from persys.agent.runtimes.docker_engine import Engine, EngineError
from persys.errors import RuntimeUnavailableError

PING = b"GET /_ping"
VERSION = b'{"ApiVersion": "1.41"}'


class Door:
    """A socket that says one status to all requests but those that only ask whether it is there.

    Closed, it still answers on the connections that it has, as an engine does that is shutting down.
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
async def test_an_engine_that_stays_is_believed(status: int, tmp_path: Path) -> None:
    async with Door(status).at(tmp_path / "socket") as engine:
        with pytest.raises(EngineError) as said:
            await engine.call("POST", "containers/web/start")

    assert said.value.status == status


@pytest.mark.parametrize("status", [403, 500, 503])
async def test_the_failure_of_an_engine_that_leaves_says_nothing(
    status: int, tmp_path: Path
) -> None:
    door = Door(status)
    async with door.at(tmp_path / "socket") as engine:
        with pytest.raises(EngineError):
            await engine.call("POST", "containers/web/start")
        door.close()

        with pytest.raises(RuntimeUnavailableError):
            await engine.call("POST", "containers/web/start")


@pytest.mark.parametrize("status", [400, 404, 409])
async def test_what_is_wrong_with_a_request_is_so_whether_the_engine_stays_or_goes(
    status: int, tmp_path: Path
) -> None:
    door = Door(status)
    async with door.at(tmp_path / "socket") as engine:
        with pytest.raises(EngineError):
            await engine.call("GET", "containers/web/json")
        door.close()

        with pytest.raises(EngineError):
            await engine.call("GET", "containers/web/json")
