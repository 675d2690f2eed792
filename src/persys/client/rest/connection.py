"""HTTP client of a gateway with a connection pool. Verifies the fixed name of the gateway role.

Uses http.client, because it loads fast for the command line.
"""

import http.client
import socket
import ssl
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from persys.client.grpc.channel import Trust
from persys.client.rest.duplex import Duplex
from persys.errors import DeniedError, PersysError, SettingsError, UnavailableError
from persys.infra.rpc.message_sizes import LIST_BYTES_MAX
from persys.model.role import NAMES, Role

# A broken or malicious server must not fill the memory of the client.
BODY_BYTES_MAX = LIST_BYTES_MAX
LINE_BYTES_MAX = 16 * 1024 * 1024
_PORTS = {"https": 8551, "http": 80}
Body = bytes | Iterable[bytes] | None


class Gateway(NamedTuple):
    """The URL of a gateway, the trusted roots, and the client's credentials."""

    url: str
    trust: Trust | None = None  # client certificate and roots
    roots: Path | None = None  # for clients with only a token; None: the system's roots
    token: str = ""
    cluster: str = ""  # empty: the default cluster of the gateway


class Door:
    """A connection pool. Safe for use by several threads."""

    def __init__(self, gateway: Gateway) -> None:
        """Raises SettingsError for an invalid URL or unusable files."""
        parts = urlsplit(gateway.url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise SettingsError(
                f"invalid gateway URL {gateway.url!r}: expected https://HOST[:PORT]"
            )
        self.gateway = gateway
        self.base = parts.path.rstrip("/")
        self._host = parts.hostname
        try:
            self._port = parts.port or _PORTS[parts.scheme]
        except ValueError as err:
            raise SettingsError(f"{gateway.url!r}: {err}") from err
        self._tls = _context(gateway) if parts.scheme == "https" else None
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
    ) -> "Answer":
        """Raises UnavailableError, and DeniedError for a failed TLS handshake.

        `again`: the request is safe to repeat. It may use an idle connection, and is repeated on a new one if
        the idle connection is broken.
        """
        with self._lock:
            connection = self._idle.pop() if self._idle and again else None
        if connection is not None:
            try:
                return self._ask(connection, method, path, body, headers, seconds)
            except UnavailableError as err:
                if not isinstance(err.__cause__, ConnectionError):
                    raise
                # The gateway closed the idle connection: use a new one.
        return self._ask(self.connect(seconds), method, path, body, headers, seconds)

    def connect(self, seconds: float | None) -> http.client.HTTPConnection:
        return _Connection(self._host, self._port, self._tls, self._expected(), seconds)

    def keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.append(connection)

    def close(self) -> None:
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()

    def _expected(self) -> str:
        trust = self.gateway.trust
        if trust is not None:
            return trust.name_of(Role.GATEWAY) or self._host
        return f"{Role.GATEWAY}.{NAMES}" if self.gateway.roots is not None else self._host

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Body,
        headers: Mapping[str, str],
        seconds: float | None,
    ) -> "Answer":
        short = body is None or isinstance(body, bytes)
        try:
            connection.timeout = seconds
            if connection.sock is not None:
                connection.sock.settimeout(seconds)
            if body is None or isinstance(body, bytes):
                connection.request(method, self.base + path, body, dict(headers))
            else:
                _begin(connection, method, self.base + path, headers)
                Thread(target=_send_parts, args=(connection.sock, body), daemon=True).start()
            sock = connection.sock  # getresponse() detaches it if the connection ends
            response = connection.getresponse()
            return Answer(self, connection, response, sock, reusable=short)
        except (OSError, http.client.HTTPException) as err:
            connection.close()
            raise self.trouble(err) from err

    def trouble(self, err: Exception) -> PersysError:
        url = self.gateway.url
        if isinstance(err, ssl.SSLCertVerificationError):
            return UnavailableError(
                f"the certificate of the server at {url} is not trusted: {err.verify_message}; "
                "check --ca and the address"
            )
        if isinstance(err, ssl.SSLError):
            if err.reason == "WRONG_VERSION_NUMBER":
                return UnavailableError(
                    f"{url} does not use TLS: if the gateway runs with -insecure, use http://"
                )
            return DeniedError(
                f"the gateway at {url} refused the connection: {err.reason or err}; check whether "
                "the client certificate has expired or was issued by another CA",
                reason="handshake",
            )
        if isinstance(err, TimeoutError):
            return UnavailableError(f"timeout while waiting for the gateway at {url}")
        return UnavailableError(f"cannot reach the gateway at {url}: {err}")


