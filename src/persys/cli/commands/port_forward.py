"""`persysctl port-forward`: local ports that lead to ports of a workload.

Each local connection is a session of its own with the scheduler, so an error of one does not end the others,
and the next one reaches a container that was replaced in between.
"""

import gc
import re
import socket
import struct
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from threading import BoundedSemaphore, Event, Thread
from typing import TYPE_CHECKING

from persys.cli.commands.lookup import of_one_workload
from persys.cli.connect.clients import scheduler_client
from persys.cli.framework.exit_codes import UsageError
from persys.errors import PersysError, RefusedError
from persys.wire.gen.control.v1.control_pb2 import ForwardInput, ForwardStart

if TYPE_CHECKING:
    from persys.client import SchedulerClient

CONNECTIONS_MAX = 64  # at the same time; further ones wait until one ends
_CHUNK_BYTES = 64 * 1024
_PORT_MAX = 65_535
_PORTS = re.compile(r"(?:(\d{0,5}):)?(\d{1,5})")
_RESET = struct.pack("ii", 1, 0)  # close() sends a reset


def run(options: Namespace) -> int:
    gc.enable()
    ports = [parse_ports(text) for text in options.ports]
    with scheduler_client(options) as client, ExitStack() as opened:
        with of_one_workload(client, options.id):
            client.get_workload(options.id)
        limit, failed = BoundedSemaphore(CONNECTIONS_MAX), Event()
        listeners = [
            (opened.enter_context(_listen(options.address, local)), remote)
            for local, remote in ports
        ]
        for listener, remote in listeners:
            start = ForwardStart(workload_id=options.id, service=options.service, port=remote)
            print(f"Forwarding {_where(listener)} -> {_target(start)}", flush=True)
            Thread(
                target=_accept, args=(client, listener, start, limit, failed), daemon=True
            ).start()
        with suppress(KeyboardInterrupt):
            failed.wait()
            raise RefusedError("a local port cannot be served any longer")
    return 0


def parse_ports(text: str) -> tuple[int, int]:
    """LOCAL:REMOTE; the local port is 0 if the system is to pick one."""
    found = _PORTS.fullmatch(text)
    if found is None:
        raise UsageError(f"invalid port {text!r}: expected [LOCAL:]REMOTE, for example 8080:80")
    local, remote = int(found[1] or 0), int(found[2])
    if not 0 < remote <= _PORT_MAX or local > _PORT_MAX:
        raise UsageError(f"invalid port {text!r}: expected ports from 1 to {_PORT_MAX}")
    return local, remote


def _listen(address: str, port: int) -> socket.socket:
    try:
        family, kind, _, _, name = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(name)
            listener.listen(CONNECTIONS_MAX)
        except OSError:
            listener.close()
            raise
    except OSError as err:
        raise UsageError(f"cannot listen on {address}:{port}: {err.strerror}") from err
    return listener


def _where(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _target(start: ForwardStart) -> str:
    service = f"/{start.service}" if start.service else ""
    return f"{start.workload_id}{service}:{start.port}"


def _accept(
    client: "SchedulerClient",
    listener: socket.socket,
    start: ForwardStart,
    limit: BoundedSemaphore,
    failed: Event,
) -> None:
    try:
        while True:
            limit.acquire()
            connection, _ = listener.accept()
            Thread(target=_serve, args=(client, connection, start, limit), daemon=True).start()
    except OSError:
        failed.set()


def _serve(
    client: "SchedulerClient",
    connection: socket.socket,
    start: ForwardStart,
    limit: BoundedSemaphore,
) -> None:
    begun = Event()
    try:
        for output in client.port_forward(_inputs(connection, start, begun)):
            begun.set()
            if output.data:
                connection.sendall(output.data)
            if output.closed:
                connection.shutdown(socket.SHUT_WR)
    except PersysError as err:
        print(f"error: connection to {_target(start)}: {err}", file=sys.stderr, flush=True)
        with suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    except OSError:
        pass  # the local program has closed the connection
    finally:
        begun.set()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RD)  # the thread that reads it ends
        connection.close()
        limit.release()


def _inputs(connection: socket.socket, start: ForwardStart, begun: Event) -> Iterator[ForwardInput]:
    """What the local program sends. Another thread iterates over it."""
    yield ForwardInput(start=start)
    begun.wait()
    with suppress(OSError):
        while data := connection.recv(_CHUNK_BYTES):
            yield ForwardInput(data=data)
    yield ForwardInput(closed=True)
