"""The certificate authority: checks, signs and records each request before it responds.

It is used by one thread at a time and blocks on the disk. Only join tokens are secret: clients generate their
own keys.
"""

import secrets
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import Struct

from persys.ca.csr import PublicKey, check_csr_identity, parse_csr
from persys.ca.database import REFUSED, CaDatabase
from persys.ca.key_files import Keys
from persys.ca.x509 import issue, pem, revocation_list
from persys.core.auth.denials import Denial, DenialLimiter
from persys.core.auth.enrolment import (
    FAULTS,
    SERVICES,
    JoinTokenFault,
    StoredJoinToken,
    certificate_lifetime,
    check_hosts,
    check_identity,
    check_join_token,
    check_joining_identity,
    hash_secret,
    join_token_lifetime,
    joining_hosts,
)
from persys.errors import ConflictError, DeniedError, InvalidError, NotFoundError
from persys.infra.clock import Clock
from persys.infra.tls.identity import Claims
from persys.infra.tls.keys import fingerprint
from persys.model.identity import Identity, Role
from persys.wire.ca.join_token import JoinToken, write_token
from persys.wire.ca.messages import (
    AuditLine,
    CertificateRequest,
    CertificateView,
    IssueResponse,
    JoinRequest,
    RevokeRequest,
    RevokeResponse,
    TokenAnswer,
    TokenRequest,
)

SECRET_BYTES = 32
MACHINE_TOKEN_LIFE_MAX = timedelta(minutes=15)
_REFUSALS_BETWEEN = 1_000
_REFUSALS_PER_MINUTE = 50
RENEWALS_PER_HOUR = 1_000
_DETAIL_LENGTH_MAX = 500


class CaPolicy(Struct, frozen=True):
    trust_domain: str
    lifetime: timedelta
    keep: timedelta


class CertificateHolder(Struct, frozen=True):
    """A client that presented a certificate of this CA."""

    identity: Identity
    claims: Claims
    hosts: tuple[str, ...]


class Issuance(Struct, frozen=True):
    """A certificate to issue, after all checks of the request."""

    identity: Identity
    hosts: tuple[str, ...]
    requested_by: str
    action: str  # joined, renewed, created, signed
    ttl: timedelta | None = None
    token_id: str = ""
    renews: str = ""  # the serial of the certificate that it replaces
    enrolled_at: datetime | None = None


