"""Certificates from a real Vault: issue, renewal, and outages of Vault."""

import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path

import pytest
from cryptography import x509

from e2e.waiting import eventually
from persys.infra.tls.identity import claims_of, hosts_of
from persys.model.identity import Identity, Role
from root_ca import Root
from vault.deployment import Deployment
from vault.server import VaultServer

pytestmark = pytest.mark.full

SHORT = "6s"
SWAPS = 3


@contextmanager
def vault_stopped(server: VaultServer) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.restart()


def with_token(server: VaultServer, policy: str) -> dict[str, str]:
    token = server.token(policy, "-period=1h")
    return {"PERSYS_VAULT_AUTH_METHOD": "token", "PERSYS_VAULT_TOKEN": token}


@pytest.mark.parametrize("method", ["approle", "token"])
def test_a_scheduler_and_an_agent_connect_with_certificates_of_vault(
    server: VaultServer, deployment: Deployment, method: str
) -> None:
    for process, name in (
        (deployment.scheduler, "persys-scheduler"),
        (deployment.agent, "persys-agent"),
    ):
        known = server.approle(name) if method == "approle" else with_token(server, name)
        deployment.set_variables(process, known)
        process.start()

    with deployment.admin_client() as client:
        deployment.wait_until_ready(client)

    created = x509.load_pem_x509_certificate(deployment.agent_files.certificate.read_bytes())
    assert claims_of(created).identity == Identity(Role.AGENT, deployment.node_id)
    assert claims_of(created).trust_domain == "persys.local"
    assert hosts_of(created) == (f"persys-agent-{deployment.node_id}", "127.0.0.1")
    assert deployment.agent_files.key.stat().st_mode & 0o077 == 0


def test_a_vault_with_https_is_verified_by_its_ca(
    server: VaultServer, deployment: Deployment
) -> None:
    deployment.set_variables(deployment.scheduler, server.approle("persys-scheduler"))
    deployment.scheduler.set("PERSYS_VAULT_ADDR", server.tls_address)
    deployment.scheduler.launch()
    deployment.wait_for_log(deployment.scheduler, "certificate.awaited", "PERSYS_VAULT_CA_PATH")
    assert not deployment.serves
    deployment.scheduler.kill()

    deployment.scheduler.set("PERSYS_VAULT_CA_PATH", str(server.roots))
    deployment.scheduler.start()

    with deployment.admin_client() as client:
        assert client.list_nodes() == []


def test_a_gateway_with_a_certificate_of_vault_serves_requests(
    server: VaultServer, deployment: Deployment
) -> None:
    deployment.set_variables(deployment.scheduler, server.approle("persys-scheduler"))
    deployment.set_variables(deployment.gateway, server.approle("persys-gateway"))
    deployment.scheduler.start()
    deployment.gateway.start()
    files = deployment.admin_files()
    context = ssl.create_default_context(cafile=files.roots)
    context.load_cert_chain(files.certificate, files.key)

    def answers() -> bool:
        url = f"https://127.0.0.1:{deployment.gateway_port}/api/v1/nodes"
        try:
            with urllib.request.urlopen(url, timeout=10, context=context) as response:
                return bool(response.status == HTTPStatus.OK)
        except urllib.error.HTTPError:  # not connected to the scheduler yet
            return False

    eventually(answers, lambda: deployment.gateway.log[-4000:])


def test_certificates_are_renewed_during_calls(server: VaultServer, deployment: Deployment) -> None:
    for name in ("scheduler", "agent"):
        server.run(
            f"vault read -format=json pki/roles/persys-{name}"
            f' | python3 -c \'import json, sys; data = json.load(sys.stdin)["data"]; '
            f'data["not_before_duration"] = 1; data.pop("issuer_ref", None); print(json.dumps(data))\''
            f" | vault write pki/roles/quick-{name} -"
        )
        server.run(
            f'echo \'path "pki/sign/quick-{name}" {{ capabilities = ["update"] }}\''
            f" | vault policy write quick-{name} -"
        )
    for process, name in ((deployment.scheduler, "scheduler"), (deployment.agent, "agent")):
        deployment.set_variables(process, with_token(server, f"quick-{name}"))
        process.set("PERSYS_VAULT_PKI_ROLE", f"quick-{name}")
        process.set("PERSYS_VAULT_CERT_TTL", SHORT)
        process.start()
    serials: set[str] = set()
    calls = 0

    with deployment.admin_client() as client:
        deployment.wait_until_ready(client)
        ends = time.monotonic() + 60
        while len(serials) <= SWAPS and time.monotonic() < ends:
            assert [node.status for node in client.list_nodes()] == ["Ready"]
            serials.add(deployment.claims().serial)
            calls += 1

    assert len(serials) > SWAPS
    assert calls > 100
    assert "scheduler.lost" not in deployment.agent.log


def test_a_process_without_a_certificate_waits_for_vault(
    server: VaultServer, deployment: Deployment
) -> None:
    deployment.set_variables(deployment.scheduler, server.approle("persys-scheduler"))
    with vault_stopped(server):
        deployment.scheduler.launch()
        deployment.wait_for_log(deployment.scheduler, "certificate.awaited", "cannot reach Vault")
        assert not deployment.serves
        server.start()
        deployment.wait_for_log(deployment.scheduler, "certificate.awaited", "is sealed")
        assert not deployment.serves
        server.stop()

    eventually(lambda: deployment.serves, "the scheduler to serve once Vault is back")


