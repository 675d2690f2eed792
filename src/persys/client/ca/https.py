"""HTTPS requests to persys-ca, one connection per request. The CA is verified by its fixed name."""

import ssl
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from msgspec import Struct

from persys.client.http import HttpClient, Server, client_context
from persys.errors import DeniedError, PersysError, SettingsError, UnavailableError
from persys.model.identity import NAMES, Role
from persys.wire.ca.messages import refusal_from

ANSWER_BYTES_MAX = 16 * 1024 * 1024
_OK = 200
_NAME = f"{Role.CA}.{NAMES}"


class ClientCertificate(Struct, frozen=True):
    """The files of the client certificate."""

    certificate: Path
    key: Path


class CaHttpClient:
    def __init__(
        self,
        addresses: Sequence[str],
        *,
        roots_pem: bytes,
        shown: ClientCertificate | None,
        timeout: timedelta,
    ) -> None:
        """Raises SettingsError for unusable roots or an unusable client certificate."""
        self._addresses = addresses
        self._timeout = timeout
        certificate = (shown.certificate, shown.key) if shown is not None else None
        self._context = client_context(roots_pem, certificate)

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Try each address until one responds. Raises UnavailableError if none does."""
        failed = UnavailableError("no CA address is configured")
        for address in self._addresses:
            try:
                return _request(address, self._context, method, path, body, self._timeout)
            except UnavailableError as err:
                failed = err
        raise failed


def fetch_unverified(address: str, path: str, timeout: timedelta) -> bytes:
    """Without verification of the server. Only for content that is verified later; never send a secret."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return _request(address, context, "GET", path, None, timeout)


def _request(
    address: str,
    context: ssl.SSLContext,
    method: str,
    path: str,
    body: bytes | None,
    timeout: timedelta,
) -> bytes:
    client = HttpClient(
        _server(address, context), partial(_translate, address), body_bytes_max=ANSWER_BYTES_MAX
    )
    headers = {"Content-Type": "application/json"}
    response = client.request(
        method, path, body=body, headers=headers, seconds=timeout.total_seconds()
    )
    content = response.read()
    client.close()
    if response.status != _OK:
        raise refusal_from(response.status, content)
    return content


def _server(address: str, context: ssl.SSLContext) -> Server:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise SettingsError(f"invalid CA address {address!r}: expected host:port")
    return Server(host.strip("[]"), int(port), context, _NAME)


def _translate(address: str, err: Exception) -> PersysError:
    if isinstance(err, ssl.SSLCertVerificationError):
        return DeniedError(
            f"the server at {address} is not the configured CA: {err.verify_message}",
            reason="authority",
        )
    if isinstance(err, ssl.SSLError):
        # A TLS alert of the server, for example because the client certificate has expired.
        return DeniedError(
            f"the CA at {address} refused the connection: {err.reason or err}; "
            "if this certificate has expired, join again with a token",
            reason="handshake",
        )
    if isinstance(err, ConnectionResetError):
        return UnavailableError(
            f"the CA at {address} closed the connection; if this certificate has expired or was "
            "issued by another CA, join again with a token"
        )
    return UnavailableError(f"cannot reach the CA at {address}: {err}")
