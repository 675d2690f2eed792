"""The routes of the cfssl API, with the same rules as the native API."""

import base64
from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from persys.ca.api import cfssl
from persys.ca.api.authorization import CaRequest, CaResponse, Handler
from persys.ca.authority import Authority, Issuance
from persys.ca.csr import RSA_BITS, ParsedCsr, parse_csr
from persys.core.auth.enrolment import check_hosts
from persys.errors import DeniedError, InvalidError
from persys.infra.tls.identity import parse_uri
from persys.infra.tls.keys import key_pem, new_request
from persys.model.identity import Identity, Role
from persys.wire.ca.messages import read_body

_CURVES: Mapping[int, ec.EllipticCurve] = {
    256: ec.SECP256R1(),
    384: ec.SECP384R1(),
    521: ec.SECP521R1(),
}


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
            Issuance(identity, hosts, asked_by=call.who, how="created"), key.public_key()
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
        self, request: cfssl.SignRequest, asked_by: str, roles: frozenset[Role] | None
    ) -> str:
        parsed = parse_csr(request.certificate_request.encode())
        identity = self._identity_for(request, parsed)
        if roles is not None and identity.role not in roles:
            raise DeniedError(
                f"the authsign key is not valid for role {identity.role}", reason="role"
            )
        hosts = check_hosts(cfssl.hosts_of(request, parsed.hosts))
        issuance = Issuance(identity, hosts, asked_by=asked_by, how="signed")
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
