"""Who a certificate says its holder is.

A certificate of ours says it in a URI: spiffe://<trust domain>/<role>/<name>. One of an existing deployment
has only a common name, from which the role, and of an agent also the node, can be told. Another name is
recognised only if a setting gives it a role: all nodes or users may share it, so it proves no node. What
would surprise: a certificate with a URI is never read by its common name.
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
    common_name: str = ""
    shared: bool = False  # a setting gives the role to whoever has this common name


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
        common_name=_common_name(certificate),
    )


def recognised(
    claims: Claims, own_domain: str, roles: Mapping[str, Role], *, suggested: Role
) -> Claims:
    """The claims, with the identity that `roles` gives to the common name if it has none of its own.

    Raises DeniedError, which names what was presented and what would admit it; `suggested` is the role that
    the caller probably has.
    """
    if claims.trust_domain and claims.trust_domain != own_domain:
        text = (
            f"certificate is of trust domain {claims.trust_domain[:80]!r}: expected {own_domain!r}"
        )
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
