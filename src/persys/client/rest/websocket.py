"""A WebSocket client (RFC 6455) for binary messages, without extensions.

One thread may send while another receives.
"""

import os
import socket
import struct
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha1
from http.client import HTTPConnection, HTTPResponse
from threading import Lock

from persys.errors import UnavailableError

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_SWITCHING = 101


class UpgradeRefusedError(Exception):
    def __init__(self, response: HTTPResponse) -> None:
        super().__init__(str(response.status))
        self.response = response


class WebSocket:
    """`close_code` and `close_reason` are what the other side said when it ended."""

    def __init__(
        self, connection: HTTPConnection, path: str, headers: Mapping[str, str], protocol: str
    ) -> None:
        """Raises OSError, HTTPException, and UpgradeRefusedError when there is none at this path."""
        key = b64encode(os.urandom(16))
        connection.request(
            "GET",
            path,
            headers={
                **headers,
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": key.decode(),
                "Sec-WebSocket-Protocol": protocol,
            },
        )
        self._socket: socket.socket = connection.sock
        response = HTTPResponse(self._socket, method="GET")
        response.begin()
        expected = b64encode(sha1(key + _GUID, usedforsecurity=False).digest()).decode()
        if response.status != _SWITCHING:
            raise UpgradeRefusedError(response)
        if response.headers.get("Sec-WebSocket-Accept") != expected:
            raise UnavailableError("who answers is no WebSocket")
        # What came right behind the headers is in the response's buffer, which is closed with the response.
        self._response, self._file = response, response.fp
        self._lock = Lock()
        self.left = False
        self.close_code = 0
        self.close_reason = ""

    def send(self, data: bytes) -> None:
        self._send(_BINARY, data)

    def receive(self) -> bytes | None:
        """The next message; None when the other side ends. Raises OSError, EOFError."""
        parts: list[bytes] = []
        while True:
            final, kind, data = self._frame()
            match kind:
                case 8:
                    self._ended(data)
                    return None
                case 9:
                    self._send(_PONG, data)
                case 10:
                    pass
                case _:
                    parts.append(data)
                    if sum(map(len, parts)) > MESSAGE_BYTES_MAX:
                        raise EOFError("a message is larger than can be taken")
                    if final:
                        return b"".join(parts)

    def leave(self) -> None:
        """Says that it is over; whoever receives hears the other side's answer to that."""
        self.left = True
        self._send(_CLOSE, struct.pack("!H", 1000))

    def close(self) -> None:
        """Also from another thread."""
        with suppress(OSError):
            self._send(_CLOSE, struct.pack("!H", 1000))
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _ended(self, data: bytes) -> None:
        if len(data) >= 2:
            self.close_code = int.from_bytes(data[:2], "big")
            self.close_reason = data[2:].decode(errors="replace")
        with suppress(OSError):
            self._send(_CLOSE, data[:2])

    def _frame(self) -> tuple[bool, int, bytes]:
        first, second = self._exactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self._exactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._exactly(8))
        if length > MESSAGE_BYTES_MAX or second & 0x80:
            raise EOFError("a frame is not as a server sends it")
        return bool(first & 0x80), first & 0x0F, self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = self._file.read(count) if count else b""
        if len(data) < count:
            raise EOFError("the connection is over")
        return data

    def _send(self, kind: int, data: bytes) -> None:
        head = bytes([0x80 | kind])
        if len(data) < 126:
            head += bytes([0x80 | len(data)])
        elif len(data) < 1 << 16:
            head += bytes([0x80 | 126]) + struct.pack("!H", len(data))
        else:
            head += bytes([0x80 | 127]) + struct.pack("!Q", len(data))
        mask = os.urandom(4)
        with self._lock:
            self._socket.sendall(head + mask + _masked(data, mask))


def _masked(data: bytes, mask: bytes) -> bytes:
    size = len(data)
    key = int.from_bytes((mask * (size // 4 + 1))[:size], "little")
    return (int.from_bytes(data, "little") ^ key).to_bytes(size, "little")
