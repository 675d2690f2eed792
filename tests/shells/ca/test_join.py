"""Join: a token is valid once, for a limited time, for one name, and only with its CA."""

import asyncio
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from persys.ca.app import Ca
from persys.ca.settings import CaSettings
from persys.ca.x509 import issue
from persys.client.ca.client import join
from persys.core.auth.enrolment import JoinTokenFault
from persys.errors import DeniedError, RefusedError, UnavailableError
from persys.infra.clock import SystemClock
from persys.infra.rpc.grpc_server import new_server, start_server
from persys.infra.tls.identity import hosts_of, read_claims
from persys.infra.tls.keys import new_key, new_request
from persys.infra.tls.tls import Tls
from persys.model.identity import Identity, Role, server_name
from shells.ca.running_ca import RunningCa

HOUR = timedelta(hours=1)


async def test_a_node_joins_with_a_token(ca: RunningCa) -> None:
    hosts = ("node-1.example.org", "10.0.0.7")
    issued = await ca.join(await ca.token(hosts=hosts), hosts=hosts)

    leaf, intermediate = x509.load_pem_x509_certificates(issued.chain_pem)
    (root,) = x509.load_pem_x509_certificates(issued.roots_pem)
    leaf.verify_directly_issued_by(intermediate)
    intermediate.verify_directly_issued_by(root)
    claims = read_claims(issued.chain_pem)
    assert claims.identity == Identity(Role.AGENT, "n1")
    assert claims.trust_domain == "persys.local"
    assert timedelta(hours=24) <= claims.not_after - claims.not_before <= timedelta(hours=25)
    assert hosts_of(leaf) == ("node-1.example.org", "10.0.0.7")
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert server_name(Role.AGENT, "n1") in names.get_values_for_type(x509.DNSName)


async def test_a_used_token_is_rejected(ca: RunningCa) -> None:
    token = await ca.token()
    await ca.join(token)

    with pytest.raises(DeniedError, match="has already been used") as err:
        await ca.join(token)
    assert err.value.reason == JoinTokenFault.USED


async def test_one_of_many_concurrent_joins_with_one_token_succeeds(ca: RunningCa) -> None:
    token = await ca.token()

    async def attempt() -> bool:
        try:
            await ca.join(token)
        except DeniedError:
            return False
        return True

    async with asyncio.TaskGroup() as group:
        attempts = [group.create_task(attempt()) for _ in range(8)]
    assert sum(done.result() for done in attempts) == 1


async def test_an_expired_token_is_rejected(ca: RunningCa) -> None:
    token = await ca.token()
    ca.clock.ahead = HOUR

    with pytest.raises(DeniedError, match="has expired") as err:
        await ca.join(token)
    assert err.value.reason == JoinTokenFault.EXPIRED


async def test_a_wrong_secret_reveals_nothing_about_the_token(ca: RunningCa) -> None:
    token = await ca.token()
    await ca.join(token)

    for wrong in (
        msgspec.structs.replace(token, secret="x"),
        msgspec.structs.replace(token, id="x"),
    ):
        with pytest.raises(DeniedError) as err:
            await ca.join(wrong)
        assert err.value.reason == JoinTokenFault.UNKNOWN


async def test_the_secret_is_not_sent_to_a_server_with_another_root(
    ca: RunningCa, tmp_path: Path
) -> None:
    other = Ca(CaSettings(dir=tmp_path / "other", listen="127.0.0.1", port=0), SystemClock())
    await other.start()
    try:
        token = msgspec.structs.replace(await ca.token(), ca=(f"127.0.0.1:{other.port}",))
        with pytest.raises(DeniedError, match="fingerprint") as err:
            await ca.join(token)
        assert err.value.reason == "fingerprint"
        assert other.authority.database.audit(10) == []
    finally:
        await other.stop()
    await ca.join(msgspec.structs.replace(token, ca=(ca.address,)))  # the token is still unused


async def test_the_secret_is_not_sent_to_a_server_with_the_root_but_no_key_under_it(
    ca: RunningCa, tmp_path: Path
) -> None:
    """The root is public, so presenting it proves nothing."""
    import ssl

    other = Ca(CaSettings(dir=tmp_path / "other", listen="127.0.0.1", port=0), SystemClock())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = tmp_path / "liar.pem"
    from persys.infra.tls.keys import key_pem

    key = new_key()
    chain = other.authority.issue_own_certificate(key.public_key(), ("127.0.0.1",), HOUR)
    files.write_bytes(key_pem(key) + chain)
    context.load_cert_chain(files)
    roots = ca.ca.authority.keys.roots_pem
    received: list[bytes] = []

    async def serve_wrong_certificate(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        received.append(await reader.read(65536))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(roots) + roots)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve_wrong_certificate, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        token = msgspec.structs.replace(await ca.token(), ca=(f"127.0.0.1:{port}",))
        with pytest.raises(DeniedError, match="not the configured CA") as err:
            await ca.join(token)
    assert err.value.reason == "authority"
    assert not any(token.secret.encode() in output for output in received)
    await asyncio.to_thread(other.authority.database.close)


@pytest.mark.parametrize("requested", [Identity(Role.AGENT, "n2"), Identity(Role.ADMIN, "n1")])
async def test_a_csr_for_another_identity_is_rejected(ca: RunningCa, requested: Identity) -> None:
    token = await ca.token("n1")

    with pytest.raises(DeniedError, match="only agent/n1") as err:
        await asyncio.to_thread(join, token, new_request(new_key(), requested, ()))
    assert err.value.reason == "identity"


