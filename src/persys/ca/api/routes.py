"""The routes of the CA: its REST API, and the cfssl API with the same rules.

Handlers run on the CA's thread after authorization.
"""

import base64
from collections.abc import Mapping

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from persys.ca.api import cfssl
from persys.ca.api.authorization import CaRequest, CaResponse, Handler
from persys.ca.authority import Authority, Issuance, check_token_request
from persys.ca.csr import RSA_BITS, ParsedCsr, parse_csr
from persys.ca.metrics import PAGE, Metrics
from persys.core.auth.enrolment import StoredJoinToken, check_hosts
from persys.errors import DeniedError, InvalidError
from persys.infra.tls.identity import parse_uri
from persys.infra.tls.keys import key_pem, new_request
from persys.model.identity import Identity, Role
from persys.wire.ca.messages import (
    CertificateRequest,
    JoinRequest,
    RenewRequest,
    RevokeRequest,
    TokenRequest,
    TokenView,
    read_body,
)

_CURVES: Mapping[int, ec.EllipticCurve] = {
    256: ec.SECP256R1(),
    384: ec.SECP384R1(),
    521: ec.SECP521R1(),
}
_PEM = "application/x-pem-file"
_CRL = "application/pkix-crl"


class Api:
    def __init__(self, authority: Authority, metrics: Metrics) -> None:
        self._authority = authority
        self._metrics = metrics

    def handlers(self) -> Mapping[str, Handler]:
        return {
            "GET /health": self._health,
            "GET /metrics": lambda call: CaResponse(self._metrics.render(), PAGE),
            "GET /crl": lambda call: CaResponse(self._authority.crl_der(), _CRL),
            "GET /crl.pem": lambda call: CaResponse(self._authority.crl_pem(), _PEM),
            "GET /api/v1/roots": lambda call: CaResponse(self._authority.keys.roots_pem, _PEM),
            "POST /api/v1/join": self._join,
            "POST /api/v1/renew": self._renew,
            "GET /api/v1/certificates": self._certificates,
            "POST /api/v1/certificates": self._create,
            "POST /api/v1/revoke": self._revoke,
            "GET /api/v1/tokens": self._tokens,
            "POST /api/v1/tokens": self._create_token,
            "GET /api/v1/audit": self._audit,
        }

    def _health(self, call: CaRequest) -> CaResponse:
        keys = self._authority.keys
        self._authority.database.audit(1)  # fails if the database cannot be read
        return _json(
            {
                "status": "ok",
                "service": "persys-ca",
                "trust_domain": self._authority.trust_domain,
                "root_expires_at": keys.root.not_valid_after_utc,
                "intermediate_expires_at": keys.issuer.certificate.not_valid_after_utc,
            }
        )

    def _join(self, call: CaRequest) -> CaResponse:
        return _json(self._authority.join(read_body(call.body, JoinRequest), call.where))

    def _renew(self, call: CaRequest) -> CaResponse:
        request = read_body(call.body, RenewRequest)
        return _json(self._authority.renew(call.client, request.csr.encode()))

    def _create(self, call: CaRequest) -> CaResponse:
        return _json(self._authority.create(call.who, read_body(call.body, CertificateRequest)))

    def _create_token(self, call: CaRequest) -> CaResponse:
        request = read_body(call.body, TokenRequest)
        check_token_request(call.client.identity.role, request)
        return _json(self._authority.create_token(call.who, request))

    def _revoke(self, call: CaRequest) -> CaResponse:
        request = read_body(call.body, RevokeRequest)
        return _json(self._authority.revoke(call.client.identity, request))

    def _certificates(self, call: CaRequest) -> CaResponse:
        return _json(self._authority.database.certificates(call.limit()))

    def _tokens(self, call: CaRequest) -> CaResponse:
        return _json([_token(token) for token in self._authority.database.tokens(call.limit())])

    def _audit(self, call: CaRequest) -> CaResponse:
        return _json(self._authority.database.audit(call.limit()))


