"""The certificates of a process, reloaded while in use."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from persys.ca.x509 import Issuer, issue, new_root, pem
from persys.errors import SettingsError
from persys.infra.clock import SystemClock
from persys.infra.rpc.grpc_server import new_channel, new_server, start_server
from persys.infra.tls.certificates import CertificateFiles, Certificates
from persys.infra.tls.keys import key_pem, new_key
from persys.model.identity import Identity, Role, server_name

SERVICE = "grpc.health.v1.Health"
DAY = timedelta(days=1)


def write(
    folder: Path, root: Issuer, identity: Identity, *, age: timedelta = timedelta()
) -> CertificateFiles:
    folder.mkdir(exist_ok=True)
    key = new_key()
    certificate = issue(
        root,
        key.public_key(),
        identity,
        trust_domain="test",
        now=datetime.now(UTC) - age,
        lifetime=DAY,
    )
    files = CertificateFiles(folder / "a.crt", folder / "a.key", folder / "ca.crt")
    files.key.write_bytes(key_pem(key))
    files.certificate.write_bytes(pem(certificate))
    files.roots.write_bytes(pem(root.certificate))
    return files


@pytest.fixture
def root() -> Issuer:
    return new_root("a root", now=datetime.now(UTC))


@pytest.fixture
def served(tmp_path: Path, root: Issuer) -> Certificates:
    return Certificates(
        write(tmp_path / "server", root, Identity(Role.SCHEDULER, "s1")), SystemClock()
    )


@pytest.fixture
def mine(tmp_path: Path, root: Issuer) -> Certificates:
    return Certificates(write(tmp_path / "mine", root, Identity(Role.AGENT, "n1")), SystemClock())


@pytest.fixture
async def port(served: Certificates) -> AsyncIterator[int]:
    server = new_server()
    yield await start_server(server, SERVICE, host="127.0.0.1", port=0, certificates=served)
    await server.stop(0)


async def check(channel: grpc.aio.Channel) -> int:
    async with channel:
        stub = health_pb2_grpc.HealthStub(channel)
        response = await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        return int(response.status)


def serial_of(port: int) -> str:
    """The serial of the server's current certificate."""
    from persys.infra.tls.identity import read_claims

    shown = ssl.get_server_certificate(("127.0.0.1", port))
    return read_claims(shown.encode()).serial


async def test_both_sides_authenticate(port: int, mine: Certificates) -> None:
    expected = server_name(Role.SCHEDULER)
    assert await check(new_channel(f"127.0.0.1:{port}", mine, expected=expected)) == 1


async def test_a_server_with_another_identity_is_refused(port: int, mine: Certificates) -> None:
    expected = server_name(Role.AGENT, "n2")
    with pytest.raises(grpc.aio.AioRpcError) as err:
        await check(new_channel(f"127.0.0.1:{port}", mine, expected=expected))
    assert err.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_client_without_a_certificate_is_refused(port: int, root: Issuer) -> None:
    bare = grpc.aio.secure_channel(
        f"127.0.0.1:{port}",
        grpc.ssl_channel_credentials(pem(root.certificate)),
        options=[("grpc.ssl_target_name_override", server_name(Role.SCHEDULER))],
    )
    with pytest.raises(grpc.aio.AioRpcError):
        await check(bare)
    with pytest.raises(grpc.aio.AioRpcError):
        await check(new_channel(f"127.0.0.1:{port}"))


async def test_a_certificate_of_another_root_is_refused(
    port: int, tmp_path: Path, root: Issuer
) -> None:
    unassigned = new_root("another", now=datetime.now(UTC))
    files = write(tmp_path / "stranger", unassigned, Identity(Role.ADMIN, "me"))
    files.roots.write_bytes(pem(root.certificate))
    theirs = Certificates(files, SystemClock())
    with pytest.raises(grpc.aio.AioRpcError):
        await check(new_channel(f"127.0.0.1:{port}", theirs, expected=server_name(Role.SCHEDULER)))


async def test_a_new_certificate_is_used_without_a_restart(
    port: int, served: Certificates, tmp_path: Path, root: Issuer
) -> None:
    before = await asyncio.to_thread(serial_of, port)
    write(tmp_path / "server", root, Identity(Role.SCHEDULER, "s1"))
    assert served.reload()
    after = await asyncio.to_thread(serial_of, port)
    assert before != after == served.current.claims.serial


async def test_an_invalid_file_does_not_replace_the_certificate_in_use(
    port: int, served: Certificates, mine: Certificates, tmp_path: Path
) -> None:
    before = served.current
    (tmp_path / "server" / "a.crt").write_text("garbage")
    assert not served.reload()
    assert served.current is before
    expected = server_name(Role.SCHEDULER)
    assert await check(new_channel(f"127.0.0.1:{port}", mine, expected=expected)) == 1


def test_a_key_of_another_certificate_is_refused(tmp_path: Path, root: Issuer) -> None:
    files = write(tmp_path, root, Identity(Role.AGENT, "n1"))
    files.key.write_bytes(key_pem(new_key()))
    with pytest.raises(SettingsError, match=r"a\.key: does not match the certificate"):
        Certificates(files, SystemClock())


def test_an_expired_certificate_is_refused_as_expired(tmp_path: Path, root: Issuer) -> None:
    files = write(tmp_path, root, Identity(Role.AGENT, "n1"), age=2 * DAY)
    with pytest.raises(SettingsError, match=r"expired at .* join token"):
        Certificates(files, SystemClock())
