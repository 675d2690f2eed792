"""HTTP requests to Vault, and the mapping of its responses to errors.

Redirects are not followed: the token would be sent to another address. A standby Vault forwards requests
itself.
"""

import ssl
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from persys.errors import (
    DeniedError,
    NotFoundError,
    PersysError,
    RefusedError,
    SettingsError,
    UnavailableError,
)

TIMEOUT = timedelta(seconds=10)
RESPONSE_BYTES_MAX = 4 * 1024 * 1024
_OK = (200, 204)
_SEALED = 503


class VaultHttp:
    def __init__(
        self,
        address: str,
        *,
        ca_path: Path | None = None,
        namespace: str = "",
        timeout: timedelta = TIMEOUT,
    ) -> None:
        """`ca_path` has the CA certificates for https; without it the system's are used.

        Raises SettingsError for an invalid address or CA file.
        """
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingsError(
                f"PERSYS_VAULT_ADDR={address!r}: expected https://host:port or http://host:port"
            )
        self.address = address.rstrip("/")
        self.is_plain = parts.scheme == "http"
        self._namespace = namespace
        self._timeout = timeout
        self._tls = True if self.is_plain or ca_path is None else _context(ca_path)

    async def request(
        self,
        method: str,
        path: str,
        *,
        token: str = "",
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        """The JSON response. `path` follows /v1/. Raises the errors of `fetch`."""
        content = await self.fetch(method, path, token=token, body=body, params=params)
        return _decoded(content, self.address) if content else {}

    async def fetch(
        self,
        method: str,
        path: str,
        *,
        token: str = "",
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> bytes:
        """The response body. Raises NotFoundError, DeniedError, RefusedError or UnavailableError."""
        import aiohttp  # a slow import, needed only with Vault

        headers = {"X-Vault-Request": "true"}
        if token:
            headers["X-Vault-Token"] = token
        if self._namespace:
            headers["X-Vault-Namespace"] = self._namespace
        timeout = aiohttp.ClientTimeout(total=self._timeout.total_seconds())
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(
                    method,
                    f"{self.address}/v1/{quote(path)}",
                    json=body,
                    params=params,
                    headers=headers,
                    allow_redirects=False,
                    ssl=self._tls,
                ) as response,
            ):
                content = await response.content.read(RESPONSE_BYTES_MAX + 1)
                while not response.content.at_eof() and len(content) <= RESPONSE_BYTES_MAX:
                    content += await response.content.read(RESPONSE_BYTES_MAX + 1)
                status = response.status
        except TimeoutError as err:
            raise UnavailableError(f"Vault at {self.address} did not respond in time") from err
        except aiohttp.ClientConnectorCertificateError as err:
            raise UnavailableError(
                f"the certificate of Vault at {self.address} is not trusted: {err.certificate_error};"
                " set PERSYS_VAULT_CA_PATH to a file with its CA certificates"
            ) from err
        except (aiohttp.ClientError, OSError) as err:
            raise UnavailableError(f"cannot reach Vault at {self.address}: {err}") from err
        if len(content) > RESPONSE_BYTES_MAX:
            raise UnavailableError(
                f"the response of Vault at {self.address} exceeds {RESPONSE_BYTES_MAX >> 20} MiB"
            )
        if status not in _OK:
            raise _refusal(status, content, path=path, address=self.address)
        return content


def _refusal(status: int, content: bytes, *, path: str, address: str) -> PersysError:
    detail = _detail(content)
    if status == 404:
        return NotFoundError("Vault path", f"{path}{detail}")
    if status in (401, 403):
        return DeniedError(f"Vault at {address} denied access to {path}{detail}", reason="vault")
    if status == _SEALED:
        return UnavailableError(f"Vault at {address} is sealed or has no active node{detail}")
    if 400 <= status < 500 and status != 429:
        return RefusedError(f"Vault at {address} refused {path}{detail}")
    return UnavailableError(f"Vault at {address} responded to {path} with status {status}{detail}")


def _detail(content: bytes) -> str:
    """The error messages of Vault, if there are any."""
    try:
        errors = msgspec.json.decode(content, type=dict[str, Any]).get("errors")
    except msgspec.DecodeError:
        return ""
    words = "; ".join(" ".join(str(one).split()) for one in errors) if errors else ""
    return f": {words}" if words else ""


def _decoded(content: bytes, address: str) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except msgspec.DecodeError as err:
        raise UnavailableError(
            f"the server at {address} is not Vault: the response is not JSON"
        ) from err


def _context(ca_path: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cafile=ca_path)
    except (ssl.SSLError, OSError) as err:
        raise SettingsError(f"PERSYS_VAULT_CA_PATH={ca_path}: {err.strerror or err}") from err
    return context
