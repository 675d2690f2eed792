"""Creates X.509 certificates (root, intermediate, leaf) and the certificate revocation list (CRL).

Keys use P-256, which every TLS library supports and which is cheap to generate at each renewal. The CRL
contains serials from all intermediates: serials are random and unique. This module stores nothing and makes
no policy decisions.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from persys.infra.tls.identity import ENROLLED_AT
from persys.infra.tls.keys import host_name, new_key
from persys.model.identity import Identity, server_name
from persys.wire.ca.messages import CertificateView

BACKDATED = timedelta(minutes=5)  # tolerates clock skew of nodes
ROOT_LIFETIME = timedelta(days=3650)
INTERMEDIATE_LIFETIME = timedelta(days=1825)
_LEAF_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
_CA_USAGE = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


VALID_FOR = timedelta(days=7)
_BACKDATED = timedelta(minutes=5)  # tolerates clock skew of readers


class Issuer(Struct, frozen=True):
    certificate: x509.Certificate
    key: CertificateIssuerPrivateKeyTypes


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def new_root(
    name: str, *, now: datetime, lifetime: timedelta = ROOT_LIFETIME, trust_domain: str = ""
) -> Issuer:
    """With a trust domain, only identities of that domain are valid under this root.

    Host names are not constrained: gateways have names in domains of the operator.
    """
    key = new_key()
    subject = _subject(name)
    builder = (
        _builder(subject, key.public_key(), now, lifetime)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .add_extension(_CA_USAGE, critical=True)
    )
    if trust_domain:
        builder = builder.add_extension(_name_constraints(trust_domain), critical=True)
    return Issuer(builder.sign(key, hashes.SHA256()), key)


def new_intermediate(
    root: Issuer, name: str, *, now: datetime, lifetime: timedelta = INTERMEDIATE_LIFETIME
) -> Issuer:
    key = new_key()
    certificate = (
        _builder(_subject(name), key.public_key(), now, lifetime)
        .issuer_name(root.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_CA_USAGE, critical=True)
        .add_extension(_issued_by(root), critical=False)
        .sign(root.key, hashes.SHA256())
    )
    return Issuer(certificate, key)


def issue(
    issuer: Issuer,
    public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    identity: Identity,
    *,
    trust_domain: str,
    hosts: Sequence[str] = (),
    now: datetime,
    lifetime: timedelta,
    enrolled_at: datetime | None = None,
) -> x509.Certificate:
    """A leaf certificate for client and server use. `hosts` are names and addresses.

    `enrolled_at`: the enrolment time for a renewal; None for a new enrolment.
    """
    names: list[x509.GeneralName] = [
        x509.UniformResourceIdentifier(identity.uri(trust_domain)),
        x509.DNSName(server_name(identity.role)),
        x509.DNSName(server_name(identity.role, identity.name)),
        *(host_name(host) for host in hosts),
    ]
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    return (
        _builder(_subject(str(identity), enrolled_at or now), public_key, now, lifetime)
        .issuer_name(issuer.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_LEAF_USAGE, critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(_issued_by(issuer), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name,
    public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    # Less than a short lifetime: half of it must not be in the past.
    begins_at = now - min(BACKDATED, lifetime / 10)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins_at)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _subject(name: str, enrolled_at: datetime | None = None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name[:64])]
    if enrolled_at is not None:
        attributes.append(x509.NameAttribute(ENROLLED_AT, enrolled_at.isoformat()))
    return x509.Name(attributes)


def _name_constraints(trust_domain: str) -> x509.NameConstraints:
    permitted = [x509.UniformResourceIdentifier(trust_domain)]
    return x509.NameConstraints(permitted_subtrees=permitted, excluded_subtrees=None)


def _issued_by(issuer: Issuer) -> x509.AuthorityKeyIdentifier:
    known = issuer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def revocation_list(
    issuer: Issuer, revoked: Iterable[CertificateView], *, now: datetime
) -> x509.CertificateRevocationList:
    known = issuer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer.certificate.subject)
        .last_update(now - _BACKDATED)
        .next_update(now + VALID_FOR)
        .add_extension(x509.CRLNumber(int(now.timestamp() * 1000)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known), critical=False
        )
    )
    for view in revoked:
        assert view.revoked_at is not None, "only revoked certificates are listed"
        entry = x509.RevokedCertificateBuilder(int(view.serial, 16), view.revoked_at)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(issuer.key, hashes.SHA256())
