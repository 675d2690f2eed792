"""The login at Vault: with a configured token, or with an AppRole, which gets a token at each login.

A login has a lease, which is renewed at half of its duration. If Vault does not renew or extend it, an
AppRole logs in again. A configured token cannot be replaced: its end is logged once as a warning.
"""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Any

import structlog
from msgspec import Struct

from persys.errors import DeniedError, PersysError, RefusedError, SettingsError, UnavailableError
from persys.infra.clock import Clock
from persys.infra.vault.http import VaultHttp

log = structlog.get_logger()

RETRY_SHARE = 10  # retry after this fraction of the remaining lease


class AuthMethod(StrEnum):
    TOKEN = "token"  # noqa: S105  # the name of a method
    APPROLE = "approle"


class Credentials(Struct, frozen=True):
    method: AuthMethod
    token: str = ""
    role_id: str = ""
    secret_id: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.method})"  # a traceback must not show the secrets

    def check(self) -> None:
        """Raises SettingsError."""
        if self.method is AuthMethod.TOKEN and not self.token:
            raise SettingsError("PERSYS_VAULT_AUTH_METHOD=token, but PERSYS_VAULT_TOKEN is not set")
        if self.method is AuthMethod.APPROLE and not (self.role_id and self.secret_id):
            raise SettingsError(
                "PERSYS_VAULT_AUTH_METHOD=approle, but PERSYS_VAULT_APPROLE_ROLE_ID or "
                "PERSYS_VAULT_APPROLE_SECRET_ID is not set"
            )


class Login(Struct, frozen=True):
    """A token and its lease. Times are of the monotonic clock."""

    token: str
    renewable: bool
    renew_at: float | None  # renewal time, at half of the lease; None: the lease never ends
    ends_at: float | None

    def __repr__(self) -> str:
        return f"Login(ends_at={self.ends_at})"


class VaultLogin:
    def __init__(self, http: VaultHttp, credentials: Credentials, clock: Clock) -> None:
        self._http = http
        self._credentials = credentials
        self._clock = clock
        self._login: Login | None = None
        self._warned = False

    @property
    def renew_at(self) -> float | None:
        """When to renew the login. None: never, or at the next use."""
        return self._login.renew_at if self._login is not None else None

    async def token(self) -> str:
        """A valid token. Raises DeniedError or UnavailableError."""
        login, now = self._login, self._clock.monotonic()
        if login is None or _is_over(login, now):
            login = await self._log_in()
        elif login.renew_at is not None and now >= login.renew_at:
            login = await self._renewed(login)
        self._login = login
        return login.token

    def forget(self, token: str) -> bool:
        """Drop a token that Vault refused. Whether a new login is possible."""
        if self._login is not None and self._login.token == token:
            self._login = None
        return self._credentials.method is AuthMethod.APPROLE

    async def _log_in(self) -> Login:
        if self._credentials.method is AuthMethod.APPROLE:
            return await self._by_approle()
        return await self._by_token()

    async def _by_approle(self) -> Login:
        secret = {
            "role_id": self._credentials.role_id,
            "secret_id": self._credentials.secret_id,
        }
        try:
            response = await self._http.request("POST", "auth/approle/login", body=secret)
        except RefusedError as err:  # Vault sends 400 instead of 403 for invalid credentials
            raise DeniedError(f"Vault refused the AppRole login: {err}", reason="login") from err
        auth = _part(response, "auth")
        log.info("vault.logged_in", method="approle", lease_seconds=auth.get("lease_duration"))
        return self._login_of(str(auth.get("client_token", "")), auth, lease="lease_duration")

    async def _by_token(self) -> Login:
        token = self._credentials.token
        try:
            response = await self._http.request("GET", "auth/token/lookup-self", token=token)
        except DeniedError as err:
            raise DeniedError(f"PERSYS_VAULT_TOKEN is not valid: {err}", reason="login") from err
        data = _part(response, "data")
        login = self._login_of(token, data, lease="ttl")
        if not login.renewable:
            self._warn(login, "it cannot be renewed")
        return login

    async def _renewed(self, login: Login) -> Login:
        """The extended login, or a new one, or the same with an earlier retry."""
        if login.renewable:
            try:
                response = await self._http.request(
                    "POST", "auth/token/renew-self", token=login.token, body={}
                )
                longer = self._login_of(
                    login.token, _part(response, "auth"), lease="lease_duration"
                )
            except PersysError as err:
                return await self._replacement(login, str(err))
            if _lasts_longer(longer, login):
                log.debug("vault.login_renewed")
                return longer
        return await self._replacement(login, "Vault did not extend the lease")

    async def _replacement(self, login: Login, why: str) -> Login:
        """An AppRole logs in again; a configured token is used until it expires."""
        if self._credentials.method is AuthMethod.APPROLE:
            try:
                return await self._by_approle()
            except PersysError as err:
                why = str(err)
        self._warn(login, why)
        return _later(login, self._clock.monotonic())

    def _warn(self, login: Login, why: str) -> None:
        """Log the end of the lease, once until a login is renewable again."""
        if self._warned or login.ends_at is None:
            return
        self._warned = True
        left = timedelta(seconds=login.ends_at - self._clock.monotonic())
        log.warning("vault.login_ends", reason=why, expires_at=self._clock.now() + left)

    def _login_of(self, token: str, lease_data: Mapping[str, Any], *, lease: str) -> Login:
        if not token or not isinstance(lease_data.get(lease), int | float):
            raise UnavailableError(f"the server at {self._http.address} is not Vault")
        seconds, now = float(lease_data[lease]), self._clock.monotonic()
        renewable = bool(lease_data.get("renewable"))
        if not seconds:  # a root token
            return Login(token, renewable, None, None)
        if renewable:
            self._warned = False
        return Login(token, renewable, now + seconds / 2, now + seconds)


def _is_over(login: Login, now: float) -> bool:
    return login.ends_at is not None and now >= login.ends_at


def _lasts_longer(new: Login, old: Login) -> bool:
    if new.ends_at is None or old.ends_at is None:
        return new.ends_at is None
    assert old.renew_at is not None
    # A renewal at half of the lease extends it by half; less means that the maximum TTL is reached.
    return new.ends_at > old.ends_at + min(1.0, (old.ends_at - old.renew_at) / 2)


def _later(login: Login, now: float) -> Login:
    assert login.ends_at is not None  # a login that never ends is never renewed
    pause = max(1.0, (login.ends_at - now) / RETRY_SHARE)
    return Login(login.token, login.renewable, now + pause, login.ends_at)


def _part(response: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = response.get(name)
    if not isinstance(part, dict):
        raise UnavailableError(f"invalid response of Vault: expected an object {name!r}")
    return part
