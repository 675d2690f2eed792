"""The identity in a certificate.

Our certificates have it as a URI: spiffe://<trust domain>/<role>/<name>. Certificates of existing deployments
have only a common name, which contains the role and, for an agent, the node. Any other name is recognised
only if a setting assigns a role to it: all nodes or users may share it, so it does not prove a node. The
common name of a certificate with a URI is ignored.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from cryptography import x509
from cryptography.x509.oid import NameOID
from msgspec import Struct
from msgspec.structs import replace

from persys.errors import DeniedError
from persys.model.identity import NAMES, SCHEME, Identity, Role

CN_ROLES = "PERSYS_TLS_CN_ROLES"
NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._@]{0,252}")
# An attribute of the subject. Renewals copy it, so certificates can be revoked by time of enrolment.
ENROLLED_AT = NameOID.GENERATION_QUALIFIER
_SERVICE = re.compile(r"persys[-_](?P<role>scheduler|gateway)(?:\..+)?")
_AGENT = re.compile(
    r"(?:(?P<name>[^./]+)\.(?:[^/]*\.)?agents\..+|persys[-_]agent-(?P<node>[^./]+)(?:\.[^/]+)?)"
)
_SLASHED = re.compile(r"(?P<role>[a-z]+)/(?P<name>[^/]+)")


class Claims(Struct, frozen=True):
    identity: Identity | None  # None: not recognised
    trust_domain: str  # "": a certificate of an existing deployment
    serial: str
    not_before: datetime
    not_after: datetime
    enrolled_at: datetime  # when its holder joined; in existing deployments when it was issued
    has_enrolment_time: bool = False  # the certificate contains the time of enrolment
    common_name: str = ""
    shared: bool = False  # a setting assigns the role to this common name


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
        has_enrolment_time=_enrolled_at(certificate) is not None,
        common_name=_common_name(certificate),
    )


def recognised(
    claims: Claims, own_domain: str, roles: Mapping[str, Role], *, suggested: Role
) -> Claims:
    """The claims, with the identity that `roles` assigns to the common name if they have none.

    Raises DeniedError with the certificate's name and the setting that would admit it; `suggested` is the
    probable role of the caller.
    """
    if claims.trust_domain and claims.trust_domain != own_domain:
        text = f"certificate has trust domain {claims.trust_domain[:80]!r}: expected {own_domain!r}"
        raise DeniedError(text, reason="identity")
    if claims.identity is not None:
        return claims
    name = claims.common_name
    role = roles.get(name) if not claims.trust_domain else None
    if role is not None:
        return replace(claims, identity=Identity(role, name), shared=True)
    text = (
        f"certificate CN {name[:80]!r} is not recognised: "
        f"expected a URI {SCHEME}<trust domain>/<role>/<name> or a known name"
    )
    if NAME.fullmatch(name) and not claims.trust_domain:
        text += f"; {CN_ROLES}={name[:80]}={suggested} admits it"
    raise DeniedError(text, reason="identity")


def read_claims(pem: bytes) -> Claims:
    """The claims of the first certificate. Raises ValueError if there is none."""
    return claims_of(x509.load_pem_x509_certificate(pem))


def hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The host names and addresses, without the names that are derived from the identity."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    hosts = [*names.get_values_for_type(x509.DNSName)]
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return (*(host for host in hosts if not host.endswith(f".{NAMES}")), *addresses)


def parse_uri(uri: str) -> tuple[Identity, str] | None:
    """The identity and its trust domain."""
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
    if len(uris) != 1:  # with two the identity would be ambiguous
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
