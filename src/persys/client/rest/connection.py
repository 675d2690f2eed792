"""The connection to a gateway: its URL, the credentials of the client, and the translation of errors."""

import ssl
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from persys.client.grpc.channel import HOSTNAME_MISMATCH, THIRD_PARTY_HINT, Trust
from persys.client.http import HttpClient, Server, client_context
from persys.errors import DeniedError, PersysError, SettingsError, UnavailableError
from persys.infra.rpc.message_sizes import LIST_BYTES_MAX
from persys.model.role import NAMES, Role

# A broken or malicious server must not fill the memory of the client.
BODY_BYTES_MAX = LIST_BYTES_MAX
_PORTS = {"https": 8551, "http": 80}


class Gateway(NamedTuple):
    """The URL of a gateway, the trusted roots, and the client's credentials."""

    url: str
    trust: Trust | None = None  # client certificate and roots
    roots: Path | None = None  # for clients with only a token; None: the system's roots
    token: str = ""
    cluster: str = ""  # empty: the default cluster of the gateway
    home: str = ""  # the cluster that calls; sent only in plain text, where no token identifies it

    @property
    def base_path(self) -> str:
        """The path of the URL, which all requests start with."""
        return urlsplit(self.url).path.rstrip("/")


def open_gateway(gateway: Gateway) -> HttpClient:
    """Raises SettingsError for an invalid URL or unusable files."""
    parts = urlsplit(gateway.url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise SettingsError(f"invalid gateway URL {gateway.url!r}: expected https://HOST[:PORT]")
    try:
        port = parts.port or _PORTS[parts.scheme]
    except ValueError as err:
        raise SettingsError(f"{gateway.url!r}: {err}") from err
    tls = _context(gateway) if parts.scheme == "https" else None
    server = Server(parts.hostname, port, tls, _expected_name(gateway, parts.hostname))
    return HttpClient(server, partial(_translate, gateway.url), body_bytes_max=BODY_BYTES_MAX)


def _expected_name(gateway: Gateway, host: str) -> str:
    if gateway.trust is not None:
        return gateway.trust.name_of(Role.GATEWAY) or host
    return f"{Role.GATEWAY}.{NAMES}" if gateway.roots is not None else host


def _context(gateway: Gateway) -> ssl.SSLContext:
    if gateway.trust is None:
        return client_context(gateway.roots)
    files = gateway.trust.files
    return client_context(files.roots, (files.certificate, files.key))


def _translate(url: str, err: Exception) -> PersysError:
    if isinstance(err, ssl.SSLCertVerificationError):
        text = f"the certificate of the server at {url} is not trusted: {err.verify_message}"
        if err.verify_code == HOSTNAME_MISMATCH and NAMES in err.verify_message:
            return UnavailableError(f"{text}. {THIRD_PARTY_HINT}")
        return UnavailableError(f"{text}; check --ca and the address")
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
