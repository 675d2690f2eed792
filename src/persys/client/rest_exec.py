"""Exec over a gateway's WebSocket: each binary message is an ExecInput or ExecOutput.

A thread reads the inputs, as gRPC does. The close code is 1000, or 4000 plus the HTTP status of an error.
"""

from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPException
from threading import Thread
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from persys.client.rest_errors import error_of, problem_of
from persys.client.websocket import UpgradeRefusedError, WebSocket
from persys.errors import UnavailableError
from persys.wire.gen.control.v1 import control_pb2 as pb
from persys.wire.rest.routes import Route

if TYPE_CHECKING:
    from persys.client.rest import RestStub

PROTOCOL = "persys.exec.v1"
_SECONDS = 30.0
_CLOSE_BASE = 4000
PROBLEM_BYTES_MAX = 1024 * 1024


def run(stub: "RestStub", route: Route, inputs: Iterator[pb.ExecInput]) -> Iterator[pb.ExecOutput]:
    first = next(inputs)
    where = pb.ExecStart(workload_id=first.start.workload_id)
    connection = stub.door.connect(_SECONDS)
    try:
        path = stub.door.base + stub.url(route, where)
        socket = WebSocket(connection, path, stub.headers, PROTOCOL)
        connection.sock.settimeout(None)
    except UpgradeRefusedError as refused:
        problem = problem_of(refused.response.read(PROBLEM_BYTES_MAX))
        connection.close()
        raise error_of(refused.response.status, problem) from refused
    except (OSError, HTTPException) as err:
        connection.close()
        raise stub.door.trouble(err) from err
    Thread(target=_send, args=(socket, first, inputs), daemon=True).start()
    try:
        yield from _outputs(socket)
    finally:
        socket.close()


def _send(socket: WebSocket, first: pb.ExecInput, inputs: Iterator[pb.ExecInput]) -> None:
    """A WebSocket has no half-close: the end of the input is a message; leaving a console closes it."""
    with suppress(OSError):
        socket.send(first.SerializeToString())
        closed = False
        for each in inputs:
            closed = closed or each.stdin_closed
            socket.send(each.SerializeToString())
        if first.start.console:
            socket.leave()
        elif not closed:
            socket.send(pb.ExecInput(stdin_closed=True).SerializeToString())


def _outputs(socket: WebSocket) -> Iterator[pb.ExecOutput]:
    try:
        while (data := socket.receive()) is not None:
            yield pb.ExecOutput.FromString(data)
    except (OSError, EOFError, DecodeError) as err:
        if not socket.left:
            raise UnavailableError(f"the connection of the session was lost: {err}") from err
    if socket.left:
        yield pb.ExecOutput(exit=pb.ExecExit())
        return
    if socket.close_code >= _CLOSE_BASE:
        raise error_of(socket.close_code - _CLOSE_BASE, {"detail": socket.close_reason})
