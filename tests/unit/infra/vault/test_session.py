"""Errors and invalid responses of Vault, and the renewal of a login over hours."""

import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from fake_vault import FakeVault, a_fake_vault
from persys.errors import (
    DeniedError,
    NotFoundError,
    PersysError,
    RefusedError,
    SettingsError,
    UnavailableError,
)
from persys.infra.clock import SystemClock
from persys.infra.vault.http import VaultHttp
from persys.infra.vault.login import AuthMethod, Credentials
from persys.infra.vault.session import Vault, VaultKv

HOUR = 3600.0
APPROLE = Credentials(AuthMethod.APPROLE, role_id="r", secret_id="s")
TOKEN = Credentials(AuthMethod.TOKEN, token="t")
LOGIN = "auth/approle/login"
LOOKUP = "auth/token/lookup-self"
RENEW = "auth/token/renew-self"
WANTED = "secret/data/a"
FOUND = {"data": {"data": {"word": "w", "number": 7, "many": ["a"]}}}


class ManualClock(SystemClock):
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.at = 0.0
        super().__init__(monotonic=lambda: self.at)


@pytest.fixture
async def fake_vault() -> AsyncIterator[FakeVault]:
    async with a_fake_vault() as fake_vault:
        fake_vault.respond(WANTED, FOUND)
        yield fake_vault


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def a_vault(fake_vault: FakeVault, clock: ManualClock, credentials: Credentials) -> Vault:
    return Vault(VaultHttp(fake_vault.address), credentials, clock)


def lease(token: str, seconds: float, *, renewable: bool = True) -> dict[str, object]:
    auth = {"client_token": token, "lease_duration": seconds, "renewable": renewable}
    return {"auth": auth}


def token_of(seconds: float, *, renewable: bool) -> dict[str, object]:
    return {"data": {"ttl": seconds, "renewable": renewable}}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, RefusedError),
        (403, DeniedError),
        (404, NotFoundError),
        (429, UnavailableError),
        (500, UnavailableError),
        (502, UnavailableError),
        (503, UnavailableError),
    ],
)
async def test_each_status_of_vault_is_mapped_to_an_error(
    fake_vault: FakeVault, status: int, kind: type[PersysError]
) -> None:
    fake_vault.respond("a", status)

    with pytest.raises(PersysError) as error:
        await VaultHttp(fake_vault.address).request("GET", "a")

    assert type(error.value) is kind


async def test_a_sealed_vault_is_called_sealed(fake_vault: FakeVault) -> None:
    fake_vault.respond("a", 503)

    with pytest.raises(UnavailableError, match="is sealed"):
        await VaultHttp(fake_vault.address).request("GET", "a")


async def test_a_timeout_of_vault_is_unavailable(fake_vault: FakeVault) -> None:
    fake_vault.is_silent = True

    with pytest.raises(UnavailableError, match="in time"):
        await VaultHttp(fake_vault.address, timeout=timedelta(seconds=0.2)).request("GET", "a")


async def test_an_unreachable_vault_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        http = VaultHttp(f"http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(UnavailableError, match="cannot reach Vault"):
            await http.request("GET", "a")


async def test_a_response_that_is_not_json_is_unavailable(fake_vault: FakeVault) -> None:
    fake_vault.respond_raw("a", web.Response(text="<html>"))

    with pytest.raises(UnavailableError, match="is not Vault"):
        await VaultHttp(fake_vault.address).request("GET", "a")


async def test_a_redirect_is_not_followed_with_the_token(fake_vault: FakeVault) -> None:
    fake_vault.respond_raw(
        "a", web.Response(status=307, headers={"Location": f"{fake_vault.address}/v1/b"})
    )

    with pytest.raises(UnavailableError, match="307"):
        await VaultHttp(fake_vault.address).request("GET", "a", token="t")
    assert [path for path, _ in fake_vault.requests] == ["a"]


@pytest.mark.parametrize("address", ["", "vault:8200", "ftp://vault", "https://"])
def test_an_invalid_vault_address_is_refused_at_start_up(address: str) -> None:
    with pytest.raises(SettingsError, match="PERSYS_VAULT_ADDR"):
        VaultHttp(address)


def test_an_invalid_ca_file_is_refused_at_start_up(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("garbage")

    for name in ("ca.pem", "missing.pem"):
        with pytest.raises(SettingsError, match="PERSYS_VAULT_CA_PATH"):
            VaultHttp("https://vault:8200", ca_path=tmp_path / name)


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials(AuthMethod.TOKEN),
        Credentials(AuthMethod.APPROLE, role_id="r"),
        Credentials(AuthMethod.APPROLE, secret_id="s", token="t"),
    ],
)
def test_incomplete_credentials_are_refused_at_start_up(credentials: Credentials) -> None:
    with pytest.raises(SettingsError, match="is not set"):
        Vault(VaultHttp("http://127.0.0.1:8200"), credentials, ManualClock())


def test_a_secret_is_in_no_traceback() -> None:
    assert "hidden" not in repr(Credentials(AuthMethod.APPROLE, role_id="r", secret_id="hidden"))


async def test_plain_http_to_another_host_is_logged_as_a_warning() -> None:
    with capture_logs() as lines:
        Vault(VaultHttp("http://127.0.0.1:8200"), TOKEN, ManualClock())
        Vault(VaultHttp("http://vault.example.org:8200"), TOKEN, ManualClock())

    assert [line["address"] for line in lines] == ["http://vault.example.org:8200"]


async def test_a_secret_is_read_as_texts(fake_vault: FakeVault, clock: ManualClock) -> None:
    fake_vault.respond(LOGIN, lease("one", HOUR))

    found = await VaultKv(a_vault(fake_vault, clock, APPROLE)).read("secret/a")

    assert found == {"word": "w", "number": "7", "many": '["a"]'}


