"""Sessions at a real Vault that outlast a login, and its secrets."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from e2e.waiting import eventually
from persys.errors import DeniedError, NotFoundError
from persys.infra.clock import SystemClock
from persys.infra.vault.http import VaultHttp
from persys.infra.vault.login import AuthMethod, Credentials
from persys.infra.vault.session import Vault, VaultKv
from vault.server import VaultServer

pytestmark = pytest.mark.full

DB = "secret/persys/db"


def a_vault(server: VaultServer, credentials: Credentials) -> Vault:
    return Vault(VaultHttp(server.address), credentials, SystemClock())


def by_token(server: VaultServer, *options: str) -> Credentials:
    return Credentials(AuthMethod.TOKEN, token=server.token("persys-scheduler", *options))


@asynccontextmanager
async def kept(vault: Vault) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        keeping = group.create_task(vault.run())
        yield
        keeping.cancel()


async def until(holds: Callable[[], bool]) -> None:
    await asyncio.to_thread(lambda: eventually(holds, "what the test waits for"))


@pytest.fixture
def kv(server: VaultServer) -> VaultKv:
    return VaultKv(a_vault(server, by_token(server, "-period=1h")))


async def test_a_secret_has_versions(kv: VaultKv) -> None:
    assert await kv.read(DB, 1) == {"user": "app", "password": "first"}
    assert await kv.read(DB, 2) == {"user": "app", "password": "second"}
    assert await kv.read(DB) == await kv.read(DB, 2)


async def test_a_missing_secret_is_not_found(server: VaultServer, kv: VaultKv) -> None:
    server.run("vault kv put secret/persys/gone a=b && vault kv delete secret/persys/gone")

    for path, version in (("secret/persys/none", None), (DB, 9), ("secret/persys/gone", 1)):
        with pytest.raises(NotFoundError):
            await kv.read(path, version)


async def test_a_secret_outside_the_policy_is_denied(kv: VaultKv) -> None:
    with pytest.raises(DeniedError):
        await kv.read("secret/others/db")


async def test_a_token_is_renewed_before_its_lease_ends(
    server: VaultServer,
) -> None:
    credentials = by_token(server, "-period=12s")
    kv = VaultKv(vault := a_vault(server, credentials))

    def renewals() -> bool:
        data = server.read(f"vault token lookup {credentials.token}")["data"]
        return int(data.get("last_renewal_time") or 0) > int(data["creation_time"]) + 12

    async with kept(vault):
        await kv.read(DB)
        await until(renewals)
        assert await kv.read(DB)


async def test_an_approle_logs_in_again_at_the_maximum_ttl(
    server: VaultServer,
) -> None:
    server.run(
        "vault write auth/approle/role/brief token_policies=persys-scheduler "
        "token_ttl=2s token_max_ttl=4s"
    )
    known = server.approle("brief")
    credentials = Credentials(
        AuthMethod.APPROLE,
        role_id=known["PERSYS_VAULT_APPROLE_ROLE_ID"],
        secret_id=known["PERSYS_VAULT_APPROLE_SECRET_ID"],
    )
    kv = VaultKv(vault := a_vault(server, credentials))

    with capture_logs() as lines:
        async with kept(vault):
            await kv.read(DB)
            await until(lambda: [line["event"] for line in lines].count("vault.logged_in") >= 3)
            assert await kv.read(DB)

    assert [line for line in lines if line["log_level"] == "warning"] == []


async def test_an_approle_logs_in_again_after_a_revocation(server: VaultServer) -> None:
    known = server.approle("persys-scheduler")
    credentials = Credentials(
        AuthMethod.APPROLE,
        role_id=known["PERSYS_VAULT_APPROLE_ROLE_ID"],
        secret_id=known["PERSYS_VAULT_APPROLE_SECRET_ID"],
    )
    kv = VaultKv(a_vault(server, credentials))
    await kv.read(DB)

    server.run("vault token revoke -mode=path auth/approle")

    assert await kv.read(DB)


async def test_a_token_that_cannot_be_renewed_causes_a_warning(server: VaultServer) -> None:
    kv = VaultKv(a_vault(server, by_token(server, "-ttl=1h", "-renewable=false")))

    with capture_logs() as lines:
        await kv.read(DB)
        await kv.read(DB)

    assert [line["event"] for line in lines] == ["vault.login_ends"]
