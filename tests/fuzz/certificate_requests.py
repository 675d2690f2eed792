"""Certificate signing requests that are unusual, damaged or not allowed."""

from collections.abc import Callable
from functools import cache
from ipaddress import ip_address, ip_network
from random import Random
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fuzz.mutation import TEXTS, bytes_like

_MAKERS: tuple[Callable[[], Any], ...] = (
    lambda: ec.generate_private_key(ec.SECP256R1()),
    lambda: ec.generate_private_key(ec.SECP521R1()),
    lambda: ec.generate_private_key(ec.SECP192R1()),
    lambda: ec.generate_private_key(ec.BrainpoolP256R1()),
    lambda: rsa.generate_private_key(65537, 1024),
    lambda: rsa.generate_private_key(3, 2048),
    lambda: dsa.generate_private_key(2048),
    ed25519.Ed25519PrivateKey.generate,
    ed448.Ed448PrivateKey.generate,
)
_NAMES: tuple[Any, ...] = (
    x509.DNSName("n1.example.org"),
    x509.DNSName("*"),
    x509.DNSName("x" * 300),
    x509.IPAddress(ip_address("10.0.0.1")),
    x509.IPAddress(ip_address("::1")),
    x509.IPAddress(ip_network("10.0.0.0/8")),
    x509.UniformResourceIdentifier("spiffe://persys/agent/n1"),
    x509.UniformResourceIdentifier("spiffe://persys/admin/root"),
    x509.UniformResourceIdentifier("x:" + "y" * 5000),
    x509.RFC822Name("a@example.org"),
    x509.RegisteredID(x509.ObjectIdentifier("1.2.3")),
    x509.OtherName(x509.ObjectIdentifier("1.2.3"), b"\x0c\x01x"),
    x509.DirectoryName(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "admin")])),
)
_EXTENSIONS: tuple[Any, ...] = (
    x509.BasicConstraints(ca=True, path_length=None),
    x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]),
    x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\xff"),
    x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), b"\xff\xff"),
    x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), b"\x30\x00"),
    x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), b"\x30\x02\xa3\x00"),
    x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), b"\x30\x03\xa5\x01\x00"),
    x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), b"\x30\x04\x87\x02\x01\x01"),
    x509.UnrecognizedExtension(x509.ObjectIdentifier("2.5.29.17"), b"\x30\x04\x82\x02\xff\xfe"),
)
_SAN = bytes.fromhex("0603551d11")


@cache
def _key(number: int) -> Any:
    return _MAKERS[number]()


def draw(random: Random) -> bytes:
    """PEM of a request, possibly invalid."""
    built = _built(random)
    der = built.public_bytes(Encoding.DER)
    match random.randrange(5):
        case 0 | 1:
            return built.public_bytes(Encoding.PEM)
        case 2:
            return _pem(_twice_the_extension(der))
        case 3:
            return _pem(bytes_like(random, der))
        case _:
            return bytes_like(random, built.public_bytes(Encoding.PEM))


def _built(random: Random) -> x509.CertificateSigningRequest:
    key = _key(random.choice((0, 0, 0, random.randrange(len(_MAKERS)))))
    names = [
        x509.NameAttribute(NameOID.COMMON_NAME, text)
        for _ in range(random.choice((0, 1, 1, 1, 2)))
        if 0 < len((text := _plain(random)).encode()) <= 64
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names))
    if random.random() < 0.7:
        count = random.choice((1, 1, 2, 5, 300))
        chosen = [random.choice(_NAMES) for _ in range(count)]
        builder = builder.add_extension(x509.SubjectAlternativeName(chosen), critical=False)
    for extension in random.sample(_EXTENSIONS, random.choice((0, 1, 2))):
        try:
            builder = builder.add_extension(extension, critical=random.random() < 0.5)
        except ValueError:
            continue  # one of this kind exists already
    has_own_hash = isinstance(key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey)
    return builder.sign(key, None if has_own_hash else hashes.SHA256())


def _plain(random: Random) -> str:
    text = random.choice(("n1", "agent/n1", "admin/root", *TEXTS))
    return text.encode(errors="replace").decode()


def _twice_the_extension(der: bytes) -> bytes:
    """A second extension with the OID of the alternative names."""
    other = bytes.fromhex("0603551d13")
    return der.replace(other, _SAN)


def _pem(der: bytes) -> bytes:
    from base64 import encodebytes

    return (
        b"-----BEGIN CERTIFICATE REQUEST-----\n"
        + encodebytes(der)
        + b"-----END CERTIFICATE REQUEST-----\n"
    )