class Authority:
    def __init__(
        self,
        keys: Keys,
        database: CaDatabase,
        clock: Clock,
        policy: CaPolicy,
        *,
        addresses: Callable[[], Sequence[str]],
    ) -> None:
        """`addresses` returns the host:port pairs of this CA; called for each token."""
        self.keys = keys
        self.database = database
        self._clock = clock
        self._policy = policy
        self._addresses = addresses
        self._refusals = 0
        self._identified = DenialLimiter(reported_max=_REFUSALS_PER_MINUTE)
        self._anonymous = DenialLimiter(reported_max=_REFUSALS_PER_MINUTE)

    @property
    def trust_domain(self) -> str:
        return self._policy.trust_domain

    @property
    def lifetime(self) -> timedelta:
        return self._policy.lifetime

    def join(self, request: JoinRequest, where: str) -> IssueResponse:
        token = self.database.token(request.id)
        fault = check_join_token(token, request.secret, self._clock.now())
        if fault is not None:
            raise _denied(fault)
        assert token is not None, "token_fault rejects a missing token"
        parsed = parse_csr(request.csr.encode())
        check_csr_identity(parsed, token.identity, self.trust_domain)
        issuance = Issuance(
            identity=token.identity,
            hosts=joining_hosts(token, parsed.hosts, source_address=where),
            requested_by=f"token {token.id} of {token.created_by}, from {where}",
            action="joined",
            token_id=token.id,
        )
        try:
            return self.issue_certificate(issuance, parsed.public_key)
        except ConflictError as err:
            raise _denied(JoinTokenFault.USED) from err

    def renew(self, holder: CertificateHolder, csr: bytes) -> IssueResponse:
        """Issue a certificate for the same identity. The hosts may be a subset of the current ones."""
        parsed = parse_csr(csr)
        check_csr_identity(parsed, holder.identity, self.trust_domain)
        self._limit_renewals(holder.identity)
        issuance = Issuance(
            identity=holder.identity,
            hosts=check_hosts(parsed.hosts, holder.hosts) or holder.hosts,
            requested_by=str(holder.identity),
            action="renewed",
            ttl=self._previous_lifetime(holder),
            renews=holder.claims.serial,
            enrolled_at=holder.claims.enrolled_at,
        )
        try:
            return self.issue_certificate(issuance, parsed.public_key)
        except ConflictError as err:
            raise DeniedError("the certificate has been revoked", reason="revoked") from err

    def create(self, requested_by: str, request: CertificateRequest) -> IssueResponse:
        parsed = parse_csr(request.csr.encode())
        identity = check_identity(Identity(_role(request.role), request.name))
        check_csr_identity(parsed, identity, self.trust_domain)
        ttl = _duration(request.ttl_seconds)
        issuance = Issuance(
            identity, check_hosts(parsed.hosts), requested_by, action="created", ttl=ttl
        )
        return self.issue_certificate(issuance, parsed.public_key)

    def issue_certificate(self, issuance: Issuance, public_key: PublicKey) -> IssueResponse:
        """Sign the certificate and record it before it is returned."""
        now = self._clock.now()
        issuer = self.keys.issuer
        self._check_case_collision(check_identity(issuance.identity), now)
        lifetime = certificate_lifetime(
            issuance.identity.role,
            issuance.ttl,
            usual=self._policy.lifetime,
            issuer_ends_at=issuer.certificate.not_valid_after_utc,
            now=now,
        )
        certificate = self._sign(issuance, public_key, now, lifetime)
        view = CertificateView(
            serial=f"{certificate.serial_number:x}",
            role=issuance.identity.role,
            name=issuance.identity.name,
            hosts=issuance.hosts,
            issued_at=now,
            expires_at=certificate.not_valid_after_utc,
            asked_by=issuance.requested_by,
            how=issuance.action,
            enrolled_at=issuance.enrolled_at or now,
        )
        line = self._line(
            issuance.action,
            issuance.requested_by,
            str(issuance.identity),
            ", ".join(issuance.hosts),
        )
        line.serial = view.serial
        self.database.add_certificate(
            view, line, token_id=issuance.token_id, renews=issuance.renews
        )
        return IssueResponse(
            certificate=(pem(certificate) + self.keys.chain_pem).decode(),
            roots=self.keys.roots_pem.decode(),
            serial=view.serial,
            expires_at=view.expires_at,
        )

    def issue_own_certificate(
        self, public_key: PublicKey, hosts: Sequence[str], lifetime: timedelta
    ) -> bytes:
        """The CA's own server certificate with its chain. It is not recorded."""
        issuance = Issuance(
            Identity(Role.CA, "ca"), tuple(hosts), requested_by="ca", action="created"
        )
        certificate = self._sign(issuance, public_key, self._clock.now(), lifetime)
        return pem(certificate) + self.keys.chain_pem

    def create_token(self, requested_by: str, request: TokenRequest) -> TokenAnswer:
        identity = check_joining_identity(Identity(_role(request.role), request.name))
        now = self._clock.now()
        self._check_case_collision(identity, now)
        secret = secrets.token_urlsafe(SECRET_BYTES)
        token = StoredJoinToken(
            id=secrets.token_hex(6),
            secret_hash=hash_secret(secret),
            identity=identity,
            created_at=now,
            expires_at=now + join_token_lifetime(_duration(request.ttl_seconds)),
            created_by=requested_by,
            hosts=check_hosts(request.hosts),
        )
        self.database.add_token(
            token, self._line("invited", requested_by, str(identity), f"token {token.id}")
        )
        line = JoinToken(
            ca=tuple(self._addresses()),
            fp=fingerprint(self.keys.root),
            id=token.id,
            secret=secret,
            role=identity.role,
            name=identity.name,
        )
        return TokenAnswer(write_token(line), token.id, token.expires_at)

    def revoke(self, client: Identity, request: RevokeRequest) -> RevokeResponse:
        """Raises NotFoundError if there is none, unless `enrolled_until` is set.

        A certificate that is already revoked is not an error. A serial revokes its whole renewal chain: the
        holder of a key may have renewed it.
        """

        def choose() -> list[CertificateView]:
            found = self._found(request)
            if client.role is not Role.ADMIN and any(view.role != Role.AGENT for view in found):
                raise DeniedError(f"{client} may revoke certificates of agents only", reason="role")
            return found

        def line(view: CertificateView) -> AuditLine:
            return self._line("revoked", str(client), f"{view.role}/{view.name}", request.reason)

        return RevokeResponse(self.database.revoke(choose, line))

    def is_revoked(self, serial: str) -> bool:
        view = self.database.certificate(serial)
        return view is not None and view.revoked_at is not None

    def revocation_list(self) -> x509.CertificateRevocationList:
        now = self._clock.now()
        return revocation_list(self.keys.issuer, self.database.revoked(now), now=now)

    def crl_der(self) -> bytes:
        return self.revocation_list().public_bytes(Encoding.DER)

    def crl_pem(self) -> bytes:
        return self.revocation_list().public_bytes(Encoding.PEM)

    def record_rejection(self, who: Identity | None, where: str, what: str, why: str) -> None:
        """Record a rejected request. Any client can cause these, so only some per minute are recorded.

        Requests without an identity are counted separately, so that they cannot hide those with one.
        """
        name = f"{who or 'unknown'}, from {where}"
        limiter = self._anonymous if who is None else self._identified
        now = self._clock.monotonic()
        lines = [(f"several, until {self._clock.now():%H:%M}", text) for text in limiter.close(now)]
        if limiter.take(Denial(name, "", what, where, "", why), now) is not None:
            lines.append((name, why))
        for author, text in lines:
            self.database.add_line(self._line(REFUSED, author, what, text))
        self._refusals += len(lines)
        if self._refusals >= _REFUSALS_BETWEEN:
            self._refusals = 0
            self.delete_expired()

    def delete_expired(self) -> None:
        now = self._clock.now()
        self.database.delete_expired(now - self._policy.keep, now)

    def _sign(
        self, issuance: Issuance, public_key: PublicKey, now: datetime, lifetime: timedelta
    ) -> x509.Certificate:
        return issue(
            self.keys.issuer,
            public_key,
            issuance.identity,
            trust_domain=self.trust_domain,
            hosts=issuance.hosts,
            now=now,
            lifetime=lifetime,
            enrolled_at=issuance.enrolled_at,
        )

    def _previous_lifetime(self, holder: CertificateHolder) -> timedelta | None:
        """Users keep the lifetime that an admin set; services get the default."""
        view = self.database.certificate(holder.claims.serial)
        if view is None or holder.identity.role in SERVICES:
            return None
        return view.expires_at - view.issued_at

    def _limit_renewals(self, identity: Identity) -> None:
        """A client that renews continuously must not fill the disk."""
        since = self._clock.now() - timedelta(hours=1)
        if self.database.issued_since(identity, since) >= RENEWALS_PER_HOUR:
            raise DeniedError(
                f"{identity} got {RENEWALS_PER_HOUR} certificates within an hour; try again later",
                reason="rate",
            )

    def _check_case_collision(self, identity: Identity, now: datetime) -> None:
        # DNS names in certificates are case-insensitive: N1 could impersonate n1.
        for view in self.database.certificates_of(identity, now):
            if view.name != identity.name:
                raise InvalidError(
                    "name", f"{identity} differs only in case from {view.role}/{view.name}"
                )

    def _found(self, request: RevokeRequest) -> list[CertificateView]:
        if bool(request.serial) == bool(request.role and request.name):
            raise InvalidError("serial", "expected a serial, or a role and a name")
        if request.serial:
            view = self.database.certificate(request.serial.lower().replace(":", "").lstrip("0"))
            found = [] if view is None else self._chain_of(view)
        else:
            identity = Identity(_role(request.role), request.name)
            found = self.database.revocable(identity, self._clock.now())
            if request.enrolled_until is not None:
                return [view for view in found if _enrolled(view) <= request.enrolled_until]
        if not found:
            name = request.serial or f"{request.role}/{request.name}"
            raise NotFoundError("certificate", name[:_DETAIL_LENGTH_MAX])
        return found

    def _chain_of(self, view: CertificateView) -> list[CertificateView]:
        """The certificate with all others of its renewal chain."""
        identity = Identity(_role(view.role), view.name)
        chain = self.database.revocable(identity, self._clock.now(), enrolled_at=_enrolled(view))
        return [view, *(one for one in chain if one.serial != view.serial)]

    def _line(self, action: str, who: str, what: str, detail: str) -> AuditLine:
        return AuditLine(0, self._clock.now(), action, who, what, detail[:_DETAIL_LENGTH_MAX])


def _enrolled(view: CertificateView) -> datetime:
    return view.enrolled_at or view.issued_at


def check_token_request(role: Role, request: TokenRequest) -> None:
    """A scheduler creates short-lived tokens for new machines of node pools, and no others."""
    if role is Role.ADMIN:
        return
    seconds = request.ttl_seconds
    is_short = seconds is not None and 0 < seconds <= MACHINE_TOKEN_LIFE_MAX.total_seconds()
    if request.role != Role.AGENT or request.hosts or not is_short:
        raise DeniedError(
            f"{role} may create tokens for agents only, without hosts and for at most 15 minutes",
            reason="role",
        )


def _denied(fault: JoinTokenFault) -> DeniedError:
    return DeniedError(FAULTS[fault], reason=fault)


def _role(text: str) -> Role:
    if text not in list(Role):
        raise InvalidError("role", f"invalid role {text[:80]!r}: expected {', '.join(Role)}")
    return Role(text)


def _duration(seconds: float | None) -> timedelta | None:
    try:
        return None if seconds is None else timedelta(seconds=seconds)
    except (OverflowError, ValueError) as err:
        raise InvalidError("ttl", "expected a duration in seconds") from err
