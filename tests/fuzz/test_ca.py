"""Fuzzer of persys-ca: every route, with and without a certificate, and certificate requests of any kind.

A response of 500 or above is a defect. The CA continues to serve, and issues only identities that an
authorized caller requested.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from pathlib import Path
from random import Random
from typing import Any

from fuzz import certificate_requests
from fuzz.budget import rounds
from fuzz.http_requests import Route, draw, exchange
from fuzz.mutation import TEXTS, changed
from persys.ca.app import Ca
from persys.ca.settings import CaSettings
from persys.core.auth.permissions import CA
from persys.infra.tls.certificates import CertificateFiles
from persys.infra.tls.keys import new_key, new_request
from persys.model.identity import Identity, Role
from shells.ca.running_ca import AUTH_KEY, MovedClock, RunningCa


def a_good_request(name: str = "n1") -> str:
    return new_request(new_key(), Identity(Role.AGENT, name), ()).decode()


def bodies(random: Random, token: dict[str, str]) -> dict[str, Any]:
    """A valid body for each route that has one, with any certificate request."""
    csr = a_good_request() if random.random() < 0.5 else _text(certificate_requests.draw(random))
    sign = {
        "certificate_request": csr,
        "hosts": ["n1"],
        "profile": "agent",
        "subject": {"CN": "n1"},
    }
    return {
        "/api/v1/join": {**token, "csr": csr},
        "/api/v1/renew": {"csr": csr},
        "/api/v1/certificates": {"role": "agent", "name": "n1", "csr": csr, "ttl_seconds": 60},
        "/api/v1/tokens": {"role": "agent", "name": "n1", "hosts": ["n1"], "ttl_seconds": 60},
        "/api/v1/revoke": {"role": "agent", "name": "fuzzed", "reason": "x"},
        "/api/v1/cfssl/sign": sign,
        "/api/v1/cfssl/authsign": sealed(random, sign),
        "/api/v1/cfssl/newcert": {
            "request": {"CN": "n1", "hosts": ["n1"], "key": {"algo": "ecdsa", "size": 256}},
            "profile": "agent",
        },
        "/api/v1/cfssl/info": {"label": ""},
    }


def sealed(random: Random, request: Any) -> dict[str, str]:
    inner = json.dumps(changed(random, request) if random.random() < 0.7 else request).encode()
    token = hmac.new(AUTH_KEY.encode(), inner, hashlib.sha256).digest()
    return {"token": base64.b64encode(token).decode(), "request": base64.b64encode(inner).decode()}


def _text(data: bytes) -> str:
    return data.decode("latin-1")


def a_route(random: Random, token: dict[str, str]) -> Route:
    method, _, path = random.choice(list(CA)).partition(" ")
    body = bodies(random, token).get(path) if method == "POST" else None
    return Route(method, path, lambda: body, ("limit", "cursor"))


def context_of(ca: RunningCa, files: CertificateFiles | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca.ca.authority.keys.roots_pem.decode())
    context.check_hostname = False
    if files is not None:
        context.load_cert_chain(files.certificate, files.key)
    return context


async def test_every_route_of_the_ca_answers_or_refuses(tmp_path: Path) -> None:
    key = tmp_path / "auth.key"
    key.write_text(AUTH_KEY + "\n")
    for one_round in rounds("ca", size=300):
        directory = tmp_path / str(one_round.first_seed)
        settings = CaSettings(
            dir=directory / "ca", listen="127.0.0.1", port=0, auth_key_file=str(key)
        )
        with one_round:
            await run_round(one_round, settings, directory)


async def run_round(one_round: Any, settings: CaSettings, directory: Path) -> None:
    process = Ca(settings, MovedClock())
    await process.start()
    ca = RunningCa(process, settings, MovedClock(), directory)
    try:
        admin = await asyncio.to_thread(ca.certificate, Role.ADMIN, "ada")
        agent = await ca.joined("steady")
        joining = await ca.token("n1")
        token = {"id": joining.id, "secret": joining.secret}
        contexts = [context_of(ca, files) for files in (None, admin, admin, agent)]
        for one in one_round:
            with one as random:
                context = random.choice(contexts)
                sent = draw(random, a_route(random, token), TOKENS)
                response = await exchange(process.port, sent, context)
                assert response.status < 500, response.text
        await check_ca(ca, agent)
    finally:
        await process.stop()


# Parts of other documents for fuzzed bodies.
TOKENS = (
    {
        "role": "admin",
        "name": "root",
        "hosts": list(TEXTS[:40]),
        "ttl_seconds": 1e308,
        "serial": "ff",
    },
)


async def check_ca(ca: RunningCa, agent: CertificateFiles) -> None:
    """A certificate that was not revoked is valid, and new ones are issued."""
    renewed = await ca.ask(agent, lambda client: client.renew(a_good_request("steady").encode()))
    assert renewed.certificate
    given = await ca.as_admin(lambda client: client.certificates(10_000))
    for one in given:
        if one.how in ("joined", "renewed"):
            assert (one.role, one.name) in (("agent", "n1"), ("agent", "steady"), ("admin", "ada"))
