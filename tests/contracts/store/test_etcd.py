"""Specific to EtcdStore: outages, several members, users, TLS, a full backend."""

import asyncio
import base64
import json
import signal
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from persys.errors import SettingsError, StoreUnavailableError
from persys.store.etcd import EtcdOptions, EtcdStore
from persys.store.port import Committed, LeaseId, Unit, WatchEvent

Watch = AsyncIterator[tuple[WatchEvent, ...]]
Take = Callable[[Watch, int], Coroutine[None, None, list[tuple[WatchEvent, ...]]]]
Eventually = Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]


class Server(Protocol):
    endpoint: str

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def signal(self, number: signal.Signals) -> None: ...


class StartEtcd(Protocol):
    def __call__(self, *flags: str, scheme: str = "http") -> Server: ...


@asynccontextmanager
async def connected(*endpoints: str, **options: Any) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(EtcdOptions(endpoints=endpoints, **options))
    yield store
    await store.close()


async def answers(store: EtcdStore) -> bool:
    try:
        await store.get("/a")
    except StoreUnavailableError:
        return False
    return True


async def test_a_killed_etcd_is_unavailable_and_not_empty(
    start_etcd: StartEtcd, eventually: Eventually
) -> None:
    server = start_etcd()
    async with connected(server.endpoint) as store:
        (outcome,) = await store.commit([Unit(puts={"/a": b"v"})])
        assert isinstance(outcome, Committed)
        lease = await store.grant_lease(60)
        server.kill()

        for attempt in (
            store.get("/a"),
            store.read("/"),
            store.commit([Unit(puts={"/b": b"v"})]),
            store.grant_lease(5),
            store.keep_lease(lease),
            store.revoke_lease(lease),
            store.compact(outcome.revision),
            anext(aiter(store.watch("/", after=0))),
        ):
            with pytest.raises(StoreUnavailableError):
                await attempt

        server.start()
        await eventually(lambda: answers(store))
        assert [record.value for record in (await store.read("/")).records] == [b"v"]
        assert await store.keep_lease(lease)


async def test_a_frozen_etcd_is_unavailable_after_the_deadline(start_etcd: StartEtcd) -> None:
    server = start_etcd()
    async with connected(server.endpoint, deadline_seconds=0.5) as store:
        await store.commit([Unit(puts={"/a": b"v"})])
        server.signal(signal.SIGSTOP)

        async with asyncio.timeout(10):
            with pytest.raises(StoreUnavailableError):
                await store.get("/a")
            with pytest.raises(StoreUnavailableError):
                await store.commit([Unit(puts={"/b": b"v"}) for _ in range(1)])
            with pytest.raises(StoreUnavailableError):
                await store.keep_lease(LeaseId(1))
            with pytest.raises(StoreUnavailableError):
                await anext(aiter(store.watch("/", after=0)))
        server.signal(signal.SIGCONT)


async def test_an_etcd_that_never_ran_is_unavailable() -> None:
    async with connected("127.0.0.1:1") as store:
        with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1"):
            await store.get("/a")


async def test_a_watch_whose_etcd_dies_ends_with_unavailable_and_can_be_resumed(
    start_etcd: StartEtcd, eventually: Eventually, take: Take
) -> None:
    server = start_etcd()
    async with connected(server.endpoint) as store:
        (outcome,) = await store.commit([Unit(puts={"/a": b"1"})])
        assert isinstance(outcome, Committed)
        changes = store.watch("/", after=outcome.revision - 1)
        assert await anext(changes) == (WatchEvent("/a", b"1", outcome.revision),)

        server.kill()
        with pytest.raises(StoreUnavailableError):
            await anext(changes)
        server.start()
        await eventually(lambda: answers(store))
        await store.commit([Unit(puts={"/a": b"2"})])

        ((change,),) = await take(store.watch("/", after=outcome.revision), 1)
        assert change.value == b"2"


async def test_a_dead_endpoint_is_skipped(start_etcd: StartEtcd, take: Take) -> None:
    server = start_etcd()
    async with connected("127.0.0.1:1", server.endpoint) as store:
        (outcome,) = await store.commit([Unit(puts={"/a": b"v"})])

        assert isinstance(outcome, Committed)
        assert len(await take(store.watch("/", after=outcome.revision - 1), 1)) == 1


