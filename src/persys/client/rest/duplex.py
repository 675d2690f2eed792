"""A TLS socket for one writer and one reader thread: an SSLSocket does not support this.

The socket is non-blocking; each OpenSSL call is short and under a lock, and waits happen outside of it.
Implements what http.client needs of a socket. It stays open while a file made from it is open.
"""

import io
import select
import ssl
from collections.abc import Callable
from threading import Lock
from typing import Any


class Duplex:
    def __init__(self, sock: ssl.SSLSocket, seconds: float | None) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._seconds = seconds
        self._lock = Lock()
        self._files = 0
        self._closed = False

    def settimeout(self, seconds: float | None) -> None:
        self._seconds = seconds

    def sendall(self, data: Any) -> None:
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[self._do(self._sock.send, rest) :]

    def recv_into(self, buffer: Any) -> int:
        return self._do(self._sock.recv_into, buffer)

    def makefile(self, mode: str = "rb", buffering: int = -1) -> io.BufferedReader:
        self._files += 1
        return io.BufferedReader(_Reading(self))

    def shutdown(self, how: int) -> None:
        self._sock.shutdown(how)

    def close(self) -> None:
        self._closed = True
        self._maybe_close()

    def file_closed(self) -> None:
        self._files -= 1
        self._maybe_close()

    def _maybe_close(self) -> None:
        if self._closed and self._files <= 0:
            self._sock.close()

    def _do(self, deed: Callable[..., int], data: Any) -> int:
        while True:
            with self._lock:
                try:
                    return deed(data)
                except ssl.SSLWantReadError:
                    wanted = select.POLLIN
                except ssl.SSLWantWriteError:
                    wanted = select.POLLOUT
            self._wait(wanted)

    def _wait(self, wanted: int) -> None:
        if (number := self._sock.fileno()) < 0:
            raise ConnectionAbortedError("connection closed")
        waiting = select.poll()
        waiting.register(number, wanted)
        if not waiting.poll(None if self._seconds is None else self._seconds * 1000):
            raise TimeoutError("timed out")


class _Reading(io.RawIOBase):
    def __init__(self, socket: Duplex) -> None:
        self._socket = socket

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._socket.recv_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._socket.file_closed()
