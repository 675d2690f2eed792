"""Clients with a certificate: renewal, revocation and permissions."""

import asyncio
import ssl
import subprocess
from collections.abc import Callable
from dataclasses import replace as changed
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from persys.ca.app import Ca
from persys.ca.authority import RENEWALS_PER_HOUR, CertificateHolder
from persys.ca.settings import CaSettings
from persys.client.ca.client import AuthoritySource
from persys.errors import DeniedError, RefusedError, UnavailableError
from persys.infra.clock import SystemClock
from persys.infra.tls.certificates import CertificateFiles
from persys.infra.tls.identity import hosts_of, read_claims
from persys.infra.tls.keys import key_pem, new_key, new_request
from persys.model.identity import Identity, Role
from persys.wire.ca.join_token import read_token
from persys.wire.ca.messages import (
    AuditLine,
    CertificateRequest,
    CertificateView,
    RevokeRequest,
    TokenRequest,
)
from shells.ca.running_ca import RunningCa, keep


async def eventually(is_so: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(is_so):  # noqa: ASYNC110  # no event signals it
            await asyncio.sleep(0.1)


N1 = Identity(Role.AGENT, "n1")


async def test_a_renewal_gives_the_same_identity_and_hosts(ca: RunningCa, tmp_path: Path) -> None:
    files = await ca.joined("n1", ("node-1.example.org",))
    before = read_claims(files.certificate.read_bytes())
    key = new_key()

    source = AuthoritySource(lambda: [ca.address], files)
    issued = await source.issue(new_request(key, N1, ()))

    after = read_claims(issued.chain_pem)
    assert after.identity == before.identity == N1
    assert after.serial != before.serial
    assert after.enrolled_at == before.enrolled_at
    assert hosts_of(x509.load_pem_x509_certificate(issued.chain_pem)) == ("node-1.example.org",)
    again = keep(tmp_path / "again", key_pem(key), issued)
    await ca.ask(again, lambda client: client.renew(new_request(new_key(), N1, ())))


@pytest.mark.parametrize("requested", [Identity(Role.AGENT, "n2"), Identity(Role.SCHEDULER, "n1")])
async def test_a_renewal_for_another_identity_is_rejected(
    ca: RunningCa, requested: Identity
) -> None:
    files = await ca.joined("n1")

    with pytest.raises(DeniedError, match="only agent/n1"):
        await ca.ask(files, lambda client: client.renew(new_request(new_key(), requested, ())))


async def test_a_renewal_adds_no_hosts(ca: RunningCa) -> None:
    files = await ca.joined("n1", ("a.example.org",))
    request = new_request(new_key(), N1, ["a.example.org", "b.example.org"])

    with pytest.raises(RefusedError, match=r"b\.example\.org is not allowed: expected any of"):
        await ca.ask(files, lambda client: client.renew(request))


async def test_a_user_certificate_keeps_its_lifetime_on_renewal(ca: RunningCa) -> None:
    files = await asyncio.to_thread(ca.certificate, Role.VIEWER, "bob", "--ttl", "30d")
    request = new_request(new_key(), Identity(Role.VIEWER, "bob"), ())

    response = await ca.ask(files, lambda client: client.renew(request))

    left = response.expires_at - datetime.now(UTC)
    assert timedelta(days=29) < left <= timedelta(days=30)


async def test_a_revoked_certificate_is_not_renewed(ca: RunningCa) -> None:
    files = await ca.joined("n1")
    serial = read_claims(files.certificate.read_bytes()).serial

    await ca.as_admin(lambda client: client.revoke(RevokeRequest(serial=serial, reason="stolen")))

    with pytest.raises(DeniedError, match="revoked") as err:
        await ca.ask(files, lambda client: client.renew(new_request(new_key(), N1, ())))
    assert err.value.reason == "revoked"


async def test_all_certificates_of_an_identity_are_revoked_by_name(ca: RunningCa) -> None:
    files = await ca.joined("n1")
    await ca.ask(files, lambda client: client.renew(new_request(new_key(), N1, ())))
    await ca.joined("n2")

    request = RevokeRequest(role="agent", name="n1")
    serials = await ca.as_admin(lambda client: client.revoke(request))

    assert len(serials) == 2
    assert await AuthoritySource(lambda: [ca.address], files).revoked() == set(serials)


async def test_a_scheduler_may_revoke_agent_certificates_only(ca: RunningCa) -> None:
    await ca.joined("n1")
    files = await asyncio.to_thread(ca.certificate, Role.SCHEDULER, "s1")
    await asyncio.to_thread(ca.certificate, Role.ADMIN, "ada")

    await ca.ask(files, lambda client: client.revoke(RevokeRequest(role="agent", name="n1")))
    with pytest.raises(DeniedError, match="certificates of agents only"):
        await ca.ask(files, lambda client: client.revoke(RevokeRequest(role="admin", name="ada")))


@pytest.mark.parametrize(
    "refused",
    [
        TokenRequest("scheduler", "s2", ttl_seconds=60),
        TokenRequest("agent", "n2"),
        TokenRequest("agent", "n2", ttl_seconds=901),
        TokenRequest("agent", "n2", ("n2.example",), 60),
    ],
)
async def test_a_scheduler_may_create_short_lived_tokens_for_agents_only(
    ca: RunningCa, refused: TokenRequest
) -> None:
    scheduler = await asyncio.to_thread(ca.certificate, Role.SCHEDULER, "s1")
    source = AuthoritySource(lambda: [ca.address], scheduler)

    token = await source.join_token(Identity(Role.AGENT, "n2"), timedelta(minutes=15))

    assert read_token(token).name == "n2"
    with pytest.raises(DeniedError, match="tokens for agents only"):
        await ca.ask(scheduler, lambda client: client.create_token(refused))


async def test_certificates_from_before_a_node_removal_are_revoked_and_later_ones_are_not(
    ca: RunningCa,
) -> None:
    stolen = await ca.joined("n1")
    scheduler = await asyncio.to_thread(ca.certificate, Role.SCHEDULER, "s1")
    removed_at = datetime.now(UTC)
    renewed = await ca.ask(stolen, lambda client: client.renew(new_request(new_key(), N1, ())))
    again = await ca.joined("n1")

    source = AuthoritySource(lambda: [ca.address], scheduler)
    for _ in range(2):  # a repeated request is harmless
        await source.revoke_enrolled(N1, removed_at, "the node was removed")

    assert renewed.serial in await source.revoked()
    new = read_claims(again.certificate.read_bytes())
    assert new.serial not in await source.revoked()
    assert len(await source.revoked()) == 2
    await source.revoke_enrolled(Identity(Role.AGENT, "n9"), removed_at, "it was never here")


async def test_revoking_an_unknown_certificate_is_not_found(ca: RunningCa) -> None:
    with pytest.raises(RefusedError, match="not found"):
        await ca.as_admin(lambda client: client.revoke(RevokeRequest(serial="abc")))


async def test_openssl_verifies_the_revocation_list(ca: RunningCa, tmp_path: Path) -> None:
    files = await ca.joined("n1")
    request = RevokeRequest(role="agent", name="n1")
    (serial,) = await ca.as_admin(lambda client: client.revoke(request))
    (tmp_path / "crl.pem").write_bytes(await ca.on_thread(ca.ca.authority.crl_pem))
    (tmp_path / "issuer.pem").write_bytes(ca.ca.authority.keys.chain_pem)

    def openssl(*words: str | Path) -> str:
        result = subprocess.run(
            ["openssl", *words], capture_output=True, text=True, timeout=30, check=False
        )
        return result.stdout + result.stderr

    output = openssl(
        *("crl", "-in", tmp_path / "crl.pem", "-noout", "-text"),
        *("-CAfile", tmp_path / "issuer.pem"),
    )
    assert "verify OK" in output
    assert serial.upper() in output
    chain = ("-crl_check", "-CRLfile", tmp_path / "crl.pem", "-untrusted", tmp_path / "issuer.pem")
    output = openssl("verify", "-CAfile", files.roots, *chain, files.certificate)
    assert "certificate revoked" in output


async def test_an_expired_certificate_gets_the_advice_to_join_again(ca: RunningCa) -> None:
    files = await asyncio.to_thread(ca.certificate, Role.AGENT, "n1", "--ttl", "10s")
    ca.clock.ahead = timedelta(minutes=1)

    with pytest.raises(DeniedError, match="expired"):
        await ca.ask(files, lambda client: client.renew(new_request(new_key(), N1, ())))


@pytest.mark.parametrize("role", [role for role in Role if role not in (Role.ADMIN, Role.CA)])
async def test_only_admins_create_certificates_and_tokens(ca: RunningCa, role: Role) -> None:
    files = await asyncio.to_thread(ca.certificate, role, "x1")
    csr = new_request(new_key(), Identity(Role.ADMIN, "eve"), ()).decode()

    with pytest.raises(DeniedError, match="has no permission for"):
        await ca.ask(files, lambda client: client.create(CertificateRequest("admin", "eve", csr)))
    with pytest.raises(DeniedError, match="has no permission for"):
        await ca.ask(files, lambda client: client.audit(10))


async def test_a_certificate_of_another_ca_is_rejected(ca: RunningCa, tmp_path: Path) -> None:
    from persys.ca.cli import run_command
    from persys.infra.tls.certificates import CertificateFiles

    out = tmp_path / "eve"
    words = ["certificate", "--role", "admin", "--name", "eve", "--out", str(out)]
    await asyncio.to_thread(run_command, [*words, "--dir", str(tmp_path / "other")], {})
    (out / "ca.crt").write_bytes(ca.ca.authority.keys.roots_pem)

    files = CertificateFiles(out / "admin.crt", out / "admin.key", out / "ca.crt")
    with pytest.raises((UnavailableError, DeniedError), match="join again with a token"):
        await ca.ask(files, lambda client: client.audit(10))


async def test_every_change_is_in_the_audit_log(ca: RunningCa) -> None:
    files = await ca.joined("n1")
    await ca.ask(files, lambda client: client.renew(new_request(new_key(), N1, ())))
    with pytest.raises(DeniedError):
        await ca.ask(files, lambda client: client.tokens(10))
    await ca.as_admin(lambda client: client.revoke(RevokeRequest(role="agent", name="n1")))

    lines = await ca.as_admin(lambda client: client.audit(100))

    about = [line.deed for line in lines if line.what == "agent/n1"]
    assert about == ["invited", "joined", "renewed", "revoked", "revoked"]
    (refused,) = [line for line in lines if line.deed == "refused"]
    assert refused.who.startswith("agent/n1")
    assert refused.what == "GET /api/v1/tokens"
    assert not any("secret" in line.detail for line in lines)


async def test_issued_certificates_are_listed(ca: RunningCa) -> None:
    await ca.joined("n1", ("a.example.org",))

    views = await ca.as_admin(lambda client: client.certificates(10))
    tokens = await ca.as_admin(lambda client: client.tokens(10))

    (agent,) = [view for view in views if view.role == "agent"]
    assert (agent.name, agent.hosts, agent.how) == ("n1", ("a.example.org",), "joined")
    assert [(token.name, token.serial) for token in tokens] == [("n1", agent.serial)]


async def test_the_ca_renews_its_own_certificate_while_it_runs(
    settings: CaSettings,
) -> None:
    ca = Ca(changed(settings, cert_ttl=timedelta(seconds=10)), SystemClock())
    await ca.start()

    def serial() -> str:
        return read_claims(
            ssl.get_server_certificate(("127.0.0.1", ca.port), timeout=10).encode()
        ).serial

    async with asyncio.TaskGroup() as group:
        maintenance = group.create_task(ca.run())
        first = await asyncio.to_thread(serial)
        await eventually(lambda: serial() != first)
        maintenance.cancel()
    await ca.stop()


async def test_renewals_per_identity_and_hour_are_limited(ca: RunningCa) -> None:
    files = await ca.joined("n1")
    database, now = ca.ca.authority.database, ca.clock.now()

    def renew_often() -> None:
        for number in range(RENEWALS_PER_HOUR):
            view = CertificateView(
                f"{number:x}", "agent", "n1", (), now, now + timedelta(hours=1), "", "renewed"
            )
            database.add_certificate(view, AuditLine(0, now, "renewed", "agent/n1", "agent/n1"))

    await ca.on_thread(renew_often)
    csr = new_request(new_key(), Identity(Role.AGENT, "n1"), ())
    with pytest.raises(DeniedError, match="within an hour"):
        await ca.ask(files, lambda client: client.renew(csr))


async def renewed(ca: RunningCa, files: CertificateFiles, who: Identity) -> str:
    """Renew and return the new serial."""
    issued = await ca.ask(files, lambda client: client.renew(new_request(new_key(), who, ())))
    return issued.serial


async def listed(ca: RunningCa, files: CertificateFiles) -> frozenset[str]:
    return await AuthoritySource(lambda: [ca.address], files).revoked()


async def test_revoking_a_serial_revokes_its_renewal_chain(ca: RunningCa) -> None:
    files = await ca.joined("n1")
    first = read_claims(files.certificate.read_bytes()).serial
    second, third = await renewed(ca, files, N1), await renewed(ca, files, N1)
    again = read_claims((await ca.joined("n1")).certificate.read_bytes()).serial

    result = await ca.as_admin(lambda client: client.revoke(RevokeRequest(serial=second)))

    assert set(result) == {first, second, third}
    assert again not in await listed(ca, files)


async def test_the_crl_contains_expired_certificates_that_may_have_created_tokens(
    ca: RunningCa,
) -> None:
    ann = Identity(Role.ADMIN, "ann")
    files = await asyncio.to_thread(ca.certificate, ann.role, ann.name, "--ttl", "1h")
    first = read_claims(files.certificate.read_bytes()).serial
    second = await renewed(ca, files, ann)
    ca.clock.ahead = timedelta(minutes=90)
    await ca.as_admin(lambda client: client.revoke(RevokeRequest(serial=second)))

    ca.clock.ahead = timedelta(days=364)
    assert {first, second} <= await listed(ca, files)
    ca.clock.ahead = timedelta(days=367)  # every token has expired
    assert not {first, second} & await listed(ca, files)


async def test_the_crl_omits_expired_certificates_of_nodes(ca: RunningCa) -> None:
    files = await asyncio.to_thread(ca.certificate, Role.AGENT, "n1", "--ttl", "1h")
    first = read_claims(files.certificate.read_bytes()).serial
    ca.clock.ahead = timedelta(minutes=30)
    second = await renewed(ca, files, N1)
    ca.clock.ahead = timedelta(hours=2)

    result = await ca.as_admin(lambda client: client.revoke(RevokeRequest(serial=second)))

    assert result == (second,)
    assert first not in await listed(ca, files)


async def test_a_renewal_during_a_revocation_is_rejected(ca: RunningCa) -> None:
    files = await ca.joined("n1")
    claims = read_claims(files.certificate.read_bytes())
    holder = CertificateHolder(N1, claims, ())  # the request was authorized before the revocation
    await ca.as_admin(lambda client: client.revoke(RevokeRequest(serial=claims.serial)))

    with pytest.raises(DeniedError, match="revoked"):
        await ca.on_thread(lambda: ca.ca.authority.renew(holder, new_request(new_key(), N1, ())))