async def test_after_the_loss_of_a_member_the_others_serve(
    etcd_cluster: list[Server], eventually: Eventually
) -> None:
    async with connected(*(member.endpoint for member in etcd_cluster)) as store:
        await store.commit([Unit(puts={"/a": b"v"})])
        etcd_cluster[0].kill()

        await eventually(lambda: answers(store))
        (outcome,) = await store.commit([Unit(puts={"/b": b"v"})])

        assert isinstance(outcome, Committed)
        assert [record.key for record in (await store.read("/")).records] == ["/a", "/b"]


async def test_a_member_without_quorum_ends_watches(
    etcd_cluster: list[Server],
) -> None:
    async with connected(etcd_cluster[0].endpoint, deadline_seconds=2) as store:
        (outcome,) = await store.commit([Unit(puts={"/a": b"v"})])
        assert isinstance(outcome, Committed)
        changes = store.watch("/", after=outcome.revision - 1)
        await anext(changes)

        etcd_cluster[1].kill()
        etcd_cluster[2].kill()

        async with asyncio.timeout(20):
            with pytest.raises(StoreUnavailableError):
                await anext(changes)
            with pytest.raises(StoreUnavailableError):
                await store.get("/absent")


async def test_an_etcd_out_of_space_is_reported_and_still_serves_reads(
    start_etcd: StartEtcd,
) -> None:
    server = start_etcd("--quota-backend-bytes=4000000")
    async with connected(server.endpoint) as store:
        await store.commit([Unit(puts={"/a": b"v"})])

        async def fill() -> None:
            for number in range(100):
                await store.commit([Unit(puts={f"/{number}": bytes(500_000)})])

        with pytest.raises(StoreUnavailableError, match="out of space"):
            await fill()

        assert await store.get("/a") is not None


def gateway(server: Server, path: str, token: str = "", **body: Any) -> Any:
    request = urllib.request.Request(
        f"http://{server.endpoint}/v3/{path}",
        data=json.dumps(body).encode(),
        headers={"Authorization": token} if token else {},
    )
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.loads(response.read())


@pytest.fixture
def etcd_with_auth(start_etcd: StartEtcd) -> Server:
    """An etcd with authentication."""
    server = start_etcd()
    gateway(server, "auth/user/add", name="root", password="secret")
    gateway(server, "auth/role/add", name="root")
    gateway(server, "auth/user/grant", user="root", role="root")
    gateway(server, "auth/enable")
    return server


def administer(server: Server, path: str, **body: Any) -> None:
    response = gateway(server, "auth/authenticate", name="root", password="secret")
    gateway(server, path, response["token"], **body)


async def test_the_correct_password_is_accepted(etcd_with_auth: Server, take: Take) -> None:
    async with connected(etcd_with_auth.endpoint, user="root", password="secret") as store:
        (outcome,) = await store.commit([Unit(puts={"/a": b"v"})])
        assert isinstance(outcome, Committed)
        lease = await store.grant_lease(60)

        assert await store.keep_lease(lease)
        assert await store.get("/a") is not None
        assert len(await take(store.watch("/", after=outcome.revision - 1), 1)) == 1


async def test_a_wrong_password_is_refused_when_the_store_is_opened(
    etcd_with_auth: Server,
) -> None:
    with pytest.raises(SettingsError, match="root"):
        await EtcdStore.open(
            EtcdOptions(endpoints=(etcd_with_auth.endpoint,), user="root", password="wrong")
        )


async def test_an_etcd_with_authentication_is_unavailable_without_a_user(
    etcd_with_auth: Server,
) -> None:
    async with connected(etcd_with_auth.endpoint) as store:
        with pytest.raises(StoreUnavailableError):
            await store.get("/a")


async def test_a_revoked_token_is_renewed(etcd_with_auth: Server, take: Take) -> None:
    async with connected(etcd_with_auth.endpoint, user="root", password="secret") as store:
        (outcome,) = await store.commit([Unit(puts={"/a": b"v"})])
        assert isinstance(outcome, Committed)
        administer(etcd_with_auth, "auth/user/changepw", name="root", password="secret")

        assert await store.get("/a") is not None

        administer(etcd_with_auth, "auth/user/changepw", name="root", password="secret")
        await store.commit([Unit(puts={"/a": b"w"})])

        administer(etcd_with_auth, "auth/user/changepw", name="root", password="secret")
        assert len(await take(store.watch("/", after=outcome.revision - 1), 2)) == 2


async def test_a_change_of_users_interrupts_no_call(etcd_with_auth: Server) -> None:
    async with connected(etcd_with_auth.endpoint, user="root", password="secret") as store:
        await store.commit([Unit(puts={"/a": b"v"})])
        administer(etcd_with_auth, "auth/user/add", name="other", password="other")

        (outcome,) = await store.commit([Unit(puts={"/a": b"w"})])

        assert isinstance(outcome, Committed)


