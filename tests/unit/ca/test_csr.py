"""Certificate requests that cannot be parsed are rejected, for every exception of the library."""

from base64 import encodebytes

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from persys.ca.csr import parse_csr
from persys.errors import InvalidError

ALTERNATIVE_NAMES = "2.5.29.17"


def a_request(*extensions: x509.ExtensionType) -> bytes:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(
        Encoding.DER
    )


def pem(der: bytes) -> bytes:
    lines = encodebytes(der)
    return b"-----BEGIN CERTIFICATE REQUEST-----\n%b-----END CERTIFICATE REQUEST-----\n" % lines


def encoded(number: str) -> bytes:
    """The DER encoding of an extension OID below 2.5.29."""
    return bytes.fromhex("0603551d") + bytes([int(number.rpartition(".")[2])])


def two_alternative_names() -> bytes:
    names = x509.SubjectAlternativeName([x509.DNSName("n1")])
    der = a_request(names, x509.BasicConstraints(ca=False, path_length=None))
    return der.replace(encoded("2.5.29.19"), encoded(ALTERNATIVE_NAMES))


def an_unknown_kind_of_name() -> bytes:
    name = x509.ObjectIdentifier(ALTERNATIVE_NAMES)
    return a_request(x509.UnrecognizedExtension(name, b"\x30\x02\xa3\x00"))


def an_unknown_version() -> bytes:
    return a_request().replace(b"\x02\x01\x00", b"\x02\x01\x04", 1)


@pytest.mark.parametrize(
    "der", [two_alternative_names(), an_unknown_kind_of_name(), an_unknown_version(), b"", b"\x30"]
)
def test_an_unparsable_csr_is_rejected(der: bytes) -> None:
    with pytest.raises(InvalidError, match="csr"):
        parse_csr(pem(der))