def test_a_process_that_waits_for_vault_can_be_stopped(
    server: VaultServer, deployment: Deployment
) -> None:
    deployment.set_variables(deployment.scheduler, server.approle("persys-scheduler"))
    deployment.scheduler.set("PERSYS_VAULT_RETRY_INTERVAL", "1h")
    with vault_stopped(server):
        deployment.scheduler.launch()
        deployment.wait_for_log(deployment.scheduler, "certificate.awaited")
        assert deployment.scheduler.stop() == 0


def test_a_process_with_a_valid_certificate_starts_without_vault(
    server: VaultServer, deployment: Deployment
) -> None:
    deployment.set_variables(deployment.scheduler, server.approle("persys-scheduler"))
    deployment.scheduler.start()
    first = deployment.claims().serial
    deployment.scheduler.stop()
    admin_client = deployment.admin_client()

    with vault_stopped(server), admin_client as client:
        deployment.scheduler.start()
        assert list(client.list_nodes()) == []

    assert deployment.claims().serial == first
    assert "certificate.awaited" not in deployment.scheduler.log


def test_an_expired_certificate_is_reported_and_not_used(
    server: VaultServer, deployment: Deployment, tmp_path: Path
) -> None:
    hour = timedelta(hours=1)
    expired = Root(tmp_path).write(Role.SCHEDULER, "persys-scheduler", age=2 * hour, lifetime=hour)
    for old, new in zip(expired, deployment.scheduler_files, strict=True):
        new.parent.mkdir(exist_ok=True)
        new.write_bytes(old.read_bytes())
    deployment.set_variables(deployment.scheduler, server.approle("persys-scheduler"))

    with vault_stopped(server):
        deployment.scheduler.launch()
        line = deployment.wait_for_log(deployment.scheduler, "certificate.unusable", "expired")
        assert '"level": "error"' in line
        deployment.wait_for_log(deployment.scheduler, "certificate.awaited")
        assert not deployment.serves

    eventually(lambda: deployment.serves, "the scheduler to serve once Vault is back")
    with deployment.admin_client() as client:
        assert list(client.list_nodes()) == []


def test_a_wrong_token_is_reported(server: VaultServer, deployment: Deployment) -> None:
    deployment.scheduler.set("PERSYS_VAULT_TOKEN", "hvs.wrong")
    deployment.scheduler.launch()

    deployment.wait_for_log(deployment.scheduler, "PERSYS_VAULT_TOKEN is not valid")
    assert not deployment.serves


def test_a_wrong_secret_id_is_reported(server: VaultServer, deployment: Deployment) -> None:
    deployment.set_variables(deployment.scheduler, server.approle("persys-scheduler"))
    deployment.scheduler.set("PERSYS_VAULT_APPROLE_SECRET_ID", "wrong")
    deployment.scheduler.launch()

    deployment.wait_for_log(deployment.scheduler, "Vault refused the AppRole login")


def test_a_missing_permission_of_the_policy_is_reported(
    server: VaultServer, deployment: Deployment
) -> None:
    deployment.set_variables(deployment.scheduler, server.approle("persys-agent"))
    deployment.scheduler.launch()

    deployment.wait_for_log(deployment.scheduler, 'the Vault policy needs: path \\"pki/sign/')


def test_a_missing_role_setting_is_reported_with_the_command_that_sets_it(
    server: VaultServer, deployment: Deployment
) -> None:
    """The reported command is run unchanged, and the process continues automatically."""
    server.run("vault write pki/roles/narrow allowed_domains=persys-scheduler key_type=rsa")
    deployment.scheduler.set("PERSYS_VAULT_TOKEN", server.root_token)
    deployment.scheduler.set("PERSYS_VAULT_PKI_ROLE", "narrow")
    deployment.scheduler.launch()

    line = deployment.wait_for_log(deployment.scheduler, "the role needs at least: ")
    assert not deployment.serves
    server.run(line.split("the role needs at least: ")[1].split('"')[0])

    eventually(lambda: deployment.serves, lambda: deployment.scheduler.log[-4000:])


def test_a_certificate_revoked_in_vault_is_refused(
    server: VaultServer, deployment: Deployment
) -> None:
    deployment.set_variables(deployment.scheduler, server.approle("persys-scheduler"))
    deployment.set_variables(deployment.agent, server.approle("persys-agent"))
    deployment.scheduler.set("PERSYS_TLS_CRL_INTERVAL", "500ms")
    deployment.scheduler.start()
    deployment.agent.start()
    with deployment.admin_client() as client:
        deployment.wait_until_ready(client)
    agents = x509.load_pem_x509_certificate(deployment.agent_files.certificate.read_bytes())

    server.run(f"vault write pki/revoke serial_number={dashed(agents.serial_number)}")

    deployment.wait_for_log(deployment.scheduler, "access.denied", "has been revoked")


def dashed(serial: int) -> str:
    digits = f"{serial:x}"
    digits = digits.zfill(len(digits) + len(digits) % 2)
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))
