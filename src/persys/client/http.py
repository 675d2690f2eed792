"""The HTTP client for gateways and persys-ca: a connection pool on http.client.

http.client is used because it loads fast: persysctl pays for every import at each start. A server is verified
by the fixed name of its role or by its host name. The caller translates connection errors for its users.
"""

import http.client
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from persys.errors import PersysError, SettingsError, UnavailableError

LINE_BYTES_MAX = 16 * 1024 * 1024
Body = bytes | Iterable[bytes] | None
Translate = Callable[[Exception], PersysError]

# How a send fails when the server has closed the connection.
_CLOSED = (BrokenPipeError, ConnectionResetError, ssl.SSLEOFError)


class Server(NamedTuple):
    host: str
    port: int
    tls: ssl.SSLContext | None  # None: plain text
    name: str  # that its certificate must have


class HttpClient:
    """A connection pool for one server. Safe for use by several threads."""

    def __init__(self, server: Server, translate: Translate, *, body_bytes_max: int) -> None:
        """A response with more than `body_bytes_max` is refused."""
        self.server = server
        self.translate = translate
        self.body_bytes_max = body_bytes_max
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = Lock()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Body = None,
        headers: Mapping[str, str],
        seconds: float | None,
        again: bool = False,
    ) -> "Response":
        """Raises a translated error if the connection fails.

        `again`: the request is safe to repeat. It may use an idle connection, and is repeated on a new one if
        the idle connection is broken.
        """
        with self._lock:
            connection = self._idle.pop() if self._idle and again else None
        if connection is not None:
            try:
                return self._send(connection, method, path, body, headers, seconds)
            except UnavailableError as err:
                if not isinstance(err.__cause__, ConnectionError):
                    raise
                # The server closed the idle connection: use a new one.
        connection = _Connection(self.server, seconds)
        return self._send(connection, method, path, body, headers, seconds)

    def release(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.append(connection)

    def close(self) -> None:
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Body,
        headers: Mapping[str, str],
        seconds: float | None,
    ) -> "Response":
        is_short = body is None or isinstance(body, bytes)
        with ExitStack() as on_error:
            on_error.callback(connection.close)
            try:
                connection.timeout = seconds
                if connection.sock is not None:
                    connection.sock.settimeout(seconds)
                if body is None or isinstance(body, bytes):
                    connection.request(method, path, body, dict(headers))
                else:
                    _upload(connection, method, path, headers, body)
                sock = connection.sock  # getresponse() detaches it if the connection ends
                response = connection.getresponse()
            except (OSError, http.client.HTTPException) as err:
                raise self.translate(err) from err
            on_error.pop_all()
        return Response(self, connection, response, sock, reusable=is_short)


class Response:
    """A response whose body has not been read."""

    def __init__(
        self,
        client: HttpClient,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        sock: socket.socket,
        *,
        reusable: bool,
    ) -> None:
        self.status = response.status
        self.headers = response.headers
        self.response = response
        self._client = client
        self._connection = connection
        self._socket = sock
        self._reusable = reusable

    def read(self) -> bytes:
        """Read the body and release the connection. Raises UnavailableError if the body is too large."""
        bytes_max = self._client.body_bytes_max
        announced = self.response.length or 0
        try:
            content = self.response.read(bytes_max + 1) if announced <= bytes_max else b""
        except (OSError, http.client.HTTPException) as err:
            self.close()
            raise self._client.translate(err) from err
        if max(announced, len(content)) > bytes_max:
            self.close()
            raise UnavailableError(
                f"the response of {self._client.server.host} is larger than {bytes_max} bytes"
            )
        if self.response.will_close or not self._reusable:
            self.close()
        else:
            self._client.release(self._connection)
        return content

    def read_line(self) -> bytes:
        """The next line of a stream, empty at its end. Raises UnavailableError for a too long line."""
        line = self.response.readline(LINE_BYTES_MAX + 1)
        if len(line) > LINE_BYTES_MAX:
            raise UnavailableError(f"a line of the response is longer than {LINE_BYTES_MAX} bytes")
        return line

    def wait_at_most(self, seconds: float | None) -> None:
        """Set the timeout of each further read."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close, possibly from another thread: a blocked reader fails."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self.response.close()
        self._socket.close()


class _Connection(http.client.HTTPConnection):
    def __init__(self, server: Server, seconds: float | None) -> None:
        super().__init__(server.host, server.port, timeout=seconds)
        self._server = server

    def connect(self) -> None:
        super().connect()
        if self._server.tls is not None:
            self.sock = self._server.tls.wrap_socket(self.sock, server_hostname=self._server.name)


def _upload(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    headers: Mapping[str, str],
    parts: Iterable[bytes],
) -> None:
    """Send a chunked body. Stops when the server closes the connection: its refusal can still be read."""
    connection.putrequest(method, path)
    for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
        connection.putheader(name, value)
    connection.endheaders()
    for part in parts:
        try:
            connection.send(b"%x\r\n%b\r\n" % (len(part), part))
        except _CLOSED:
            return
    with suppress(*_CLOSED):
        connection.send(b"0\r\n\r\n")


def client_context(
    roots: Path | bytes | None, certificate: tuple[Path, Path] | None = None
) -> ssl.SSLContext:
    """TLS with these roots, a file or PEM (None: the system's), and a client certificate with its key.

    Raises SettingsError for unusable files.
    """
    if roots is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_roots(context, roots)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        try:
            context.load_cert_chain(*certificate)
        except (ssl.SSLError, OSError) as err:
            files = ", ".join(map(str, certificate))
            raise SettingsError(f"{files}: {err.strerror or err}") from err
    return context


def _load_roots(context: ssl.SSLContext, roots: Path | bytes) -> None:
    try:
        if isinstance(roots, bytes):
            context.load_verify_locations(cadata=roots.decode("ascii"))
        else:
            context.load_verify_locations(roots)
    except (ssl.SSLError, OSError, ValueError) as err:
        where = "roots" if isinstance(roots, bytes) else str(roots)
        reason = getattr(err, "strerror", None) or "expected PEM certificates"
        raise SettingsError(f"{where}: {reason}") from err
