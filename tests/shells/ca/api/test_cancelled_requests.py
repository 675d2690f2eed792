"""A client that disconnects, or a CA that stops, leaves no partial change.

Every mutating request is cancelled at each point where its handler waits. The database then has the
certificate or token, the use of the token and the audit line, or none of them.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cancellation import Moment, at_every_wait
from cancelled_requests import RequestCanceller
from persys.ca.app import LIMITS
from persys.ca.authority import Authority, Issuance
from persys.ca.settings import CaSettings
from persys.core.auth.permissions import CA
from persys.infra.tls.certificates import CertificateFiles
from persys.infra.tls.keys import new_key, new_request
from persys.model.identity import Identity, Role
from persys.wire.ca.join_token import read_token
from persys.wire.ca.messages import TokenRequest
from shells.ca.conftest import a_running_ca
from shells.ca.running_ca import AUTH_KEY, RunningCa

READS = {"POST /api/v1/cfssl/info"}
# Counts in the database: certificates, revoked ones, tokens, used ones, audit lines.
State = Counter[str]
Body = dict[str, Any]


def csr(role: Role, name: str) -> str:
    return new_request(new_key(), Identity(role, name), ()).decode()


def a_join(authority: Authority, own: str) -> Body:
    """A join with its own token."""
    response = authority.create_token("admin/ada", TokenRequest("agent", own))
    token = read_token(response.token)
    return {"id": token.id, "secret": token.secret, "csr": csr(Role.AGENT, own)}


def a_revocation(authority: Authority, own: str) -> Body:
    """Revocation of a new certificate."""
    issuance = Issuance(Identity(Role.AGENT, own), (), requested_by="admin/ada", action="created")
    return {"serial": authority.issue_certificate(issuance, new_key().public_key()).serial}


def a_signing(_authority: Authority, own: str) -> Body:
    return {"certificate_request": csr(Role.AGENT, own), "profile": "agent"}


def a_sealed_signing(authority: Authority, own: str) -> Body:
    request = json.dumps(a_signing(authority, own)).encode()
    proof = hmac.new(bytes.fromhex(AUTH_KEY), request, hashlib.sha256).digest()
    return {
        "token": base64.b64encode(proof).decode(),
        "request": base64.b64encode(request).decode(),
    }


CALLS: dict[str, Callable[[Authority, str], Body]] = {
    "POST /api/v1/join": a_join,
    "POST /api/v1/renew": lambda _authority, _own: {"csr": csr(Role.ADMIN, "ada")},
    "POST /api/v1/certificates": lambda _authority, own: {
        "role": "agent",
        "name": own,
        "csr": csr(Role.AGENT, own),
    },
    "POST /api/v1/revoke": a_revocation,
    "POST /api/v1/tokens": lambda _authority, own: {"role": "agent", "name": own},
    "POST /api/v1/cfssl/sign": a_signing,
    "POST /api/v1/cfssl/authsign": a_sealed_signing,
    "POST /api/v1/cfssl/newcert": lambda _authority, own: {
        "request": {"CN": own},
        "profile": "agent",
    },
}


def test_every_mutating_route_is_covered() -> None:
    assert CALLS.keys() | READS == {route for route in CA if route.startswith("POST ")}


@dataclass(frozen=True)
class ParsedCsr:
    """A CA and an admin client."""

    ca: RunningCa
    session: aiohttp.ClientSession

    async def ask(self, route: str, body: Body) -> int:
        method, _, path = route.partition(" ")
        async with self.session.request(method, path, json=body) as response:
            await response.read()
            return response.status

    def state(self) -> State:
        database = self.ca.ca.authority.database
        certificates, tokens = database.certificates(1000), database.tokens(1000)
        return Counter(
            certificates=len(certificates),
            revoked=sum(one.revoked_at is not None for one in certificates),
            tokens=len(tokens),
            used=sum(one.used_at is not None for one in tokens),
            lines=len(database.audit(1000)),
        )


@pytest.fixture
def cancelling() -> RequestCanceller:
    return RequestCanceller()


@pytest.fixture
async def admin_client(
    settings: CaSettings, tmp_path: Path, cancelling: RequestCanceller
) -> AsyncIterator[ParsedCsr]:
    async with a_running_ca(settings, tmp_path, LIMITS, around=cancelling.middleware()) as ca:
        files: CertificateFiles = await asyncio.to_thread(ca.certificate, Role.ADMIN, "ada")
        context = ssl.create_default_context(cadata=ca.ca.authority.keys.roots_pem.decode())
        context.check_hostname = False
        context.load_cert_chain(files.certificate, files.key)
        connector = aiohttp.TCPConnector(ssl=context)
        base = f"https://{ca.address}"
        async with aiohttp.ClientSession(base, connector=connector) as session:
            yield ParsedCsr(ca, session)


@pytest.mark.parametrize("route", CALLS)
async def test_a_cancelled_request_is_applied_completely_or_not_at_all(
    route: str, admin_client: ParsedCsr, cancelling: RequestCanceller
) -> None:
    authority = admin_client.ca.ca.authority

    async def prepared(own: str) -> tuple[Body, State]:
        body: Body = await admin_client.ca.on_thread(partial(CALLS[route], authority, own))
        before: State = await admin_client.ca.on_thread(admin_client.state)
        return body, before

    async def changed(before: State) -> State:
        after: State = await admin_client.ca.on_thread(admin_client.state)
        return after - before

    body, before = await prepared("whole")
    assert await admin_client.ask(route, body) == 200
    complete = await changed(before)
    assert complete["lines"] == 1

    async def attempt(moment: Moment) -> bool:
        body, before = await prepared(f"x{moment.number}{'b' if moment.late else 'a'}")
        reached = await cancelling.cancelled(moment, admin_client.ask(route, body))
        found = await changed(before)
        assert found == complete or (reached and not found), moment
        return reached

    assert await at_every_wait(attempt)
