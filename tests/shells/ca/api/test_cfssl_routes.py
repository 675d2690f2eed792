"""The real cfssl client works with the CA as with its own server."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import pytest
from cryptography import x509

from persys.infra.tls.identity import hosts_of, read_claims
from persys.infra.tls.keys import new_key, new_request
from persys.model.identity import Identity, Role
from shells.ca.api.test_authorization import send_without_certificate
from shells.ca.running_ca import AUTH_KEY, RunningCa

N7 = Identity(Role.AGENT, "n7")


async def cfssl(
    ca: RunningCa, *words: str | Path, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run cfssl with the root as a trusted CA of the system."""
    roots = ca.folder / "roots.pem"
    roots.write_bytes(ca.ca.authority.keys.roots_pem)
    return await asyncio.to_thread(
        subprocess.run,
        ["cfssl", *words],
        input=given,
        env=os.environ | {"SSL_CERT_FILE": str(roots)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def config(ca: RunningCa, key: str = AUTH_KEY) -> Path:
    """The client configuration for a remote CA with a key."""
    path = ca.folder / "cfssl.json"
    remote = {"auth_remote": {"remote": "persys", "auth_key": "ours"}}
    path.write_text(
        json.dumps(
            {
                "signing": {"default": remote, "profiles": {"agent": remote, "admin": remote}},
                "auth_keys": {"ours": {"type": "standard", "key": key}},
                "remotes": {"persys": f"https://{ca.address}"},
            }
        )
    )
    return path


async def test_info_returns_the_root(ca: RunningCa) -> None:
    done = await cfssl(ca, "info", "-remote", f"https://{ca.address}")

    parsed = json.loads(done.stdout)
    assert parsed["certificate"].encode() == ca.ca.authority.keys.roots_pem
    assert parsed["expiry"] == "24h"


async def test_authsign_issues_an_agent_certificate(ca: RunningCa) -> None:
    request = ca.folder / "n7.csr"
    request.write_bytes(new_request(new_key(), N7, ["n7.example.org"]))

    done = await cfssl(ca, "sign", "-config", config(ca), request)

    assert done.returncode == 0, done.stderr
    chain = json.loads(done.stdout)["cert"].encode()
    leaf, intermediate = x509.load_pem_x509_certificates(chain)
    leaf.verify_directly_issued_by(intermediate)
    assert read_claims(chain).identity == N7
    assert hosts_of(leaf) == ("n7.example.org",)


async def test_gencert_with_a_key_creates_key_and_certificate(ca: RunningCa) -> None:
    wanted = {"CN": "persys-agent-n8", "hosts": ["10.0.0.8"], "key": {"algo": "rsa", "size": 2048}}

    done = await cfssl(
        ca, "gencert", "-config", config(ca), "-profile", "agent", "-", given=json.dumps(wanted)
    )

    assert done.returncode == 0, done.stderr
    parsed = json.loads(done.stdout)
    assert read_claims(parsed["cert"].encode()).identity == Identity(Role.AGENT, "n8")
    assert "PRIVATE KEY" in parsed["key"]


async def test_a_wrong_authsign_key_is_rejected(ca: RunningCa) -> None:
    request = ca.folder / "n7.csr"
    request.write_bytes(new_request(new_key(), N7, ()))

    done = await cfssl(ca, "sign", "-config", config(ca, "f" * 32), request)

    assert done.returncode != 0
    assert "does not match the key of this CA" in done.stdout + done.stderr


async def test_authsign_cannot_issue_admin_certificates(ca: RunningCa) -> None:
    request = ca.folder / "eve.csr"
    request.write_bytes(new_request(new_key(), Identity(Role.ADMIN, "eve"), ()))

    done = await cfssl(ca, "sign", "-config", config(ca), request)

    assert done.returncode != 0
    assert "not valid for role admin" in done.stdout + done.stderr


async def test_gencert_without_key_or_certificate_is_rejected(ca: RunningCa) -> None:
    done = await cfssl(
        ca,
        *("gencert", "-remote", f"https://{ca.address}", "-profile", "agent", "-"),
        given=json.dumps({"CN": "n9"}),
    )

    assert done.returncode != 0
    assert "client certificate of this CA is required" in done.stdout + done.stderr


async def test_gencert_and_newcert_work_with_an_admin_certificate(ca: RunningCa) -> None:
    import ssl

    from shells.ca.api.test_authorization import connection, trusting_context

    files = await asyncio.to_thread(ca.certificate, Role.ADMIN, "ada")
    context = trusting_context(ca)
    context.load_cert_chain(files.certificate, files.key)
    assert isinstance(context, ssl.SSLContext)
    body = json.dumps({"request": {"CN": "gw1", "hosts": ["gw.example.org"]}, "profile": "gateway"})
    async with asyncio.timeout(20), connection(ca, context) as (reader, writer):
        head = "POST /api/v1/cfssl/newcert HTTP/1.1\r\nHost: ca\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        response = await reader.read()

    result = json.loads(response.partition(b"\r\n\r\n")[2])["result"]
    assert read_claims(result["certificate"].encode()).identity == Identity(Role.GATEWAY, "gw1")
    assert "PRIVATE KEY" in result["private_key"]


@pytest.mark.parametrize("name", ["*.example.org", "scheduler.persys.internal"])
async def test_cfssl_requests_have_the_same_host_rules(ca: RunningCa, name: str) -> None:
    request = ca.folder / "n7.csr"
    request.write_bytes(new_request(new_key(), N7, ()))

    done = await cfssl(ca, "sign", "-config", config(ca), "-hostname", name, request)

    assert done.returncode != 0
    assert "hosts" in done.stdout + done.stderr


async def test_the_revocation_list_has_the_cfssl_format(ca: RunningCa) -> None:
    import base64

    status, body = await send_without_certificate(ca, "GET", "/api/v1/cfssl/crl")

    assert status == 200
    x509.load_der_x509_crl(base64.b64decode(json.loads(body)["result"]))
