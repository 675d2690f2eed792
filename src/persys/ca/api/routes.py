"""The native REST routes of the CA. Handlers run on the CA's thread after authorization."""

from collections.abc import Mapping

import msgspec

from persys.ca.api.authorization import CaRequest, CaResponse, Handler
from persys.ca.authority import Authority
from persys.ca.metrics import PAGE, Metrics
from persys.core.auth.enrolment import StoredJoinToken
from persys.wire.ca.messages import (
    CertificateRequest,
    JoinRequest,
    RenewRequest,
    RevokeRequest,
    TokenRequest,
    TokenView,
    read_body,
)

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
        return _json(self._authority.create_token(call.who, read_body(call.body, TokenRequest)))

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
