"""Private keys and certificate signing requests."""

from collections.abc import Sequence
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from msgspec import Struct

from persys.model.identity import Identity


class Issued(Struct, frozen=True):
    """The response of an authority to a signing request."""

    chain_pem: bytes  # the certificate and its intermediates
    roots_pem: bytes


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: CertificateIssuerPrivateKeyTypes, passphrase: bytes = b"") -> bytes:
    encryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def new_request(
    key: CertificateIssuerPrivateKeyTypes, identity: Identity, hosts: Sequence[str]
) -> bytes:
    """A certificate signing request in PEM."""
    builder = x509.CertificateSigningRequestBuilder(
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, str(identity)[:64])])
    )
    if hosts:
        names = x509.SubjectAlternativeName([host_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def host_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 in hexadecimal digits."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def fingerprints(pem: bytes) -> list[str]:
    """The fingerprint of each certificate. Raises ValueError if there is none."""
    return [fingerprint(one) for one in x509.load_pem_x509_certificates(pem)]
