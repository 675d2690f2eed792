"""Parses certificate signing requests (CSR) and checks the identity that they request.

Only the public key, the common name and the alternative names are read. All other attributes, such as CA
constraints, are ignored.
"""

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from msgspec import Struct

from persys.errors import DeniedError, InvalidError
from persys.infra.tls.identity import by_common_name
from persys.model.identity import Identity

PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
RSA_BITS = range(2048, 8192 + 1)
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_COMMON_NAME_LENGTH = 64
# Exceptions of the library for a request that it cannot parse. Not all are ValueErrors.
_PARSE_ERRORS = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


class ParsedCsr(Struct, frozen=True):
    public_key: PublicKey
    common_name: str
    hosts: tuple[str, ...]
    uris: tuple[str, ...]


def parse_csr(pem: bytes) -> ParsedCsr:
    """Raises InvalidError, also if the sender does not hold the private key."""
    try:
        request = x509.load_pem_x509_csr(pem)
        key = request.public_key()
        holds_key = request.is_signature_valid
        common_names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        hosts, uris = _names(request)
    except _PARSE_ERRORS as err:
        raise InvalidError("csr", "expected a certificate request in PEM format") from err
    if not holds_key:
        raise InvalidError("csr", "is not signed with the key that it contains")
    if len(common_names) > 1:
        raise InvalidError("csr", "has more than one common name")
    common_name = str(common_names[0].value) if common_names else ""
    return ParsedCsr(_usable(key), common_name, hosts, uris)


def check_csr_identity(parsed: ParsedCsr, identity: Identity, trust_domain: str) -> None:
    """Raises DeniedError if the request names another identity. It may name none."""
    named = parsed.common_name
    if named and named != str(identity)[:_COMMON_NAME_LENGTH] and by_common_name(named) != identity:
        raise DeniedError(
            f"the request is for {named}, but only {identity} is allowed", reason="identity"
        )
    for uri in parsed.uris:
        if uri != identity.uri(trust_domain):
            raise DeniedError(
                f"the request is for {uri}, but only {identity} is allowed", reason="identity"
            )


def _usable(key: object) -> PublicKey:
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, _CURVES):
        return key
    if isinstance(key, rsa.RSAPublicKey) and key.key_size in RSA_BITS:
        return key
    raise InvalidError(
        "csr", "expected an ECDSA key of P-256 or more, or an RSA key of 2048 bits or more"
    )


def _names(request: x509.CertificateSigningRequest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Host names and addresses, and the URIs."""
    try:
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return (), ()
    hosts: list[str] = []
    uris: list[str] = []
    for name in names:
        match name:
            case x509.DNSName():
                hosts.append(name.value)
            case x509.IPAddress():
                hosts.append(str(name.value))
            case x509.UniformResourceIdentifier():
                uris.append(name.value)
            case _:
                raise ValueError("unsupported type of alternative name")
    return tuple(hosts), tuple(uris)
