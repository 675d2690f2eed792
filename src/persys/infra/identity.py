"""Who a certificate says its holder is.

A certificate of ours says it in a URI: spiffe://<trust domain>/<role>/<name>. One of an existing deployment
has only a common name, from which the role, and of an agent also the node, can be told; anything else is
nobody. What would surprise: a certificate with a URI is never read by its common name.
"""

import re
from datetime import UTC, datetime

from cryptography import x509
from cryptography.x509.oid import NameOID
from msgspec import Struct

from persys.model.identity import NAMES, SCHEME, Identity, Role

NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._@]{0,252}")
# Of the subject. Renewals keep it, so that whoever was let in before a moment can be told from later ones.
ENROLLED_AT = NameOID.GENERATION_QUALIFIER
_SERVICE = re.compile(r"persys[-_](?P<role>scheduler|gateway)(?:\..+)?")
_AGENT = re.compile(
    r"(?:(?P<name>[^./]+)\.(?:[^/]*\.)?agents\..+|persys[-_]agent-(?P<node>[^./]+)(?:\.[^/]+)?)"
)
_SLASHED = re.compile(r"(?P<role>[a-z]+)/(?P<name>[^/]+)")


class Claims(Struct, frozen=True):
    identity: Identity | None  # None: it names nobody that is known here
    trust_domain: str  # "": of an existing deployment, which has none
    serial: str
    not_before: datetime
    not_after: datetime
    enrolled_at: (
        datetime  # when its holder was let in; of an existing deployment when it was issued
    )
    tells_enrolment: bool = False  # the certificate itself says when its holder joined


def claims_of(certificate: x509.Certificate) -> Claims:
    identity, trust_domain = _by_uri(certificate)
    if identity is None and not trust_domain:
        identity = by_common_name(_common_name(certificate))
    return Claims(
        identity=identity,
        trust_domain=trust_domain,
        serial=f"{certificate.serial_number:x}",
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        enrolled_at=_enrolled_at(certificate) or certificate.not_valid_before_utc,
        tells_enrolment=_enrolled_at(certificate) is not None,
    )


def read_claims(pem: bytes) -> Claims:
    """Of the first certificate in it. ValueError: there is none."""
    return claims_of(x509.load_pem_x509_certificate(pem))


def hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Host names and addresses, without the names that follow from the identity."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    hosts = [*names.get_values_for_type(x509.DNSName)]
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return (*(host for host in hosts if not host.endswith(f".{NAMES}")), *addresses)


def parse_uri(uri: str) -> tuple[Identity, str] | None:
    """Who, and in which trust domain."""
    if not uri.startswith(SCHEME):
        return None
    trust_domain, _, path = uri.removeprefix(SCHEME).partition("/")
    role, _, name = path.partition("/")
    if not trust_domain or role not in list(Role) or not NAME.fullmatch(name):
        return None
    return Identity(Role(role), name), trust_domain


def by_common_name(name: str) -> Identity | None:
    if found := _SERVICE.fullmatch(name):
        return Identity(Role(found["role"]), name)
    if found := _AGENT.fullmatch(name):
        return Identity(Role.AGENT, found["node"] or found["name"])
    found = _SLASHED.fullmatch(name)
    if found and found["role"] in list(Role) and NAME.fullmatch(found["name"]):
        return Identity(Role(found["role"]), found["name"])
    return None


def _by_uri(certificate: x509.Certificate) -> tuple[Identity | None, str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None, ""
    uris = [
        uri
        for uri in names.get_values_for_type(x509.UniformResourceIdentifier)
        if uri.startswith(SCHEME)
    ]
    if len(uris) != 1:  # two would leave it to the reader whom to believe
        return None, "?" if uris else ""
    return parse_uri(uris[0]) or (None, "?")


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def _enrolled_at(certificate: x509.Certificate) -> datetime | None:
    for attribute in certificate.subject.get_attributes_for_oid(ENROLLED_AT):
        try:
            return datetime.fromisoformat(str(attribute.value)).astimezone(UTC)
        except ValueError:
            break
    return None
