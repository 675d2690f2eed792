"""Sockets in the network namespace of another process.

A socket stays in the namespace in which it was created. It is created by a thread that enters the namespace
and then ends, so that no other work runs there. This needs CAP_SYS_ADMIN.
"""

import asyncio
import ctypes
import os
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread

_CLONE_NEWNET = 0x40000000
_DEADLINE_SECONDS = 10.0
_libc = ctypes.CDLL(None, use_errno=True)


class OwnNamespaceError(Exception):
    """The process is in the network namespace of this one."""


async def namespace_socket(
    pid: int, family: socket.AddressFamily, *, is_expected: Callable[[int], bool]
) -> socket.socket:
    """A TCP socket in the network namespace of a process. Raises OSError, OwnNamespaceError, TimeoutError.

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
    async with asyncio.timeout(_DEADLINE_SECONDS):
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