def _token(token: StoredJoinToken) -> TokenView:
    return TokenView(
        id=token.id,
        role=token.identity.role,
        name=token.identity.name,
        hosts=token.hosts,
        created_at=token.created_at,
        expires_at=token.expires_at,
        created_by=token.created_by,
        used_at=token.used_at,
        serial=token.serial,
    )


def _json(value: object) -> CaResponse:
    return CaResponse(msgspec.json.encode(value))


class CfsslApi:
    def __init__(self, authority: Authority, *, key: bytes, roles: frozenset[Role]) -> None:
        """`key` is the authsign key, valid for `roles`; b"" disables authsign."""
        self._authority = authority
        self._key = key
        self._roles = roles

    def handlers(self) -> Mapping[str, Handler]:
        return {
            f"POST {cfssl.PREFIX}info": self._info,
            f"POST {cfssl.PREFIX}sign": self._sign,
            f"POST {cfssl.PREFIX}authsign": self._authsign,
            f"POST {cfssl.PREFIX}newcert": self._newcert,
            f"GET {cfssl.PREFIX}crl": self._crl,
        }

    def _info(self, call: CaRequest) -> CaResponse:
        return _response(
            {
                "certificate": self._authority.keys.roots_pem.decode(),
                "usages": list(cfssl.USAGES),
                "expiry": cfssl.go_duration(self._authority.lifetime),
            }
        )

    def _sign(self, call: CaRequest) -> CaResponse:
        certificate = self._signed(read_body(call.body, cfssl.SignRequest), call.who, None)
        return _response({"certificate": certificate})

    def _authsign(self, call: CaRequest) -> CaResponse:
        request = cfssl.verify_authsign(call.body, self._key)
        certificate = self._signed(request, f"auth key, from {call.where}", self._roles)
        return _response({"certificate": certificate})

    def _newcert(self, call: CaRequest) -> CaResponse:
        """The only route that generates a key for the client, because cfssl clients expect it."""
        wanted = read_body(call.body, cfssl.NewCertRequest)
        identity = cfssl.identity_for(wanted.profile, wanted.request.CN)
        hosts = check_hosts(wanted.request.hosts or ())
        key = _new_key(wanted.request.key or cfssl.KeyRequest())
        issued = self._authority.issue_certificate(
            Issuance(identity, hosts, requested_by=call.who, action="created"), key.public_key()
        )
        return _response(
            {
                "certificate": issued.certificate,
                "certificate_request": new_request(key, identity, hosts).decode(),
                "private_key": key_pem(key).decode(),
            }
        )

    def _crl(self, call: CaRequest) -> CaResponse:
        return _response(base64.b64encode(self._authority.crl_der()).decode())

    def _signed(
        self, request: cfssl.SignRequest, requested_by: str, roles: frozenset[Role] | None
    ) -> str:
        parsed = parse_csr(request.certificate_request.encode())
        identity = self._identity_for(request, parsed)
        if roles is not None and identity.role not in roles:
            raise DeniedError(
                f"the authsign key is not valid for role {identity.role}", reason="role"
            )
        hosts = check_hosts(cfssl.hosts_of(request, parsed.hosts))
        issuance = Issuance(identity, hosts, requested_by=requested_by, action="signed")
        return self._authority.issue_certificate(issuance, parsed.public_key).certificate

    def _identity_for(self, request: cfssl.SignRequest, parsed: ParsedCsr) -> Identity:
        named = request.subject.CN if request.subject is not None else ""
        identity = cfssl.identity_for(request.profile, named or parsed.common_name)
        for uri in parsed.uris:
            if parse_uri(uri) != (identity, self._authority.trust_domain):
                raise InvalidError("csr", f"URI {uri[:200]} does not match {identity}")
        return identity


def _new_key(wanted: cfssl.KeyRequest) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    if wanted.algo == "ecdsa" and wanted.size in _CURVES:
        return ec.generate_private_key(_CURVES[wanted.size])
    if wanted.algo == "rsa" and wanted.size in RSA_BITS:
        return rsa.generate_private_key(public_exponent=65537, key_size=wanted.size)
    raise InvalidError("key", "expected ecdsa with size 256, 384 or 521, or rsa with 2048 to 8192")


def _response(result: object) -> CaResponse:
    return CaResponse(cfssl.response(result))