class Answer:
    """A response whose body has not been read."""

    def __init__(
        self,
        door: Door,
        connection: http.client.HTTPConnection,
        response: http.client.HTTPResponse,
        sock: socket.socket,
        *,
        reusable: bool,
    ) -> None:
        self.status = response.status
        self.headers = response.headers
        self.response = response
        self._door = door
        self._connection = connection
        self._socket = sock
        self._reusable = reusable

    def read(self) -> bytes:
        """Read the body and release the connection. Raises UnavailableError if the body is too large."""
        announced = self.response.length or 0
        try:
            content = self.response.read(BODY_BYTES_MAX + 1) if announced <= BODY_BYTES_MAX else b""
        except (OSError, http.client.HTTPException) as err:
            self.close()
            raise self._door.trouble(err) from err
        if max(announced, len(content)) > BODY_BYTES_MAX:
            self.close()
            raise UnavailableError(f"the gateway's response is larger than {BODY_BYTES_MAX} bytes")
        if self.response.will_close or not self._reusable:
            self.close()
        else:
            self._door.keep(self._connection)
        return content

    def read_line(self) -> bytes:
        """The next line of a stream, empty at its end. Raises UnavailableError for a too long line."""
        line = self.response.readline(LINE_BYTES_MAX + 1)
        if len(line) > LINE_BYTES_MAX:
            raise UnavailableError(
                f"a line of the gateway's response is longer than {LINE_BYTES_MAX} bytes"
            )
        return line

    def wait_at_most(self, seconds: float | None) -> None:
        """Set the timeout of each further read."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        """Close, possibly from another thread: a blocked reader fails."""
        _shut(self._socket)
        self._connection.close()
        self.response.close()
        self._socket.close()


class _Connection(http.client.HTTPConnection):
    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        expected: str,
        seconds: float | None,
    ) -> None:
        super().__init__(host, port, timeout=seconds)
        self._tls = tls
        self._expected = expected

    def connect(self) -> None:
        super().connect()
        if self._tls is not None:
            secure = self._tls.wrap_socket(self.sock, server_hostname=self._expected)
            self.sock = cast("socket.socket", Duplex(secure, self.timeout))


def _begin(
    connection: http.client.HTTPConnection, method: str, path: str, headers: Mapping[str, str]
) -> None:
    connection.putrequest(method, path)
    for name, value in {**headers, "Transfer-Encoding": "chunked"}.items():
        connection.putheader(name, value)
    connection.endheaders()


def _send_parts(sock: socket.socket, parts: Iterable[bytes]) -> None:
    """Runs in a thread, so that the response, such as a refusal, can be read during the upload."""
    whole = False
    with suppress(OSError):
        for part in parts:
            sock.sendall(b"%x\r\n%b\r\n" % (len(part), part))
        sock.sendall(b"0\r\n\r\n")
        whole = True
    if not whole:
        _shut(sock)  # the server must not accept a partial body


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _context(gateway: Gateway) -> ssl.SSLContext:
    context = ssl.create_default_context() if _by_machine(gateway) else _own_context(gateway)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _by_machine(gateway: Gateway) -> bool:
    return gateway.trust is None and gateway.roots is None


def _own_context(gateway: Gateway) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    roots = gateway.trust.files.roots if gateway.trust is not None else gateway.roots
    try:
        context.load_verify_locations(roots)
    except (ssl.SSLError, OSError) as err:
        raise SettingsError(f"{roots}: {err.strerror or 'expected PEM certificates'}") from err
    if gateway.trust is not None:
        files = gateway.trust.files
        try:
            context.load_cert_chain(files.certificate, files.key)
        except (ssl.SSLError, OSError) as err:
            raise SettingsError(f"{files.certificate}, {files.key}: {err.strerror or err}") from err
    return context
