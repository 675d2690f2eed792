"""TCP connections to ports of workloads.

A container is dialled in its own network namespace: its loopback first, as by a process inside it, then its
addresses. Without the right to enter namespaces, or with Docker on another machine, its addresses are dialled
from here. A VM is dialled at its addresses. The caller names a workload and a port, never an address, and
addresses of the node itself are refused: this is not a proxy into the network of the node.
"""

import asyncio
import ctypes
import errno
import ipaddress
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread

from persys.agent.runtimes.docker.exec_logs import ContainerPart, is_inside
from persys.errors import InvalidError, RefusedError
from persys.infra.aio.task_group import task_group
from persys.wire.gen.agent.v1 import agent_pb2

PORT_MAX = 65_535
CHUNK_BYTES = 64 * 1024
CONNECT_SECONDS = 10.0
# After this time without data a connection is ended, earlier if one direction is closed.
IDLE_SECONDS = 3_600.0
HALF_CLOSED_SECONDS = 600.0
_LOOPBACKS = ("127.0.0.1", "::1")
_CLONE_NEWNET = 0x40000000
_ENTER_SECONDS = 10.0
_libc = ctypes.CDLL(None, use_errno=True)

Inputs = AsyncIterator[agent_pb2.ForwardInput]
Write = Callable[[agent_pb2.ForwardOutput], Awaitable[None]]


def check_port(port: int) -> None:
    if not 0 < port <= PORT_MAX:
        raise InvalidError("start.port", f"invalid port {port}: expected 1 to {PORT_MAX}")


async def dial_container(part: ContainerPart, name: str, port: int) -> socket.socket:
    """Raises RefusedError if nothing listens, or if the container has the network of the node."""
    if part.network_mode == "host":
        raise RefusedError(_shares_network(name))
    try:
        return await _first(
            [*_LOOPBACKS, *part.addresses],
            name,
            port,
            lambda family: namespace_socket(
                part.pid, family, is_expected=lambda pid: is_inside(pid, part.id)
            ),
        )
    except OwnNamespaceError as err:
        raise RefusedError(_shares_network(name)) from err
    except (_NoNamespaceError, TimeoutError) as err:
        if not part.addresses:
            raise RefusedError(
                f"cannot connect to {name}: it has no address, and the agent cannot enter its network "
                f"namespace: {err}"
            ) from err
        return await _first(part.addresses, name, port, _own_socket)


async def dial_machine(addresses: Sequence[str], name: str, port: int) -> socket.socket:
    usable = [one for one in addresses if not is_of_this_node(one)]
    if not usable:
        raise RefusedError(f"cannot connect to {name}: the VM has no known address")
    return await _first(usable, name, port, _own_socket)


def is_of_this_node(address: str) -> bool:
    """Also true for addresses that no VM can have. A guest agent may report any address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return True
    if parsed.is_loopback or parsed.is_link_local or parsed.is_multicast or parsed.is_unspecified:
        return True
    with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as err:
            return err.errno != errno.EADDRNOTAVAIL
    return True


async def relay(opened: socket.socket, inputs: Inputs, write: Write) -> None:
    """Relay until both directions are closed. The end of one keeps the other open."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    reader, writer = await asyncio.open_connection(sock=opened, limit=CHUNK_BYTES)
    idle = _Idle()
    try:
        await write(agent_pb2.ForwardOutput())
        async with idle.limit(), task_group() as group:
            feeding = group.create_task(_feed(inputs, writer, idle))
            while data := await reader.read(CHUNK_BYTES):
                await write(agent_pb2.ForwardOutput(data=data))
                idle.moved()
            await write(agent_pb2.ForwardOutput(closed=True))
            idle.half_closed()
            await asyncio.wait([feeding])
    except TimeoutError as err:
        raise RefusedError(f"the connection was idle for {idle.seconds:g} s") from err
    except OSError as err:
        raise RefusedError(f"the workload has closed the connection: {_text(err)}") from err
    finally:
        writer.transport.abort()