@pytest.mark.parametrize("path", ["", "secret", "secret/", "secret//a", "secret/../sys/mounts"])
async def test_a_path_that_leaves_its_engine_is_not_found(
    fake_vault: FakeVault, clock: ManualClock, path: str
) -> None:
    with pytest.raises(NotFoundError):
        await VaultKv(a_vault(fake_vault, clock, APPROLE)).read(path)
    assert fake_vault.requests == []


async def test_a_login_is_renewed_at_half_of_its_lease_and_not_before(
    fake_vault: FakeVault, clock: ManualClock
) -> None:
    fake_vault.respond(LOGIN, lease("one", HOUR))
    fake_vault.respond(RENEW, lease("one", HOUR))
    vault = a_vault(fake_vault, clock, APPROLE)

    for clock.at in (0.0, HOUR / 2 - 1, HOUR / 2 + 1, HOUR - 1):
        await vault.request("GET", WANTED)

    assert paths(fake_vault) == [LOGIN, WANTED, WANTED, RENEW, WANTED, WANTED]


async def test_an_approle_logs_in_again_when_its_login_is_not_renewed(
    fake_vault: FakeVault, clock: ManualClock
) -> None:
    fake_vault.respond(LOGIN, lease("one", HOUR), lease("two", HOUR))
    fake_vault.respond(RENEW, 403)
    vault = a_vault(fake_vault, clock, APPROLE)

    await vault.request("GET", WANTED)
    clock.at = HOUR / 2 + 1
    await vault.request("GET", WANTED)

    assert fake_vault.requests[-1] == (WANTED, "two")


async def test_an_approle_logs_in_again_when_its_lease_is_not_extended(
    fake_vault: FakeVault, clock: ManualClock
) -> None:
    fake_vault.respond(LOGIN, lease("one", HOUR), lease("two", HOUR))
    fake_vault.respond(RENEW, lease("one", HOUR / 2 - 1))
    vault = a_vault(fake_vault, clock, APPROLE)

    await vault.request("GET", WANTED)
    clock.at = HOUR / 2 + 1
    await vault.request("GET", WANTED)

    assert fake_vault.requests[-1] == (WANTED, "two")


async def test_an_approle_logs_in_again_after_its_token_was_revoked(
    fake_vault: FakeVault, clock: ManualClock
) -> None:
    fake_vault.respond(LOGIN, lease("one", HOUR), lease("two", HOUR))
    fake_vault.respond(WANTED, 403, FOUND)
    vault = a_vault(fake_vault, clock, APPROLE)

    await vault.request("GET", WANTED)

    assert fake_vault.requests == [(LOGIN, ""), (WANTED, "one"), (LOGIN, ""), (WANTED, "two")]


async def test_a_login_stays_in_use_while_vault_is_unreachable(
    fake_vault: FakeVault, clock: ManualClock
) -> None:
    fake_vault.respond(LOGIN, lease("one", HOUR), 503)
    fake_vault.respond(RENEW, 503)
    vault = a_vault(fake_vault, clock, APPROLE)

    await vault.request("GET", WANTED)
    clock.at = HOUR / 2 + 1
    with capture_logs() as lines:
        await vault.request("GET", WANTED)
        clock.at = HOUR - 10
        await vault.request("GET", WANTED)

    assert fake_vault.requests[-1] == (WANTED, "one")
    assert [line["event"] for line in lines] == ["vault.login_ends"]


async def test_a_token_that_cannot_be_renewed_is_logged_once(
    fake_vault: FakeVault, clock: ManualClock
) -> None:
    fake_vault.respond(LOOKUP, token_of(HOUR, renewable=False))
    vault = a_vault(fake_vault, clock, TOKEN)

    with capture_logs() as lines:
        for clock.at in (0.0, HOUR / 2 + 1, HOUR - 60):
            await vault.request("GET", WANTED)

    assert [line["event"] for line in lines] == ["vault.login_ends"]
    left = lines[0]["expires_at"] - clock.now()  # as configured at the start
    assert abs(left.total_seconds() - HOUR) < 30


async def test_a_token_is_renewed_and_stays_the_same(
    fake_vault: FakeVault, clock: ManualClock
) -> None:
    fake_vault.respond(LOOKUP, token_of(HOUR, renewable=True))
    fake_vault.respond(RENEW, lease("t", HOUR))
    vault = a_vault(fake_vault, clock, TOKEN)

    with capture_logs() as lines:
        for clock.at in (0.0, HOUR / 2 + 1, HOUR + 2):
            await vault.request("GET", WANTED)

    assert paths(fake_vault) == [LOOKUP, WANTED, RENEW, WANTED, RENEW, WANTED]
    assert [line for line in lines if line["log_level"] == "warning"] == []


async def test_a_root_token_is_never_renewed(fake_vault: FakeVault, clock: ManualClock) -> None:
    fake_vault.respond(LOOKUP, token_of(0, renewable=False))
    vault = a_vault(fake_vault, clock, TOKEN)

    for clock.at in (0.0, 1000 * HOUR):
        await vault.request("GET", WANTED)

    assert paths(fake_vault) == [LOOKUP, WANTED, WANTED]


async def test_an_invalid_approle_is_denied_although_vault_responds_with_400(
    fake_vault: FakeVault, clock: ManualClock
) -> None:
    fake_vault.respond(LOGIN, 400)

    with pytest.raises(DeniedError, match="AppRole"):
        await a_vault(fake_vault, clock, APPROLE).request("GET", WANTED)


def paths(fake_vault: FakeVault) -> list[str]:
    return [path for path, _ in fake_vault.requests]
