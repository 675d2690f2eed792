"""Certificates from Vault's PKI engine, with a local key and Vault's signature.

All names are in the signing request and in the parameters, because a setting of the Vault role decides which
of them are used. Vault refuses a request that its role does not allow; the error then includes the role
settings that are needed.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from msgspec import Struct

from persys.errors import DeniedError, NotFoundError, RefusedError, UnavailableError
from persys.infra.tls.keys import Issued, host_name
from persys.infra.tls.renewal import CertificateSource
from persys.infra.tls.revocation import serials_in
from persys.infra.vault.session import Vault
from persys.model.identity import Identity, server_name

COMMON_NAME_MAX = 64


class Names(Struct, frozen=True):
    """The names in a certificate."""

    common_name: str
    hosts: tuple[str, ...]  # DNS names, our fixed names first
    addresses: tuple[str, ...]
    uri: str


def names_of(
    identity: Identity, trust_domain: str, *, service: str, hosts: Sequence[str] = ()
) -> Names:
    """`service` is the common name unless it is too long; `hosts` are DNS names or addresses."""
    fixed = server_name(identity.role), server_name(identity.role, identity.name)
    common = service if len(service) <= COMMON_NAME_MAX else fixed[0]
    parsed = [(host, host_name(host)) for host in hosts]
    addresses = [host for host, name in parsed if isinstance(name, x509.IPAddress)]
    named = [host for host, name in parsed if isinstance(name, x509.DNSName)]
    return Names(
        common_name=common,
        hosts=tuple(dict.fromkeys((*fixed, common, *named))),
        addresses=tuple(dict.fromkeys(addresses)),
        uri=identity.uri(trust_domain),
    )


class VaultSource(CertificateSource):
    def __init__(
        self,
        vault: Vault,
        identity: Identity,
        names: Names,
        *,
        mount: str,
        role: str,
        ttl: timedelta,
        every: timedelta,
    ) -> None:
        """`every` is the retry interval."""
        self._vault = vault
        self.identity = identity
        self._names = names
        self._mount = mount.strip("/")
        self._role = role
        self._ttl = ttl
        self.every = every

    async def run(self) -> None:
        await self._vault.run()

    def request(self, key: CertificateIssuerPrivateKeyTypes, identity: Identity) -> bytes:
        """A request with the names of the settings, which may differ from the current certificate."""
        del identity  # the settings may have changed
        names = self._names
        listed = x509.SubjectAlternativeName(
            [
                *(host_name(host) for host in (*names.hosts, *names.addresses)),
                x509.UniformResourceIdentifier(names.uri),
            ]
        )
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names.common_name)])
        return (
            x509.CertificateSigningRequestBuilder(subject)
            .add_extension(listed, critical=False)
            .sign(key, hashes.SHA256())
            .public_bytes(Encoding.PEM)
        )

    async def issue(self, csr_pem: bytes) -> Issued:
        """Raises UnavailableError, DeniedError or RefusedError."""
        path = f"{self._mount}/sign/{self._role}"
        try:
            response = await self._vault.request("POST", path, body=self._wanted(csr_pem))
        except DeniedError as err:
            raise DeniedError(
                f'{err}; the Vault policy needs: path "{path}" {{ capabilities = ["update"] }}',
                reason=err.reason,
            ) from err
        except NotFoundError as err:
            raise RefusedError(
                f"{err}; check that a PKI engine is mounted at {self._mount}"
            ) from err
        except RefusedError as err:
            raise RefusedError(f"{err}; the role needs at least: {self._needed()}") from err
        return _issued(response)

    async def revoked(self) -> frozenset[str]:
        """The serials of revoked certificates in hexadecimal digits. Raises the errors of `issue`."""
        try:
            return serials_in(await self._vault.fetch_public(f"{self._mount}/crl"))
        except ValueError as err:
            raise UnavailableError("the response of Vault is not a revocation list") from err

    def _wanted(self, csr_pem: bytes) -> Mapping[str, Any]:
        names = self._names
        return {
            "csr": csr_pem.decode(),
            "common_name": names.common_name,
            "alt_names": ",".join(names.hosts),
            "ip_sans": ",".join(names.addresses),
            "uri_sans": names.uri,
            "ttl": f"{int(self._ttl.total_seconds())}s",
            "format": "pem",
        }

    def _needed(self) -> str:
        """The command that configures the role for the certificates of this process."""
        hosts = ",".join(self._names.hosts)
        return (
            f"vault write {self._mount}/roles/{self._role} key_type=any allow_bare_domains=true "
            f"allowed_domains={hosts} allowed_uri_sans={self._names.uri} "
            f"max_ttl={int(self._ttl.total_seconds())}s"
        )


def _issued(response: Mapping[str, Any]) -> Issued:
    data = response.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("certificate"), str):
        raise UnavailableError("the response of Vault has no certificate")
    listed = data.get("ca_chain") or [data.get("issuing_ca") or ""]
    try:
        leaf = x509.load_pem_x509_certificate(data["certificate"].encode())
        above = [x509.load_pem_x509_certificate(str(one).encode()) for one in listed]
    except ValueError as err:
        raise UnavailableError("the certificate from Vault cannot be parsed") from err
    between = [one for one in above if one.subject != one.issuer]
    # An engine without its root certificate: the topmost intermediate is the trust anchor.
    roots = [one for one in above if one.subject == one.issuer] or above[-1:]
    return Issued(_pem([leaf, *between]), _pem(roots))


def _pem(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates)