class _Idle:
    """The deadline of a connection without data."""

    def __init__(self) -> None:
        self.seconds = IDLE_SECONDS
        self._timeout = asyncio.timeout(IDLE_SECONDS)

    def limit(self) -> asyncio.Timeout:
        return self._timeout

    def moved(self) -> None:
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self.seconds)

    def half_closed(self) -> None:
        self.seconds = HALF_CLOSED_SECONDS
        self.moved()


async def _feed(inputs: Inputs, writer: asyncio.StreamWriter, idle: _Idle) -> None:
    """A failed write is the end of this direction; the reader gets the reason."""
    with suppress(ConnectionError):
        async for one in inputs:
            if one.data:
                writer.write(one.data)
                await writer.drain()
                idle.moved()
            if one.closed:
                break
        writer.write_eof()
        idle.half_closed()


class _NoNamespaceError(Exception):
    """The namespace of the container cannot be entered."""


async def _own_socket(family: socket.AddressFamily) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    return made


async def _first(
    addresses: Sequence[str],
    name: str,
    port: int,
    create: Callable[[socket.AddressFamily], Awaitable[socket.socket]],
) -> socket.socket:
    """The first connection that succeeds."""
    problem = ""
    for address in addresses:
        try:
            made = await create(_family(address))
        except OSError as err:
            raise _NoNamespaceError(_text(err)) from err
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(made, (address, port))
            return made
        except (OSError, TimeoutError) as err:
            made.close()
            problem = problem or _text(err)
        except BaseException:
            made.close()
            raise
    raise RefusedError(f"cannot connect to port {port} of {name}: {problem}")


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _text(err: Exception) -> str:
    if isinstance(err, TimeoutError):
        return "timeout"
    if isinstance(err, ConnectionRefusedError):
        return "connection refused"
    return (err.strerror if isinstance(err, OSError) else None) or str(err) or "connection lost"


def _shares_network(name: str) -> str:
    return f"cannot forward to {name}: it uses the network of its node; connect to the node itself"


class OwnNamespaceError(Exception):
    """The process is in the network namespace of this one."""


async def namespace_socket(
    pid: int, family: socket.AddressFamily, *, is_expected: Callable[[int], bool]
) -> socket.socket:
    """A TCP socket in the network namespace of a process. Raises OSError, OwnNamespaceError, TimeoutError.

    A socket stays in the namespace in which it was created. It is created by a thread that enters the
    namespace and then ends, so that no other work runs there. This needs CAP_SYS_ADMIN.

    `is_expected` is called with the pid after its namespace was opened: a pid may be used again.
    """
    loop = asyncio.get_running_loop()
    created: asyncio.Future[socket.socket] = loop.create_future()

    def work() -> None:
        try:
            made = _enter_and_create(pid, family, is_expected)
        except (OSError, OwnNamespaceError) as err:
            _tell(loop, partial(_fail, created, err))
        else:
            _tell(loop, partial(_deliver, created, made))

    Thread(target=work, name=f"netns-{pid}", daemon=True).start()
    async with asyncio.timeout(_ENTER_SECONDS):
        return await created


def _enter_and_create(
    pid: int, family: socket.AddressFamily, is_expected: Callable[[int], bool]
) -> socket.socket:
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not is_expected(pid):
            raise ProcessLookupError(f"process {pid} has ended")
        if os.fstat(namespace).st_ino == Path("/proc/self/ns/net").stat().st_ino:
            raise OwnNamespaceError
        if _libc.setns(namespace, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setblocking(False)
        return made
    finally:
        os.close(namespace)


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(what)


def _deliver(created: "asyncio.Future[socket.socket]", made: socket.socket) -> None:
    if created.done():  # the caller has left
        made.close()
    else:
        created.set_result(made)


def _fail(created: "asyncio.Future[socket.socket]", err: Exception) -> None:
    if not created.done():
        created.set_exception(err)
