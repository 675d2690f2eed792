"""HTTPS to the authority, known by its fixed name wherever it is: one request, one connection, one deadline.

Plain sockets of the standard library: the command line starts fast with them; processes use a thread.
"""

import http.client
import ssl
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from persys.errors import DeniedError, PersysError, SettingsError, UnavailableError
from persys.model.identity import NAMES, Role
from persys.wire.authority import refusal_from

ANSWER_BYTES_MAX = 16 * 1024 * 1024
_OK = 200
_NAME = f"{Role.CA}.{NAMES}"


class Shown(Struct, frozen=True):
    """The certificate that a client shows, as files."""

    certificate: Path
    key: Path


class Https:
    def __init__(
        self, addresses: Sequence[str], *, roots_pem: bytes, shown: Shown | None, timeout: timedelta
    ) -> None:
        """Raises SettingsError for roots or a certificate that cannot be used."""
        self._addresses = addresses
        self._timeout = timeout
        self._context = _context(roots_pem, shown)

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Each address in turn, until one answers. Raises UnavailableError when none does."""
        failed = UnavailableError("no address of the authority is known")
        for address in self._addresses:
            try:
                return _ask(address, self._context, method, path, body, self._timeout)
            except UnavailableError as err:
                failed = err
        raise failed


def fetch_unverified(address: str, path: str, timeout: timedelta) -> bytes:
    """From whoever answers there. For what can be checked by itself, and never with a secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return _ask(address, context, "GET", path, None, timeout)


class _Connection(http.client.HTTPSConnection):
    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=_NAME)

    def __init__(self, address: str, context: ssl.SSLContext, timeout: timedelta) -> None:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise SettingsError(f"{address!r} is no address of an authority; expected host:port")
        super().__init__(host.strip("[]"), int(port), timeout=timeout.total_seconds())
        self._tls = context


def _ask(
    address: str,
    context: ssl.SSLContext,
    method: str,
    path: str,
    body: bytes | None,
    timeout: timedelta,
) -> bytes:
    connection = _Connection(address, context, timeout)
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        content = response.read(ANSWER_BYTES_MAX + 1)
    except ssl.SSLError as err:
        raise _handshake_failed(address, err) from err
    except ConnectionResetError as err:
        raise UnavailableError(
            f"the authority at {address} closes the connection; so it does with a certificate that "
            "has expired or is another authority's: join again with a token"
        ) from err
    except (OSError, http.client.HTTPException) as err:
        raise UnavailableError(f"the authority at {address} gives no answer: {err}") from err
    finally:
        connection.close()
    if len(content) > ANSWER_BYTES_MAX:
        raise UnavailableError(f"the authority at {address} answers more than can be taken")
    if response.status != _OK:
        raise refusal_from(response.status, content)
    return content


def _handshake_failed(address: str, err: ssl.SSLError) -> PersysError:
    if isinstance(err, ssl.SSLCertVerificationError):
        return DeniedError(
            f"who answers at {address} is not the authority that is known here: {err.verify_message}",
            reason="authority",
        )
    # An alert of the other side; it comes as soon as our certificate has expired.
    return DeniedError(
        f"the authority at {address} refused the connection: {err.reason or err}; "
        "if this certificate has expired, join again with a token",
        reason="handshake",
    )


def _context(roots_pem: bytes, shown: Shown | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=roots_pem.decode("ascii"))
    except (ssl.SSLError, ValueError) as err:
        raise SettingsError("the roots hold no certificate") from err
    if shown is not None:
        try:
            context.load_cert_chain(shown.certificate, shown.key)
        except (ssl.SSLError, OSError) as err:
            raise SettingsError(f"{shown.certificate}, {shown.key}: {err.strerror or err}") from err
    return context