async def test_a_csr_with_the_uri_of_another_identity_is_rejected(ca: RunningCa) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    uri = x509.UniformResourceIdentifier("spiffe://persys.local/admin/eve")
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    builder = builder.add_extension(x509.SubjectAlternativeName([uri]), critical=False)
    request = builder.sign(new_key(), hashes.SHA256()).public_bytes(Encoding.PEM)

    with pytest.raises(DeniedError, match="admin/eve"):
        await asyncio.to_thread(join, await ca.token(), request)


async def test_ca_constraints_in_a_csr_are_ignored(ca: RunningCa) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    issuance = x509.BasicConstraints(ca=True, path_length=None)
    builder = builder.add_extension(issuance, critical=True)
    request = builder.sign(new_key(), hashes.SHA256()).public_bytes(Encoding.PEM)

    issued = await asyncio.to_thread(join, await ca.token(), request)
    leaf = x509.load_pem_x509_certificate(issued.chain_pem)
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize("host", ["*.example.org", "scheduler.persys.internal"])
async def test_a_wildcard_or_reserved_host_is_rejected(ca: RunningCa, host: str) -> None:
    with pytest.raises(RefusedError, match="hosts"):
        await ca.join(await ca.token(), hosts=(host,))


@pytest.mark.parametrize("host", ["www.example.com", "n2", "n1.example.com", "8.8.8.8", "10.0.0.7"])
async def test_a_token_without_hosts_rejects_foreign_host_names(ca: RunningCa, host: str) -> None:
    with pytest.raises(RefusedError, match=f"create a token with --host {host}"):
        await ca.join(await ca.token(), hosts=(host,))


@pytest.mark.parametrize("host", ["n1", "127.0.0.1", "localhost"])
async def test_a_token_without_hosts_allows_the_own_name_and_source_address(
    ca: RunningCa, host: str
) -> None:
    issued = await ca.join(await ca.token(), hosts=(host,))

    assert hosts_of(x509.load_pem_x509_certificate(issued.chain_pem)) == (host,)


async def test_the_root_is_valid_for_identities_of_its_trust_domain_only(ca: RunningCa) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    keys = ca.ca.authority.keys
    folder = ca.folder / "constraints"
    folder.mkdir()
    (folder / "roots.pem").write_bytes(keys.roots_pem)
    (folder / "chain.pem").write_bytes(keys.chain_pem)
    verified: dict[str, int] = {}
    for domain in (ca.ca.authority.trust_domain, "elsewhere.example"):
        leaf = issue(
            keys.issuer,
            new_key().public_key(),
            Identity(Role.AGENT, "n1"),
            trust_domain=domain,
            now=datetime.now(UTC),
            lifetime=timedelta(hours=1),
        )
        (folder / "leaf.pem").write_bytes(leaf.public_bytes(Encoding.PEM))
        done = await asyncio.to_thread(
            subprocess.run,
            ["openssl", "verify", "-CAfile", "roots.pem", "-untrusted", "chain.pem", "leaf.pem"],
            cwd=folder,
            capture_output=True,
            check=False,
        )
        verified[domain] = done.returncode

    assert verified[ca.ca.authority.trust_domain] == 0
    assert verified["elsewhere.example"] != 0


async def test_grpc_accepts_certificates_under_the_constrained_root(ca: RunningCa) -> None:
    server_files = await asyncio.to_thread(ca.certificate, Role.SCHEDULER, "s1")
    client_files = await asyncio.to_thread(ca.certificate, Role.ADMIN, "ada")
    clock = SystemClock()
    server = new_server()
    port = await start_server(
        server,
        "persys.control.v1.AgentControl",
        host="127.0.0.1",
        port=0,
        certificates=Tls(server_files, clock).certificates,
    )
    try:
        channel = Tls(client_files, clock).dial(Role.SCHEDULER)(f"127.0.0.1:{port}")
        async with asyncio.timeout(30):
            await channel.channel_ready()
        await channel.close()
    finally:
        await server.stop(None)


async def test_a_token_can_restrict_hosts(ca: RunningCa) -> None:
    token = await ca.token(hosts=("a.example.org",))

    with pytest.raises(RefusedError, match=r"b\.example\.org is not allowed: expected any of"):
        await ca.join(token, hosts=("b.example.org",))
    await ca.join(token, hosts=("a.example.org",))


async def test_a_node_name_that_differs_only_in_case_is_rejected(ca: RunningCa) -> None:
    await ca.joined("n1")

    with pytest.raises(RefusedError, match="differs only in case from agent/n1"):
        await ca.token("N1")


@pytest.mark.parametrize("request_pem", [b"", b"garbage", b"-----BEGIN CERTIFICATE REQUEST-----\n"])
async def test_an_invalid_csr_does_not_use_the_token(ca: RunningCa, request_pem: bytes) -> None:
    token = await ca.token()

    with pytest.raises(RefusedError, match="csr"):
        await asyncio.to_thread(join, token, request_pem)
    await ca.join(token)


async def test_an_unreachable_ca_is_reported(ca: RunningCa, free_port: int) -> None:
    token = msgspec.structs.replace(await ca.token(), ca=(f"127.0.0.1:{free_port}",))

    with pytest.raises(UnavailableError, match=f"127.0.0.1:{free_port}"):
        await ca.join(token)


async def test_the_next_address_is_tried_when_one_does_not_respond(
    ca: RunningCa, free_port: int
) -> None:
    token = msgspec.structs.replace(await ca.token(), ca=(f"127.0.0.1:{free_port}", ca.address))

    assert (await ca.join(token)).chain_pem
