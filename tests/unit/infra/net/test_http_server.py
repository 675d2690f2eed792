"""The limits of the HTTP server against slow clients, over real sockets."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web

from persys.gateway.tls import reloading_context
from persys.infra.net.http_server import HttpServer
from persys.infra.net.listener import HttpLimits
from persys.model.identity import Role
from root_ca import Root

DEADLINE_SECONDS = 30.0
HASTY = HttpLimits(
    connections_max=8,
    connections_per_address_max=8,
    handshake_seconds=0.5,
    idle_seconds=0.5,
    body_window_seconds=0.5,
    body_window_bytes_min=1024,
    unread_seconds=0.5,
    closing_seconds=1.0,
)
PATIENT = HttpLimits(connections_max=8, connections_per_address_max=8, closing_seconds=1.0)
HEADER = b"POST /read HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
GET = b"GET /short HTTP/1.1\r\nHost: a\r\n\r\n"

Sent = Callable[["Client"], Awaitable[None]]


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def is_closed(self) -> bool:
        """Whether the server closes the connection within the deadline. Received data is dropped."""
        with suppress(ConnectionError):
            async with asyncio.timeout(DEADLINE_SECONDS):
                while await self.reader.read(65536):
                    pass
        return True

    async def status(self) -> int:
        async with asyncio.timeout(DEADLINE_SECONDS):
            line = await self.reader.readline()
        return int(line.split()[1])


class RunningServer:
    def __init__(self, server: HttpServer, port: int) -> None:
        self.server = server
        self.port = port
        self.busy = asyncio.Event()
        self.release = asyncio.Event()
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client

    async def is_answered(self) -> bool:
        client = await self.connect()
        await client.send(GET)
        return await client.status() == 200

    async def until(self, connections: int) -> None:
        async with asyncio.timeout(DEADLINE_SECONDS):
            while self.server.connections != connections:  # noqa: ASYNC110 - real sockets
                await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(
    limits: HttpLimits, context: ssl.SSLContext | None = None
) -> AsyncIterator[RunningServer]:
    app = web.Application()
    server = HttpServer(app, limits=limits, context=context)
    served = RunningServer(server, 0)

    async def short(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def read(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    async def slow_reader(request: web.Request) -> web.Response:
        await served.release.wait()
        return web.Response(text=str(len(await request.read())))

    async def wait(request: web.Request) -> web.Response:
        served.busy.set()
        await served.release.wait()
        return web.Response(text="ok")

    async def large(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)

    app.router.add_get("/short", short)
    app.router.add_post("/read", read)
    app.router.add_post("/slow-reader", slow_reader)
    app.router.add_get("/wait", wait)
    app.router.add_get("/large", large)
    served.port = await server.start("127.0.0.1", 0)
    try:
        yield served
    finally:
        served.release.set()
        await server.stop()
        for client in served.clients:
            client.writer.close()
            with suppress(ConnectionError):
                await client.writer.wait_closed()


async def nothing(client: Client) -> None:
    """Connects and sends nothing."""


async def part_of_a_header(client: Client) -> None:
    await client.send(b"GET /short HTTP/1.1\r\nX-A: ")


async def a_header_byte_by_byte(client: Client) -> None:
    with suppress(ConnectionError):
        await client.send(b"GET /short HTTP/1.1\r\n")
        for _ in range(100):
            await client.send(b"X-A: b\r\n")
            await asyncio.sleep(0.05)


async def no_body(client: Client) -> None:
    await client.send(HEADER)


async def a_body_byte_by_byte(client: Client) -> None:
    with suppress(ConnectionError):
        await client.send(HEADER)
        for _ in range(100):
            await client.send(b"x" * 10)
            await asyncio.sleep(0.05)


async def stay_silent_after_response(client: Client) -> None:
    await client.send(GET)
    assert await client.status() == 200


ABUSES: dict[str, Sent] = {
    sent.__name__: sent
    for sent in (
        nothing,
        part_of_a_header,
        a_header_byte_by_byte,
        no_body,
        a_body_byte_by_byte,
        stay_silent_after_response,
    )
}


@pytest.mark.parametrize("abuse", ABUSES.values(), ids=ABUSES.keys())
async def test_a_slow_client_is_disconnected(abuse: Sent) -> None:
    async with serving(HASTY) as served:
        client = await served.connect()
        await abuse(client)

        assert await client.is_closed()
        await served.until(connections=0)
        assert await served.is_answered()


async def test_a_client_that_does_not_read_its_answer_is_disconnected() -> None:
    async with serving(HASTY) as served:
        client = await served.connect()
        await client.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")

        await served.until(connections=1)
        await served.until(connections=0)


async def test_a_body_is_not_aborted_while_our_handler_does_not_read() -> None:
    async with serving(HASTY) as served:
        client = await served.connect()
        body = b"x" * 1_000_000
        header = b"POST /slow-reader HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
        async with asyncio.TaskGroup() as group:
            sending = group.create_task(client.send(header + body))
            await asyncio.sleep(3 * HASTY.body_window_seconds)
            served.release.set()
            await sending

        assert await client.status() == 200


async def test_a_new_connection_replaces_the_oldest_idle_one() -> None:
    async with serving(PATIENT) as served:
        idle = [await served.connect() for _ in range(PATIENT.connections_max)]
        await served.until(connections=len(idle))

        assert await served.is_answered()
        assert await idle[0].is_closed()
        assert served.server.connections <= PATIENT.connections_max


async def test_a_new_connection_is_refused_while_all_serve_requests() -> None:
    async with serving(PATIENT) as served:
        busy = [await served.connect() for _ in range(PATIENT.connections_max)]
        for client in busy:
            served.busy.clear()
            await client.send(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
            async with asyncio.timeout(DEADLINE_SECONDS):
                await served.busy.wait()
        refused = await served.connect()

        assert await refused.is_closed()
        served.release.set()
        for client in busy:
            assert await client.status() == 200


async def test_one_address_cannot_use_all_connections() -> None:
    limits = HttpLimits(connections_max=8, connections_per_address_max=3, closing_seconds=1.0)
    async with serving(limits) as served:
        clients = [await served.connect() for _ in range(8)]
        for client in clients[:5]:
            assert await client.is_closed()

        assert served.server.connections == 3


@pytest.fixture
def context(tmp_path: Path) -> ssl.SSLContext:
    return reloading_context(Root(tmp_path).tls(Role.GATEWAY, "g1"))


async def test_handshakes_count_as_connections_and_end(context: ssl.SSLContext) -> None:
    async with serving(HASTY, context) as served:
        clients = [await served.connect() for _ in range(20)]
        for client in clients:
            assert await client.is_closed()

        await served.until(connections=0)


async def test_a_failed_handshake_releases_its_slot(context: ssl.SSLContext) -> None:
    async with serving(PATIENT, context) as served:
        for _ in range(2 * PATIENT.connections_max):
            client = await served.connect()
            await client.send(b"GET / HTTP/1.1\r\n\r\n")
            assert await client.is_closed()

        await served.until(connections=0)


async def test_it_stops_while_connections_are_open(context: ssl.SSLContext) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        async with serving(PATIENT, context) as served:
            client = await served.connect()
            await served.until(connections=1)

        assert await client.is_closed()


async def disconnect_during_body(client: Client) -> None:
    await client.send(HEADER + b"x" * 100)
    await asyncio.sleep(0.05)
    client.writer.transport.abort()


async def a_body_that_is_not_encoded_as_it_says(client: Client) -> None:
    head = b"POST /%b HTTP/1.1\r\nHost: a\r\nContent-Encoding: deflate\r\nContent-Length: 3\r\n\r\n"
    await client.send(head % b"read" + b"xxx")
    await client.is_closed()


async def an_unread_body_with_a_wrong_encoding(client: Client) -> None:
    head = (
        b"GET /short HTTP/1.1\r\nHost: a\r\nContent-Encoding: deflate\r\nContent-Length: 3\r\n\r\n"
    )
    await client.send(head + b"xxx")
    await client.is_closed()


@pytest.mark.parametrize(
    "sent",
    [
        disconnect_during_body,
        a_body_that_is_not_encoded_as_it_says,
        an_unread_body_with_a_wrong_encoding,
    ],
)
async def test_errors_of_clients_are_not_logged(
    sent: Sent, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(HASTY) as served:
        with caplog.at_level(logging.WARNING):
            await sent(await served.connect())
            await served.until(connections=0)
            assert await served.is_answered()

    assert caplog.records == []
