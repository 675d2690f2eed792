"""Client of persys-ca, and the certificate source for processes that renew their certificate.

A joining node knows the CA only by the fingerprint in its token: it fetches the root certificate over an
unverified connection, compares the fingerprint, and sends the secret only over a connection verified with
that root.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from hmac import compare_digest
from pathlib import Path
from typing import TypeVar

import msgspec
from cryptography import x509

from persys.client.ca.https import CaHttpClient, ClientCertificate, fetch_unverified
from persys.errors import DeniedError, SettingsError, UnavailableError
from persys.infra.tls.certificates import CertificateFiles
from persys.infra.tls.keys import Issued, fingerprint
from persys.infra.tls.renewal import CertificateSource
from persys.infra.tls.revocation import serials_in
from persys.model.identity import Identity
from persys.wire.ca.join_token import JoinToken
from persys.wire.ca.messages import (
    AuditLine,
    CertificateRequest,
    CertificateView,
    IssueResponse,
    JoinRequest,
    RenewRequest,
    RevokeRequest,
    RevokeResponse,
    TokenAnswer,
    TokenRequest,
    TokenView,
)

T = TypeVar("T")
TIMEOUT = timedelta(seconds=10)
_PATIENCE = 3


class AuthorityClient:
    def __init__(
        self, addresses: Sequence[str], files: CertificateFiles, *, timeout: timedelta = TIMEOUT
    ) -> None:
        """Raises SettingsError for unusable files."""
        self._https = CaHttpClient(
            addresses,
            roots_pem=_read(files.roots),
            shown=ClientCertificate(files.certificate, files.key),
            timeout=timeout,
        )

    def renew(self, csr_pem: bytes) -> IssueResponse:
        """Issue a new certificate for the identity of the client certificate."""
        return self._post("renew", RenewRequest(csr_pem.decode()), IssueResponse)

    def create(self, request: CertificateRequest) -> IssueResponse:
        return self._post("certificates", request, IssueResponse)

    def create_token(self, request: TokenRequest) -> TokenAnswer:
        return self._post("tokens", request, TokenAnswer)

    def revoke(self, request: RevokeRequest) -> tuple[str, ...]:
        """Returns the revoked serials."""
        return self._post("revoke", request, RevokeResponse).serials

    def certificates(self, limit: int) -> list[CertificateView]:
        return self._get(f"/api/v1/certificates?limit={limit}", list[CertificateView])

    def tokens(self, limit: int) -> list[TokenView]:
        return self._get(f"/api/v1/tokens?limit={limit}", list[TokenView])

    def audit(self, limit: int) -> list[AuditLine]:
        return self._get(f"/api/v1/audit?limit={limit}", list[AuditLine])

    def revoked(self) -> frozenset[str]:
        """The serials of the revocation list, in hexadecimal."""
        body = self._https.request("GET", "/crl")
        try:
            return serials_in(body)
        except ValueError as err:
            raise UnavailableError(
                "invalid response from the CA: expected a revocation list"
            ) from err

    def _get(self, path: str, kind: type[T]) -> T:
        return _decoded(self._https.request("GET", path), kind)

    def _post(self, route: str, request: msgspec.Struct, kind: type[T]) -> T:
        return _decoded(
            self._https.request("POST", f"/api/v1/{route}", msgspec.json.encode(request)), kind
        )


class AuthoritySource(CertificateSource):
    """Renews the certificate of a process with persys-ca."""

    def __init__(
        self,
        addresses: Callable[[], Sequence[str]],
        files: CertificateFiles,
        *,
        timeout: timedelta = TIMEOUT,
    ) -> None:
        self._addresses = addresses
        self._files = files
        self._timeout = timeout

    async def issue(self, csr_pem: bytes) -> Issued:
        """Raises UnavailableError, DeniedError or SettingsError, without any change."""
        return issued(await self._call(lambda client: client.renew(csr_pem)))

    async def revoked(self) -> frozenset[str]:
        """The serials of revoked certificates. Raises as `issue` does."""
        return await self._call(AuthorityClient.revoked)

    async def revoke_enrolled(self, identity: Identity, until: datetime, reason: str) -> None:
        """Revoke the certificates that this identity enrolled until then. Raises as `issue` does."""
        request = RevokeRequest(
            role=identity.role, name=identity.name, reason=reason, enrolled_until=until
        )
        await self._call(lambda client: client.revoke(request))

    async def join_token(self, identity: Identity, lifetime: timedelta) -> str:
        """A token for one join. Raises as `issue` does."""
        request = TokenRequest(identity.role, identity.name, (), lifetime.total_seconds())
        return (await self._call(lambda client: client.create_token(request))).token

    async def _call(self, call: Callable[[AuthorityClient], T]) -> T:
        # A socket timeout applies to each read; a slow response is left to its thread.
        try:
            async with asyncio.timeout(_PATIENCE * self._timeout.total_seconds()):
                return await asyncio.to_thread(lambda: call(self._client()))
        except TimeoutError as err:
            raise UnavailableError("timeout while waiting for the CA") from err

    def _client(self) -> AuthorityClient:
        # Created for each call: the certificate files change on renewal.
        return AuthorityClient(self._addresses(), self._files, timeout=self._timeout)


def join(token: JoinToken, csr_pem: bytes, *, timeout: timedelta = TIMEOUT) -> Issued:
    """Enrol with a join token. Raises UnavailableError, or DeniedError with a core.enrolment.Fault."""
    request = msgspec.json.encode(JoinRequest(token.id, token.secret, csr_pem.decode()))
    failed = UnavailableError("the join token contains no CA address; create a new token")
    for address in token.ca:
        try:
            roots = _known_root(address, token.fp, timeout)
            https = CaHttpClient([address], roots_pem=roots, shown=None, timeout=timeout)
            return issued(_decoded(https.request("POST", "/api/v1/join", request), IssueResponse))
        except UnavailableError as err:
            failed = err
    raise failed


def issued(answer: IssueResponse) -> Issued:
    return Issued(answer.certificate.encode(), answer.roots.encode())


def _known_root(address: str, expected: str, timeout: timedelta) -> bytes:
    body = fetch_unverified(address, "/api/v1/roots", timeout)
    try:
        root = x509.load_pem_x509_certificate(body)
    except ValueError as err:
        raise UnavailableError(f"the server at {address} is not a persys-ca") from err
    if not compare_digest(fingerprint(root), expected):
        raise DeniedError(
            f"the server at {address} is not the CA that created this token: the fingerprint of "
            f"its root certificate differs. The secret was not sent",
            reason="fingerprint",
        )
    return body


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as err:
        raise UnavailableError(f"invalid response from the CA: {err}") from err


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise SettingsError(f"{path}: {err.strerror}") from err
