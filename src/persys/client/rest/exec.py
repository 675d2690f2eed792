"""Exec, ports and files over a gateway's WebSocket: each binary message is an input or output of the call.

A thread reads the inputs, as gRPC does. The close code is 1000, or 4000 plus the HTTP status of an error.

The websockets library runs on an event loop in a thread of its own. Callers in other threads send and
receive, but only that thread uses the TLS connection: OpenSSL does not support two threads in one connection.
This module is imported only for exec, because the library would slow down the start of persysctl.
"""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import DecodeError, Message
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from persys.client.http import Server
from persys.client.rest.errors import error_from_problem, parse_problem
from persys.errors import UnavailableError
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.routes import Route

if TYPE_CHECKING:
    from persys.client.rest.stub import RestStub

T = TypeVar("T")

PROTOCOL = "persys.exec.v1"
MESSAGE_BYTES_MAX = 8 * 1024 * 1024
ABNORMAL_CLOSE = 1006
_SECONDS = 30.0
_CLOSE_BASE = 4000


def run(
    stub: "RestStub", route: Route, inputs: Iterator[Any], kind: type[Message]
) -> Iterator[Message]:
    """`kind` is the type of the outputs."""
    first = next(inputs)
    where = type(first.start)(workload_id=first.start.workload_id)
    path = stub.socket_path(route, where)
    try:
        socket = WebSocket(stub.http.server, path, stub.headers, PROTOCOL, seconds=_SECONDS)
    except UpgradeRefusedError as refused:
        raise error_from_problem(refused.status, parse_problem(refused.body)) from refused
    except OSError as err:
        raise stub.http.translate(err) from err
    Thread(target=_send, args=(socket, first, inputs), daemon=True).start()
    try:
        yield from _outputs(socket, kind)
    finally:
        socket.close()


def _send(socket: "WebSocket", first: Any, inputs: Iterator[Any]) -> None:
    """A WebSocket has no half-close: the end of the input is a message; leaving a console closes it."""
    with suppress(OSError):
        socket.send(first.SerializeToString())
        closed = not isinstance(first, pb.ExecInput)  # others have ends of their own
        for each in inputs:
            closed = closed or each.stdin_closed
            socket.send(each.SerializeToString())
        if isinstance(first, pb.ExecInput) and first.start.console:
            socket.leave()
        elif not closed:
            socket.send(pb.ExecInput(stdin_closed=True).SerializeToString())


def _outputs(socket: "WebSocket", kind: type[Message]) -> Iterator[Message]:
    try:
        while (data := socket.receive()) is not None:
            yield kind.FromString(data)
    except (OSError, DecodeError) as err:
        if not socket.left:
            raise UnavailableError(f"the connection of the session was lost: {err}") from err
    if socket.left:
        yield pb.ExecOutput(exit=pb.ExecExit())
        return
    if socket.close_code >= _CLOSE_BASE:
        raise error_from_problem(socket.close_code - _CLOSE_BASE, {"detail": socket.close_reason})


class UpgradeRefusedError(Exception):
    """The server answered the upgrade with an HTTP response."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(str(status))
        self.status = status
        self.body = body


class WebSocket:
    """A binary WebSocket. One thread may send while another receives."""

    def __init__(
        self,
        server: Server,
        path: str,
        headers: Mapping[str, str],
        protocol: str,
        *,
        seconds: float,
    ) -> None:
        """Raises OSError if the connection fails, UpgradeRefusedError for an HTTP response."""
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._stopping = asyncio.Event()
        self._thread = Thread(target=self._work, daemon=True)
        self._thread.start()
        try:
            self._connection = self._run(_connect(server, path, headers, protocol, seconds))
        except InvalidStatus as err:
            self._stop()
            raise UpgradeRefusedError(err.response.status_code, bytes(err.response.body)) from err
        except InvalidHandshake as err:
            self._stop()
            raise ConnectionError(str(err)) from err
        except OSError:
            self._stop()
            raise
        self.left = False

    @property
    def close_code(self) -> int:
        """The close code of the server; 0 while the connection is open."""
        return self._connection.close_code or 0

    @property
    def close_reason(self) -> str:
        return self._connection.close_reason or ""

    def send(self, data: bytes) -> None:
        """Raises OSError."""
        try:
            self._run(self._connection.send(data))
        except ConnectionClosed as err:
            raise ConnectionError(str(err)) from err

    def receive(self) -> bytes | None:
        """The next message; None after the server has closed. Raises OSError for a lost connection."""
        try:
            message = self._run(self._connection.recv(decode=False))
        except ConnectionClosed as err:
            if self.close_code == ABNORMAL_CLOSE:
                raise ConnectionError(str(err)) from err
            return None
        assert isinstance(message, bytes)
        return message

    def leave(self) -> None:
        """Close this side; a waiting `receive` returns."""
        self.left = True
        self._run(self._connection.close())

    def close(self) -> None:
        with suppress(OSError):
            self._run(self._connection.close())
        self._stop()

    def _work(self) -> None:
        with self._runner:  # cancels what is still running at the end
            self._runner.run(self._stopping.wait())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop and wait. Raises ConnectionError if another thread closes the connection."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except (CancelledError, RuntimeError) as err:
            work.close()
            raise ConnectionError("the WebSocket was closed") from err

    def _stop(self) -> None:
        with suppress(RuntimeError):  # stopped already
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()


async def _connect(
    server: Server, path: str, headers: Mapping[str, str], protocol: str, seconds: float
) -> ClientConnection:
    host = f"[{server.host}]" if ":" in server.host else server.host
    return await connect(
        f"{'wss' if server.tls is not None else 'ws'}://{host}:{server.port}{path}",
        additional_headers=dict(headers),
        subprotocols=[Subprotocol(protocol)],
        compression=None,
        proxy=None,
        user_agent_header=None,
        max_size=MESSAGE_BYTES_MAX,
        open_timeout=seconds,
        ping_interval=None,  # the gateway sends pings
        close_timeout=1.0,
        ssl=server.tls,
        server_hostname=server.name if server.tls is not None else None,
    )