async def test_without_permissions_etcd_is_unavailable_and_not_empty(
    etcd_with_auth: Server,
) -> None:
    administer(etcd_with_auth, "auth/user/add", name="guest", password="guest")
    async with connected(etcd_with_auth.endpoint, user="guest", password="guest") as store:
        with pytest.raises(StoreUnavailableError, match="permit"):
            await store.get("/a")
        with pytest.raises(StoreUnavailableError):
            await anext(aiter(store.watch("/", after=0)))


async def test_a_password_is_ignored_without_authentication(start_etcd: StartEtcd) -> None:
    server = start_etcd()
    async with connected(server.endpoint, user="root", password="secret") as store:
        assert await store.get("/a") is None


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """CA, server and client certificates, and another, untrusted CA."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=tmp_path, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for name in ("ca", "other"):
        openssl("req", "-x509", *key, "-days", "2", "-subj", f"/CN={name}",
                "-keyout", f"{name}.key", "-out", f"{name}.pem")  # fmt: skip
    (tmp_path / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("server", "client"):
        openssl(
            "req", *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"
        )
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-days", "2", "-extfile", "names", "-out", f"{name}.pem")  # fmt: skip
    return tmp_path


@pytest.fixture
def etcd_with_tls(start_etcd: StartEtcd, certificates: Path) -> Server:
    """An etcd that requires TLS and client certificates of its CA."""
    return start_etcd(
        f"--cert-file={certificates / 'server.pem'}",
        f"--key-file={certificates / 'server.key'}",
        f"--trusted-ca-file={certificates / 'ca.pem'}",
        "--client-cert-auth",
        scheme="https",
    )


async def test_a_client_certificate_is_accepted(etcd_with_tls: Server, certificates: Path) -> None:
    async with connected(
        f"https://{etcd_with_tls.endpoint}",
        ca=certificates / "ca.pem",
        cert=certificates / "client.pem",
        key=certificates / "client.key",
    ) as store:
        await store.commit([Unit(puts={"/a": b"v"})])

        assert await store.get("/a") is not None


@pytest.mark.parametrize(
    "files",
    [{"ca": "ca.pem"}, {"ca": "other.pem", "cert": "client.pem", "key": "client.key"}, {}],
    ids=["no client certificate", "another CA", "no tls"],
)
async def test_with_wrong_certificates_etcd_is_unavailable(
    etcd_with_tls: Server, certificates: Path, files: dict[str, str]
) -> None:
    paths = {option: certificates / name for option, name in files.items()}
    async with connected(etcd_with_tls.endpoint, **paths, deadline_seconds=2) as store:
        with pytest.raises(StoreUnavailableError):
            await store.get("/a")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (EtcdOptions(endpoints=("nowhere",)), "ETCD_ENDPOINTS"),
        (EtcdOptions(endpoints=()), "ETCD_ENDPOINTS"),
        (EtcdOptions(ca=Path("/absent.pem")), "/absent.pem"),
        (EtcdOptions(cert=Path("/absent.pem")), "ETCD_KEY"),
    ],
    ids=["no port", "no endpoint", "no file", "no key"],
)
async def test_invalid_options_are_refused_by_name(options: EtcdOptions, named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        await EtcdStore.open(options)


async def test_two_prefixes_on_one_etcd_are_independent(start_etcd: StartEtcd) -> None:
    server = start_etcd()
    async with (
        connected(server.endpoint, prefix="/one") as one,
        connected(server.endpoint, prefix="/two") as two,
        connected(server.endpoint) as everything,
    ):
        await one.commit([Unit(puts={"/a": b"1"})])
        await two.commit([Unit(puts={"/a": b"2"})])

        assert [(r.key, r.value) for r in (await one.read("")).records] == [("/a", b"1")]
        assert [record.key for record in (await everything.read("/")).records] == [
            "/one/a",
            "/two/a",
        ]


async def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(EtcdOptions(user="root", password="secret"))


async def test_keys_are_plain_text_in_etcd(start_etcd: StartEtcd) -> None:
    server = start_etcd()
    async with connected(server.endpoint) as store:
        await store.commit([Unit(puts={"/workloads/web": b"{}"})])

    found = gateway(server, "kv/range", key=base64.b64encode(b"/workloads/web").decode())
    assert base64.b64decode(found["kvs"][0]["value"]) == b"{}"
