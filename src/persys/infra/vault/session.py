"""A Vault client that logs in and keeps its login valid, and reads secrets from the KV engine."""

import asyncio
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import structlog

from persys.errors import DeniedError, NotFoundError, PersysError, UnavailableError
from persys.infra.clock import Clock
from persys.infra.vault.http import VaultHttp
from persys.infra.vault.login import Credentials, VaultLogin
from persys.infra.vault.settings import VaultSettings

log = structlog.get_logger()

CHECK_SECONDS = 1.0


class Vault:
    def __init__(self, http: VaultHttp, credentials: Credentials, clock: Clock) -> None:
        """Sends no request. Raises SettingsError for incomplete credentials."""
        credentials.check()
        self._http = http
        self._login = VaultLogin(http, credentials, clock)
        self._clock = clock
        self._lock = asyncio.Lock()
        self._last_error = ""
        if http.is_plain and not _is_local(http.address):
            log.warning("vault.plain_text", address=http.address, reason="traffic is not encrypted")

    @property
    def address(self) -> str:
        return self._http.address

    async def run(self) -> None:
        """Renew the login in the background."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            renew_at = self._login.renew_at
            if renew_at is not None and self._clock.monotonic() >= renew_at:
                await self._renew_login()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, Any] | None = None,
        params: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        """Send a request. Raises NotFoundError, DeniedError, RefusedError or UnavailableError."""
        token = await self._token()
        try:
            return await self._http.request(method, path, token=token, body=body, params=params)
        except DeniedError:
            if not await self._is_replaceable(token):
                raise
        # The token may have been revoked since the login.
        token = await self._token()
        return await self._http.request(method, path, token=token, body=body, params=params)

    async def fetch_public(self, path: str) -> bytes:
        """Fetch a path that needs no login. Raises the errors of `request`."""
        return await self._http.fetch("GET", path)

    async def _token(self) -> str:
        async with self._lock:
            return await self._login.token()

    async def _is_replaceable(self, token: str) -> bool:
        async with self._lock:
            return self._login.forget(token)

    async def _renew_login(self) -> None:
        try:
            await self._token()
        except PersysError as err:
            if str(err) != self._last_error:
                self._last_error = str(err)
                log.warning("vault.login_lost", reason=self._last_error)
            return
        self._last_error = ""


def open_vault(settings: VaultSettings, clock: Clock) -> Vault | None:
    """The client, or None if Vault is not enabled. Sends no request. Raises SettingsError."""
    if not settings.vault_enabled:
        return None
    http = VaultHttp(
        settings.vault_addr,
        ca_path=Path(settings.vault_ca_path) if settings.vault_ca_path else None,
        namespace=settings.vault_namespace,
    )
    credentials = Credentials(
        settings.vault_auth_method,
        token=settings.vault_token,
        role_id=settings.vault_approle_role_id,
        secret_id=settings.vault_approle_secret_id,
    )
    return Vault(http, credentials, clock)


def _is_local(address: str) -> bool:
    host = urlsplit(address).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class VaultKv:
    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def read(self, path: str, version: int | None = None) -> Mapping[str, str]:
        """The fields of a secret: texts unchanged, other values as JSON. `version` None: the latest.

        The first segment of the path is the mount of the engine. Raises NotFoundError for a missing secret or
        a deleted version, DeniedError, or UnavailableError.
        """
        mount, _, rest = path.strip("/").partition("/")
        if not rest or not all(rest.split("/")) or {".", ".."} & {*rest.split("/"), mount}:
            raise NotFoundError("secret in Vault", f"{path} (expected mount/path)")
        params = {"version": str(version)} if version is not None else None
        response = await self._vault.request("GET", f"{mount}/data/{rest}", params=params)
        outer = response.get("data")
        data = outer.get("data") if isinstance(outer, dict) else None
        if not isinstance(data, dict):
            raise UnavailableError(f"{mount} in Vault is not a KV engine of version 2")
        return {key: _text(value) for key, value in data.items()}


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
