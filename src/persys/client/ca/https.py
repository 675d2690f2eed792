"""HTTPS client of persys-ca: one connection and one deadline per request. Verifies the fixed name of the CA.

Uses http.client, because it loads fast for the command line; processes call it in a thread.
"""

import http.client
import ssl
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from persys.errors import DeniedError, PersysError, SettingsError, UnavailableError
from persys.model.identity import NAMES, Role
from persys.wire.ca.messages import refusal_from

ANSWER_BYTES_MAX = 16 * 1024 * 1024
_OK = 200
_NAME = f"{Role.CA}.{NAMES}"


class Shown(Struct, frozen=True):
    """The files of the client certificate."""

    certificate: Path
    key: Path


class Https:
    def __init__(
        self, addresses: Sequence[str], *, roots_pem: bytes, shown: Shown | None, timeout: timedelta
    ) -> None:
        """Raises SettingsError for unusable roots or an unusable client certificate."""
        self._addresses = addresses
        self._timeout = timeout
        self._context = _context(roots_pem, shown)

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Try each address until one responds. Raises UnavailableError if none does."""
        failed = UnavailableError("no CA address is configured")
        for address in self._addresses:
            try:
                return _ask(address, self._context, method, path, body, self._timeout)
            except UnavailableError as err:
                failed = err
        raise failed


def fetch_unverified(address: str, path: str, timeout: timedelta) -> bytes:
    """Without verification of the server. Only for content that is verified later; never send a secret."""
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
            raise SettingsError(f"invalid CA address {address!r}: expected host:port")
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
            f"the CA at {address} closed the connection; if this certificate has expired or was "
            "issued by another CA, join again with a token"
        ) from err
    except (OSError, http.client.HTTPException) as err:
        raise UnavailableError(f"cannot reach the CA at {address}: {err}") from err
    finally:
        connection.close()
    if len(content) > ANSWER_BYTES_MAX:
        raise UnavailableError(
            f"the response of the CA at {address} is larger than {ANSWER_BYTES_MAX} bytes"
        )
    if response.status != _OK:
        raise refusal_from(response.status, content)
    return content


def _handshake_failed(address: str, err: ssl.SSLError) -> PersysError:
    if isinstance(err, ssl.SSLCertVerificationError):
        return DeniedError(
            f"the server at {address} is not the configured CA: {err.verify_message}",
            reason="authority",
        )
    # A TLS alert of the server, for example because the client certificate has expired.
    return DeniedError(
        f"the CA at {address} refused the connection: {err.reason or err}; "
        "if this certificate has expired, join again with a token",
        reason="handshake",
    )


def _context(roots_pem: bytes, shown: Shown | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=roots_pem.decode("ascii"))
    except (ssl.SSLError, ValueError) as err:
        raise SettingsError("invalid roots: expected PEM certificates") from err
    if shown is not None:
        try:
            context.load_cert_chain(shown.certificate, shown.key)
        except (ssl.SSLError, OSError) as err:
            raise SettingsError(f"{shown.certificate}, {shown.key}: {err.strerror or err}") from err
    return context
